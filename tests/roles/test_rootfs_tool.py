"""The tool that keeps a broker in a root file system of its own, as roles/rabbitmq uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import pika
import pika.exceptions
import pytest
import yaml  # type: ignore[import-untyped]

import steps
from osrdyne_infra.broker.statefulset import ADVANCED
from osrdyne_pool.broker.management import ManagementRefused
from testbed.amqp_1_0 import UUID, Sender, message
from testbed.broker import Broker, run_tool
from testbed.management import Management
from testbed.waiting import until

COPY = "ansible.builtin.copy"


def configured(broker: Broker, **other: int) -> bool:
    """Configure the broker as it is, but for `other`; whether the tool says that the broker has to be restarted."""
    options = json.loads((broker.directory / "instance.json").read_text()) | other
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return bool(json.loads(run_tool("configure", "--dir", str(broker.directory), *words))["changed"])


def test_a_configuration_asks_for_a_restart_until_the_broker_has_loaded_it(one_version: str) -> None:
    # Given a broker, whose configuration was changed by a run that was cut short before the restart
    with Broker(one_version) as broker:
        assert not configured(broker)
        assert configured(broker, memory=700)
        # Then the next run finds nothing to write and still asks for it
        assert configured(broker, memory=700)
        # And once it was restarted, no longer
        broker.restart()
        assert not configured(broker, memory=700)


def test_a_log_that_is_written_without_end_takes_no_more_than_its_files(one_version: str) -> None:
    with Broker(one_version) as broker:
        assert configured(broker, log_bytes=20_000, log_files=2)
        broker.restart()
        port = json.loads((broker.directory / "instance.json").read_text())["management"]
        stranger = Management(f"http://127.0.0.1:{port}", "stranger", "no password")
        for _ in range(700):
            # The broker logs each log-in that it refuses.
            with pytest.raises(ManagementRefused):
                stranger.get("whoami")
        # A line is written before the size of its log is looked at, and some may still come.
        logs = list((broker.directory / "log").glob("broker.log*"))
        assert len(logs) == 3
        assert 40_000 < sum(log.stat().st_size for log in logs) < 3 * 20_000 + 2_000


def attack(broker: Broker) -> int:
    """Have the broker crash on a message of a megabyte; return how many bytes that took in its logs."""
    logs = broker.directory / "log"

    def size() -> int:
        return sum(path.stat().st_size for path in logs.iterdir())

    def crashes() -> int:
        return sum(path.read_bytes().count(b"Non-AMQP exit reason") for path in logs.iterdir())

    before = size()
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_uri())) as connection:
        connection.channel().queue_declare("q", durable=True)
    with Sender.to_queue(broker.amqp_uri(), "q") as sender:
        sender.send(message(os.urandom(1_000_000), application=UUID))
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_uri()))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        next(connection.channel().consume("q"))
    until(lambda: crashes() == 1, what="the crash in the log")
    return size() - before


def test_a_crash_over_a_long_message_takes_little_of_the_log(one_version: str) -> None:
    # The broker makes text of all that it logs first: the memory that this takes is a thousand times the message.
    with Broker(one_version) as broker:
        assert attack(broker) < 100_000


def of_the_role(name: str) -> str:
    """The file advanced.config that the role writes for such a broker."""
    role = Path(steps.ROOT, "roles/rabbitmq")
    given = yaml.safe_load((role / "defaults/main.yml").read_text()) | {"rabbitmq_statistics_interval": 500}
    variables = yaml.safe_load((role / "vars/main.yml").read_text())
    for variable in ("rabbitmq_log_formatter", f"rabbitmq_{name}_log"):
        given[variable] = rendered(variables[variable], given)
    tasks = yaml.safe_load((role / f"tasks/{name}.yml").read_text())
    files = [item for task in tasks for item in (task.get(COPY, {}), *task.get("loop", [])) if isinstance(item, dict)]
    [text] = [item["content"] for item in files if f"rabbitmq_{name}_log" in item.get("content", "")]
    return rendered(text, given)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(partial(of_the_role, "package"), id="package"),
        pytest.param(partial(of_the_role, "container"), id="container", marks=pytest.mark.full),
        pytest.param(lambda: ADVANCED, id="stack", marks=pytest.mark.full),
    ],
)
def test_other_brokers_that_we_configure_log_little_of_a_crash_too(one_version: str, text: Callable[[], str]) -> None:
    with Broker(one_version) as broker:
        (broker.directory / "etc/advanced.config").write_text(text())
        broker.restart()
        assert attack(broker) < 100_000


def rendered(template: str, variables: dict[str, Any]) -> str:
    made = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True).from_string(template)  # noqa: S701 - no HTML
    return made.render(variables)


def test_brokers_of_the_package_and_in_a_container_have_logs_of_a_bounded_size_too() -> None:
    role = Path(steps.ROOT, "roles/rabbitmq")
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    given = {
        **defaults,
        "rabbitmq_admin": {"passwords": {"osrdyne-admin": "p"}},
        "rabbitmq_loopback": "",
        "ansible_managed": "",
    }

    conf = rendered((role / "templates/osrdyne.conf.j2").read_text(), given).splitlines()
    variables = yaml.safe_load((role / "vars/main.yml").read_text())
    container = [rendered(word, given) for word in variables["rabbitmq_container_arguments"]]

    for name in ("rabbitmq_log_formatter", "rabbitmq_container_log"):
        given[name] = rendered(variables[name], given)
    assert (
        "{console, [{enabled, true}, {level, info}, {formatter, {logger_formatter, #{chars_limit"
        in (given["rabbitmq_container_log"])
    )
    assert {"log.file.rotation.size = 10000000", "log.file.rotation.count = 10"} <= set(conf)
    assert {"--log-driver=json-file", "--log-opt=max-size=10000000", "--log-opt=max-file=11"} <= set(container)


def test_what_a_build_that_was_cut_short_left_is_removed_with_what_is_mounted_in_it(tmp_path: Path) -> None:
    (tmp_path / "root.part/proc").mkdir(parents=True)
    superuser = [] if os.geteuid() == 0 else ["sudo", "-n"]
    subprocess.run([*superuser, "mount", "-t", "proc", "proc", tmp_path / "root.part/proc"], check=True)
    tool = Path(steps.ROOT, "roles/rabbitmq/files")
    program = (
        "import sys; from pathlib import Path; from rabbitmq_rootfs import rootfs; rootfs.discard(Path(sys.argv[1]))"
    )

    for _ in range(2):
        subprocess.run([*superuser, sys.executable, "-c", program, tmp_path / "root.part"], check=True, cwd=tool)

    assert not (tmp_path / "root.part").exists()
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
