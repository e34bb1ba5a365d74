"""The pages of the bus and the README of the package: their programs run, and their tables are those of the code."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import steps
from osrdyne_bus import SCHEMES, Priority, Target, errors
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.threads import Bus, BusServer
from testbed import proton
from testbed.command_line import osrdyne
from testbed.node import building
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE_SECONDS
from testbed.workers import LIBRARY
from tests.conftest import Vhost

PAGES = ("howto/bus", "howto/bus-operations", "howto/bus-pools", "howto/bus-peers", "reference/bus", "explain/bus")
#: A heading between two of them ends the last section of the first.
PAGE = "\n## ".join(Path(steps.ROOT, f"docs/{name}.md").read_text() for name in PAGES)
README = Path(steps.ROOT, "packages/bus/README.md").read_text()


def programs(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def run(program: str, folder: Path) -> str:
    path = folder / "program.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=steps.environment(PYTHONPATH=str(proton.folder())),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", programs(PAGE)[:2], ids=["asyncio", "threads"])
def test_a_program_of_the_page_runs_and_prints_its_answer(program: str, vhost: Vhost, tmp_path: Path) -> None:
    address = "amqp://guest:guest@localhost:5672/"
    assert address in program
    assert run(program.replace(address, vhost.amqp_uri()), tmp_path) == "b'the map of Lille'\n"


@pytest.mark.both_versions
def test_the_program_in_javascript_gets_the_answer_of_a_cold_key_and_the_status_of_an_error(
    make_pool: Callable[..., Pool],
    make_daemon: Callable[..., DaemonProcess],
    tmp_path: Path,
) -> None:
    pool = make_pool()
    make_daemon(pool, worker=LIBRARY)
    assert f"`/exchanges/{pool.names.request_exchange.replace('core', '{pool}')}/{{key}}`" in PAGE
    assert node(pool, tmp_path, "LAX", "question") == "ok LAX|question\n"
    assert node(pool, tmp_path, "Zürich/é 100%", "ß") == "ok Zürich/é 100%|ß\n"
    assert node(pool, tmp_path, "LAX", "error") == "error no such airport\n"


@pytest.mark.both_versions
def test_the_program_in_javascript_shows_that_a_request_of_a_key_without_a_worker_expired(
    make_pool: Callable[..., Pool],
    make_daemon: Callable[..., DaemonProcess],
    tmp_path: Path,
) -> None:
    pool = make_pool()
    make_daemon(pool)
    assert node(pool, tmp_path, "LAX", "question", seconds=1) == "expired \n"


def node(pool: Pool, folder: Path, *arguments: str, seconds: int = 10) -> str:
    """Run the page's program on a pool, with this deadline, and return what it prints."""
    (program,), address, deadline = programs(PAGE, "javascript"), "amqp://client:password@localhost:5672/%2F", "10_000"
    assert address in program
    assert deadline in program
    assert len(program.splitlines()) <= 40
    path = folder / "call.mjs"
    path.write_text(program.replace(address, pool.client_uri).replace(deadline, f"{seconds}_000"))
    made = building.folder()
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(made / "node_modules")
    done = subprocess.run(
        [str(made / "node"), str(path), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_of_the_readme_gets_its_answer(vhost: Vhost, tmp_path: Path) -> None:
    (program,) = programs(README)
    address = "amqps://user:password@broker/vhost"
    assert address in program
    maps = Endpoint("maps")
    maps.add("find", lambda request: request.body.upper())
    with Bus(vhost.amqp_uri()) as bus, BusServer(bus, Target("maps", server="n"), [maps]):
        assert run(program.replace(address, vhost.amqp_uri()), tmp_path) == "b'LILLE'\n"


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_the_settings_of_the_page_are_those_of_the_code_with_their_defaults() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `?([\w/]+)`? \|", section("Settings"), re.MULTILINE)
    fields = {field.name: field.default for field in dataclasses.fields(BusSettings)}
    assert [name for name, _ in rows] == list(fields)
    for name, default in rows:
        assert default == str(fields[name]) or float(default) == fields[name]


def test_the_addresses_of_the_page_are_those_of_the_schemes() -> None:
    rows = [row.split(" | ") for row in section("Addresses").splitlines() if row.startswith("| ") and "`" in row]
    target = Target("TOPIC", exchange="EXCHANGE", server="SERVER")
    for column, name in enumerate(("routable", "brokered", "rabbitmq"), start=1):
        scheme = SCHEMES[name]()
        expected = [
            scheme.shared(target),
            scheme.server(target),
            scheme.fanout(target),
            scheme.notifications(target, Priority.INFO),
        ]
        shown = [row[column].strip(" |`") for row in rows]
        for word, value in (("exchange", "EXCHANGE"), ("topic", "TOPIC"), ("server", "SERVER"), ("priority", "info")):
            shown = [line.replace(f"{{{word}}}", value) for line in shown]
        assert shown == expected


def test_the_page_names_the_errors_that_a_message_can_end_with() -> None:
    named = set(re.findall(r"^\| `(\w+)`", section("Errors"), re.MULTILINE))
    ours = {
        name for name, error in inspect.getmembers(errors, inspect.isclass) if issubclass(error, errors.MessagingError)
    }
    # These are raised before a message is sent, are a part of others, or are what others are made of.
    elsewhere = {"MessagingError", "InvalidTarget", "ConnectFailed", "LoginRefused", "SendTimedOut", "Unsent"}
    assert named - {"RemoteError", "NoFreeSlot", "InvalidTimeout", "OtherProcess"} == ours - elsewhere


def test_the_commands_of_the_page_do_what_it_says(vhost: Vhost) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", section("Commands"), re.DOTALL)
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    assert len(commands) == 4
    maps, variables = Endpoint("maps"), {"OSRDYNE_BUS_URI": vhost.amqp_uri()}
    with (
        Bus(vhost.amqp_uri()) as bus,
        BusServer(bus, Target("maps", server="node-1"), [maps]),
        BusServer(bus, Target("roads", server="node-2"), []),
    ):
        for words in commands:
            rounds = ["--rounds", "1"] if "watch" in words else []
            done = osrdyne(*words, *rounds, variables=variables)
            assert done.code == 0, done
            assert ("node-1" in done.out.decode()) == ("maps" in words)


def test_the_program_of_the_page_exports_the_metrics_that_it_lists(vhost: Vhost, tmp_path: Path) -> None:
    (program,) = [program for program in programs(PAGE) if "BusMetrics" in program]
    use = f"""
from prometheus_client import generate_latest
with Bus({vhost.amqp_uri()!r}) as bus:
    export(bus)
    print(generate_latest().decode())
"""
    shown = run(program + use, tmp_path)
    exported = re.findall(r"^# TYPE (osrdyne_bus_\w+)", shown, re.MULTILINE)
    assert sorted(exported) == sorted(re.findall(r"^\| `(osrdyne_bus_\w+)`", section("Metrics"), re.MULTILINE))
