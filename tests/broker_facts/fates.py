"""A quorum queue with one confirmed message, a broker that is killed, and what became of the queue."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from osrdyne_pool.broker import quorum
from osrdyne_pool.broker.management import ManagementRefused
from testbed.broker import Broker
from testbed.waiting import until

QUORUM = {"x-queue-type": "quorum"}
PERSISTENT = pika.BasicProperties(delivery_mode=2)
VHOST = "/"
#: What can become of a queue: it has its message; it works and is empty; it never gets a leader; it does not exist.
WELL, EMPTY, LOST, GONE = "well", "empty", "lost", "gone"


@dataclass(frozen=True)
class DeclaredQueue:
    """A queue that got a message: `at` is the moment (s, monotonic) in which the broker confirmed that."""

    name: str
    at: float


@dataclass(frozen=True)
class Fate:
    """What became of a queue that was `age` seconds old when its broker was killed."""

    name: str
    age: float
    fate: str


def open_channel(broker: Broker) -> BlockingChannel:
    """Return a channel with confirms on a connection of its own."""
    channel = pika.BlockingConnection(pika.URLParameters(f"{broker.amqp_uri()}?heartbeat=0")).channel()
    channel.confirm_delivery()
    return channel


def declare(channel: BlockingChannel, name: str) -> DeclaredQueue:
    """Declare a quorum queue and leave one confirmed message in it."""
    channel.queue_declare(name, durable=True, arguments=QUORUM)
    channel.basic_publish("", name, b"x", PERSISTENT)
    return DeclaredQueue(name, time.monotonic())


def close(channel: BlockingChannel) -> None:
    """Close its connection, which the broker may have ended before."""
    with contextlib.suppress(pika.exceptions.AMQPError):
        channel.connection.close()


def members(broker: Broker, name: str, vhost: str = VHOST) -> tuple[quorum.Member, ...]:
    """Return what the status API says of the queue's members. Raises ManagementRefused."""
    return quorum.read(broker.management.get("queues", "quorum", vhost, name, "status"))


def make_lost(broker: Broker, name: str, vhost: str = VHOST) -> None:
    """Lose an existing queue of a single broker without a kill, as a lost line of the register does.

    The member is removed, with its line and its log, and the broker is asked to recover the queue: it finds none, and
    starts a new one. Only for RabbitMQ 4.0: 4.3 knows the member's log by an id that it keeps with the queue.
    """
    broker.rabbitmqctl(
        "eval",
        f"""
        {{ok, Queue}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"{name}">>)),
        {{Name, _}} = amqqueue:get_pid(Queue),
        ok = ra:force_delete_server(quorum_queues, {{Name, node()}}),
        rabbit_quorum_queue:recover(<<"{vhost}">>, [Queue]).
        """,
    )


def trigger_election(broker: Broker, name: str) -> None:
    """Begin the election that no node began."""
    broker.rabbitmqctl("eval", f"ra:trigger_election({{'%2F_{name}', node()}}).")


def fates(broker: Broker, declared: Iterable[DeclaredQueue], killed_at: float) -> list[Fate]:
    """Find out what became of queues once the broker has started again."""
    channel = open_channel(broker)
    try:
        return [Fate(queue.name, killed_at - queue.at, fate_of(broker, channel, queue.name)) for queue in declared]
    finally:
        close(channel)


def fate_of(broker: Broker, channel: BlockingChannel, name: str) -> str:
    """Find out what became of one queue: wait until it has a leader, or shows for two seconds that it never had one."""
    since: float | None = None

    def settled() -> str | None:
        nonlocal since
        try:
            found = members(broker, name)
        except ManagementRefused as error:
            return GONE if error.status == 404 else None
        if any(member.state == "leader" for member in found):
            return WELL
        since = (since or time.monotonic()) if quorum.never_led(found) else None
        return LOST if since and time.monotonic() - since > 2 else None

    fate = until(settled, what=f"a leader of {name}")
    if fate == WELL and count(channel, name) == 0:
        return EMPTY
    return fate


def count(channel: BlockingChannel, name: str) -> int:
    """Messages ready in a queue that has a leader."""
    found: Any = channel.queue_declare(name, passive=True).method
    return int(found.message_count)
