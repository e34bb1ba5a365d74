"""What a lost queue does to its users, and what heals it: on queues that were made lost without a kill."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from osrdyne_pool.broker import quorum
from testbed.broker import Broker
from testbed.waiting import until
from tests.broker_facts.fates import (
    PERSISTENT,
    QUORUM,
    VHOST,
    close,
    count,
    declare,
    make_lost,
    members,
    open_channel,
    trigger_election,
)


@dataclass(frozen=True)
class Measurement:
    """What was done, how long it took (s), and how it ended."""

    what: str
    seconds: float
    outcome: str


def measure(broker: Broker) -> list[Measurement]:
    """Try everything on lost queues; takes two and a half minutes where a publish waits for 65 s, twice."""
    names = [f"lost{number}" for number in range(6)]
    channel = open_channel(broker)
    for name in [*names, "well"]:
        declare(channel, name)
    close(channel)
    for name in names:
        make_lost(broker, name)
    found = [Measurement("the status API", *timed(lambda: _shown(broker, names[0])))]
    if not quorum.never_led(members(broker, names[0])):
        return [*found, Measurement("publish", *_on(broker, lambda channel: _publish(channel, names[0])))]
    found += _at_once(broker, names[0])
    found += _side_by_side(broker, names)
    found += _after_deletion(broker, names[1])
    broker.restart()
    found.append(Measurement("after another restart: the status API", *timed(lambda: _shown(broker, names[5]))))
    found.append(Measurement("ra:trigger_election", *timed(lambda: trigger_election(broker, names[5]))))
    until(lambda: any(member.state == "leader" for member in members(broker, names[5])), what="a leader")
    found.append(Measurement("publish after that", *_on(broker, lambda channel: _publish(channel, names[5]))))
    return found


def _at_once(broker: Broker, name: str) -> list[Measurement]:
    acts: dict[str, Callable[[BlockingChannel], object]] = {
        "passive declare": lambda channel: f"{count(channel, name)} messages",
        "declare again": lambda channel: channel.queue_declare(name, durable=True, arguments=QUORUM) and "ok",
        "bind": lambda channel: channel.queue_bind(name, "amq.direct", "key") and "ok",
        "unbind": lambda channel: channel.queue_unbind(name, "amq.direct", "key") and "ok",
    }
    return [Measurement(what, *_on(broker, act)) for what, act in acts.items()]


def _side_by_side(broker: Broker, names: list[str]) -> list[Measurement]:
    """What takes long, each on a connection of its own."""

    def behind(channel: BlockingChannel) -> object:
        # Not waited for: the second publish is for a queue that is well, on the same channel.
        channel.basic_publish("", names[0], b"x", PERSISTENT)
        return "confirmed"

    def waiting_while_deleted() -> object:
        publishing = threading.Thread(target=lambda: results.append(_on(broker, to_deleted)))
        results: list[tuple[float, str]] = []
        publishing.start()
        time.sleep(1)
        deleted = _on(broker, lambda channel: channel.queue_delete(names[1]) and "ok")
        publishing.join()
        return [Measurement("delete", *deleted), Measurement("a publish that waits, deleted after 1 s", *results[0])]

    def to_deleted(channel: BlockingChannel) -> object:
        return _publish(channel, names[1])

    acts: dict[str, Callable[[], object]] = {
        "publish": lambda: _on(broker, behind),
        "a publish to a queue that is well, behind one to a lost one": lambda: _stalled(broker, names[2]),
        "basic.get": lambda: _on(broker, lambda channel: channel.basic_get(names[3])),
        "basic.consume": lambda: _on(broker, lambda channel: channel.basic_consume(names[3], lambda *_: None)),
        "purge": lambda: _on(broker, lambda channel: channel.queue_purge(names[4])),
        "": waiting_while_deleted,
    }
    results: dict[str, Any] = {}
    threads = [
        threading.Thread(target=lambda what=what, act=act: results.update({what: act()})) for what, act in acts.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deleted = results.pop("")
    return [*(Measurement(what, *result) for what, result in results.items()), *deleted]


def _stalled(broker: Broker, lost: str) -> tuple[float, str]:
    """Publish to the lost queue and then to a well one, on one channel, and say how long the second takes."""
    parameters = pika.URLParameters(f"{broker.amqp_uri()}?heartbeat=0")
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    # Without confirms, so that pika does not wait for the first; the broker does all in the order of the channel.
    channel.basic_publish("", lost, b"x")
    channel.basic_publish("", "well", b"x")
    began = time.monotonic()
    channel.queue_declare("well", passive=True)
    connection.close()
    return time.monotonic() - began, "ok"


def _after_deletion(broker: Broker, name: str) -> list[Measurement]:
    def again(channel: BlockingChannel) -> object:
        declare(channel, name)
        return "ok, and its first publish is confirmed"

    return [Measurement("declare after the deletion", *_on(broker, again))]


def _shown(broker: Broker, name: str) -> str:
    listed = broker.management.get("queues", VHOST, name)
    (one,) = members(broker, name)
    return f"{one.state}, term {one.term}, last index {one.last_index}; listed as {listed['state']}"


def _publish(channel: BlockingChannel, name: str) -> str:
    channel.basic_publish("", name, b"x", PERSISTENT)
    return "confirmed"


def _on(broker: Broker, act: Callable[[BlockingChannel], object]) -> tuple[float, str]:
    """Do it on a connection of its own."""
    channel = open_channel(broker)
    try:
        return timed(lambda: act(channel))
    finally:
        close(channel)


def timed(act: Callable[[], object]) -> tuple[float, str]:
    """Do it; return how many seconds it took and how it ended."""
    began = time.monotonic()
    try:
        outcome = str(act() or "ok")
    except pika.exceptions.NackError:
        outcome = "nacked"
    except pika.exceptions.AMQPError as error:
        outcome = f"{type(error).__name__}: {error}"[:120]
    return time.monotonic() - began, outcome
