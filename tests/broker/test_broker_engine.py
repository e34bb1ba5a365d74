"""The test broker itself: what the other tests of this folder stand on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pika
import pytest

from tests.conftest import Vhost
from tests.engines.broker import Broker, BrokerFailed
from tests.engines.waiting import until

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


def test_a_broker_whose_port_is_taken_says_so(broker: Broker) -> None:
    second = Broker(broker.version)
    try:
        settings = second.directory / "instance.json"
        settings.write_text(settings.read_text().replace(str(second.amqp_port), str(broker.amqp_port)))
        with pytest.raises(BrokerFailed, match=f"port {broker.amqp_port} of 127.0.0.1 is taken"):
            second.start()
    finally:
        second.close()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_broker_ends_with_its_owner_however_that_ends(broker_version: str, end: signal.Signals) -> None:
    # Given a process that started a broker
    script = (
        f"import sys; from tests.engines.broker import Broker; broker = Broker({broker_version!r})\n"
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
