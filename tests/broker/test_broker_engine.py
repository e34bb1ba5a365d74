"""The test broker itself: what the other tests of this folder stand on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pika
import pytest

from testbed.broker import Broker, BrokerFailed, SharedBroker, share
from testbed.waiting import until
from tests.conftest import Vhost

pytestmark = pytest.mark.both_versions

QUORUM = {"x-queue-type": "quorum"}


def leave_a_message(uri: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("kept", durable=True, arguments=QUORUM)
        channel.basic_publish("", "kept", b"body", pika.BasicProperties(delivery_mode=2))


def take_the_message(uri: str) -> bytes | None:
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        body: bytes | None = connection.channel().basic_get("kept", auto_ack=True)[2]
    return body


def test_a_broker_has_the_version_that_was_asked_for(broker: Broker) -> None:
    overview = broker.management.get("overview")
    assert overview["rabbitmq_version"].startswith(f"{broker.version}.")


def test_a_vhost_is_empty_and_takes_and_gives_messages(vhost: Vhost) -> None:
    assert vhost.broker.management.get("queues", vhost.name) == []
    leave_a_message(vhost.amqp_uri())
    assert take_the_message(vhost.amqp_uri()) == b"body"


def test_confirmed_messages_survive_a_stopped_and_a_killed_broker(private_broker: Broker) -> None:
    leave_a_message(private_broker.amqp_uri())
    private_broker.restart()
    leave_a_message(private_broker.amqp_uri())
    private_broker.kill()
    private_broker.start()
    assert until(lambda: take_the_message(private_broker.amqp_uri())) == b"body"
    assert until(lambda: take_the_message(private_broker.amqp_uri())) == b"body"


def test_rabbitmqctl_speaks_to_this_broker(vhost: Vhost) -> None:
    assert vhost.name in vhost.broker.rabbitmqctl("-q", "list_vhosts")


def test_a_broker_finds_the_plugins_that_it_runs_and_no_others(broker: Broker) -> None:
    found = "rabbit_plugins:plugin_names(rabbit_plugins:list(rabbit_plugins:plugins_dir()))"
    answer = broker.rabbitmqctl("-q", "eval", f"{{{found} -- rabbit_plugins:active(), rabbit_plugins:active()}}.")
    others, running = answer.split("],", 1)
    assert re.findall(r"\w+", others) == []
    assert {"rabbitmq_management", "rabbitmq_prometheus", "rabbitmq_stream"} <= set(re.findall(r"\w+", running))


@pytest.mark.full
def test_a_broker_runs_what_its_file_of_enabled_plugins_has_been_given(broker_version: str) -> None:
    broker = Broker(broker_version)
    try:
        enabled = broker.directory / "etc/enabled_plugins"
        enabled.write_text("[rabbitmq_management,rabbitmq_prometheus,rabbitmq_stream,rabbitmq_shovel].\n")
        broker.start()
        assert broker.management.get("parameters", "shovel", "/") == []
        broker.stop()
        enabled.write_text("[rabbitmq_shove].\n")
        with pytest.raises(
            BrokerFailed, match=rf"there is no rabbitmq_shove among the plugins in .*; correct {enabled}"
        ):
            broker.start()
    finally:
        broker.close()


def test_a_broker_whose_root_file_system_lacks_it_says_so(broker: Broker, tmp_path: Path) -> None:
    second = Broker(broker.version)
    try:
        settings = second.directory / "instance.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"root": str(tmp_path)}))
        with pytest.raises(
            BrokerFailed, match=r"there is no rabbit, .* remove the root file system, and `install` makes it again"
        ):
            second.start()
    finally:
        second.close()


def test_a_broker_whose_port_is_taken_says_so(broker: Broker) -> None:
    second = Broker(broker.version)
    try:
        settings = second.directory / "instance.json"
        settings.write_text(settings.read_text().replace(str(second.amqp_port), str(broker.amqp_port)))
        with pytest.raises(BrokerFailed, match=f"port {broker.amqp_port} of 127.0.0.1 is taken"):
            second.start()
    finally:
        second.close()


def test_a_broker_that_another_process_owns_is_used_and_cannot_be_ended(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "broker.json"
    facts = {"version": broker.version, "directory": str(broker.directory), "first_port": broker.amqp_port}
    file.write_text(json.dumps(facts))

    with SharedBroker(file) as shared:
        assert shared.management.get("overview")["node"] == broker.management.get("overview")["node"]
        for end in (shared.stop, shared.kill, shared.restart):
            with pytest.raises(BrokerFailed, match="uses `private_broker`"):
                end()

    assert broker.management.get("overview")


@pytest.mark.parametrize(
    "why, said",
    [(BrokerFailed("port 5672 is taken"), "port 5672 is taken"), (OSError(28, "No space left"), "No space left")],
)
def test_why_a_shared_broker_did_not_start_reaches_all_who_wait_for_it(
    why: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_version: str) -> Broker:
        raise why

    monkeypatch.setattr("testbed.broker.Broker", fails)
    with pytest.raises(type(why)):
        share("4.0", tmp_path / "broker.json")

    with pytest.raises(BrokerFailed, match=said):
        SharedBroker(tmp_path / "broker.json")


@pytest.mark.full
def test_a_broker_is_shared_until_its_owner_ends(broker_version: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.json"
    command = [sys.executable, "-m", "testbed.broker", "share", broker_version, "--file", str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as owner:
        shared = SharedBroker(file)
        assert shared.management.get("overview")["rabbitmq_version"].startswith(f"{broker_version}.")
        assert owner.stdin
        owner.stdin.close()
        assert owner.wait(180) == 0
    assert not shared.directory.exists()


@pytest.mark.full
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_broker_ends_with_its_owner_however_that_ends(broker_version: str, end: signal.Signals) -> None:
    # Given a process that started a broker
    script = (
        f"import sys; from testbed.broker import Broker; broker = Broker({broker_version!r})\n"
        "broker.start(); print(broker.directory, flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as owner:
        assert owner.stdout
        directory = Path(owner.stdout.readline().strip())
        broker_pid = int((directory / "pid").read_text().split()[0])
        # When the process ends without a word
        os.kill(owner.pid, end)
    # Then neither its broker nor the broker's data stay
    until(lambda: not Path(f"/proc/{broker_pid}").exists() and not directory.exists())
