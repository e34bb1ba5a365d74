"""Programs of others that use a library, and set up logging by `basicConfig`: they read address and reason."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from osrdyne_runtime import log_lines
from osrdyne_runtime.console import log_format
from testbed.waiting import until, until_in_thread
from tests.broker.fake_broker import fake_broker

#: A program per package, with the port of a broker or a server that is away. None shows its secret.
PROGRAMS = {
    "amqp": """
import asyncio
from functools import partial
from osrdyne_amqp import Connection
from osrdyne_amqp.event_line import EventLine
async def main():
    connect = partial(Connection.open, "amqp://u:hunter2@127.0.0.1:{port}/v", name="n")
    line = EventLine("x", connect, sender="s", key="k")
    line.send("k", [{{"x-event": "alive"}}])
    await asyncio.sleep(1000)
asyncio.run(main())
""",
    "worker": """
from osrdyne_protocol.worker_environment import WorkerEnvironment
import asyncio, osrdyne_worker
address = "amqp://u:hunter2@127.0.0.1:{port}/v"
environment = WorkerEnvironment("id", "42", "core", "core-req-42", "core-activity", address)
asyncio.run(osrdyne_worker.serve(lambda request: b"", environment, asyncio.Event()))
""",
    "client": """
import time
from osrdyne_client import Client
with Client("amqp://u:hunter2@127.0.0.1:{port}/v", "core") as client:
    print("connected", file=sys.stderr, flush=True)
    time.sleep(1000)
""",
    "jobs": """
import time
from osrdyne_client import Client
from osrdyne_jobs.processes import LateCaster
with LateCaster(lambda: Client("amqp://u:hunter2@127.0.0.1:{port}/v", "core")):
    time.sleep(1000)
""",
    "relay": """
from osrdyne_relay.worker import RelayWorker
RelayWorker("http://127.0.0.1:{port}", "maps", lambda request: b"", token="hunter2", websocket=False).run()
""",
    "relay-line": """
from osrdyne_relay.worker import RelayWorker
RelayWorker("http://127.0.0.1:{port}", "maps", lambda request: b"", token="hunter2").run()
""",
}


@contextmanager
def running(package: str, port: int, tmp_path: Path) -> Iterator[Path]:
    """Run the program of a package; what it writes to its standard error."""
    output = tmp_path / "stderr"
    program = "import logging, sys\nlogging.basicConfig(level=logging.INFO)\n" + PROGRAMS[package].format(port=port)
    with (
        output.open("wb") as file,
        subprocess.Popen([sys.executable, "-c", program], stderr=file) as process,
    ):
        try:
            yield output
        finally:
            process.kill()


def says(output: Path, port: int) -> bool:
    lines = output.read_text().splitlines()
    assert not any("hunter2" in line for line in lines), lines
    return any(
        line.startswith("WARNING:osrdyne_")
        and f"127.0.0.1:{port}" in line
        and any(word in line for word in ("refused", "Connect call failed"))
        for line in lines
    )


@pytest.mark.parametrize("package", ["amqp", "worker", "jobs", "relay", "relay-line"])
def test_a_line_about_a_port_that_is_closed_has_address_and_reason_and_no_password(
    package: str, tmp_path: Path
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with running(package, port, tmp_path) as output:
            until(lambda: says(output, port), what=package)


async def test_a_client_that_lost_its_broker_says_so_with_address_and_reason(tmp_path: Path) -> None:
    async with fake_broker() as broker:
        with running("client", broker.port, tmp_path) as output:
            await until_in_thread(lambda: "connected" in output.read_text())
            broker.server.close()
            broker.hang_up()
            await until_in_thread(lambda: says(output, broker.port))
    assert "trying again" in output.read_text()


def test_the_fields_of_a_line_are_in_its_message_and_on_its_record(caplog: pytest.LogCaptureFixture) -> None:
    log_lines.logger("osrdyne_test").warning("it failed", extra={"key": "a", "reason": "no\nluck\x1b[2J", "tries": 3})

    [record] = caplog.records
    assert record.getMessage() == 'it failed key="a" reason="no\\nluck\\u001b[2J" tries=3'
    assert (record.__dict__["key"], record.__dict__["tries"]) == ("a", 3)


def test_a_log_of_our_commands_says_each_field_once(caplog: pytest.LogCaptureFixture) -> None:
    log_lines.logger("osrdyne_test").warning("it failed", extra={"reason": "no luck"})
    logging.getLogger("osrdyne_test").warning("it failed", extra={"reason": "no luck"})

    ours, plain = caplog.records
    plain.created = ours.created
    assert log_format._Text().format(ours) == log_format._Text().format(plain)
    assert log_format._Text().format(ours).count("no luck") == 1
    said = json.loads(log_format._JsonLines().format(ours))
    assert (said["message"], said["reason"]) == ("it failed", "no luck")


def test_a_thousand_keys_with_the_same_failure_are_one_kind_of_line(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(1000):
        log_lines.logger("osrdyne_test").warning("it failed", extra={"key": str(number)})

    repeats = log_format.Repeats(limit=20, clock=lambda: 0.0)
    assert [repeats.filter(record) for record in caplog.records].count(True) == 20


def test_a_line_without_fields_is_its_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_lines.logger("osrdyne_test").info("%d of %s", 1, "x")

    assert [record.getMessage() for record in caplog.records] == ["1 of x"]


def test_every_module_of_a_library_that_logs_fields_says_them_in_its_messages() -> None:
    root = Path(log_lines.__file__).parents[3]
    modules = [
        file
        for folder in (
            "packages/amqp",
            "packages/calls",
            "packages/client",
            "packages/worker",
            "packages/jobs",
            "packages/relay",
            "packages/bus",
        )
        for file in (root / folder).rglob("*.py")
    ]
    assert len(modules) > 100
    hiding = [
        str(file)
        for file in modules
        if "extra=" in (text := file.read_text()) and "logging.getLogger(__name__)" in text
    ]
    assert hiding == []
