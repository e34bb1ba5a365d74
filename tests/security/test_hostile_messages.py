"""Many messages from a hostile client and a hostile worker, through a real daemon: it serves on, as small."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Callable
from functools import partial

import psutil
from hypothesis import given, settings
from hypothesis import strategies as st

from osrdyne_amqp import Channel, Connection, Message, Properties
from osrdyne_amqp.errors import BrokerError, Unencodable
from osrdyne_client import Client
from testbed.pool import DaemonProcess, Pool
from testbed.suite import examples
from testbed.waiting import until
from testbed.workers import LIBRARY
from tests.security.arbitrary import FUZZ, MESSAGES

#: Valid keys are few, because each costs a worker; those that no worker can be given are any.
KEYS = st.sampled_from(["42", "43", "x/y", "~", "xchg", "é", ""]) | st.binary(max_size=30).map(
    lambda data: b"\xff" + data
)
#: Megabytes by which the daemon may grow from the first fifth of the messages to the last.
GROWTH = 30


def generated(count: int) -> list[tuple[str | bytes, Message]]:
    """Routing keys and messages, the same at every run."""
    made: list[tuple[str | bytes, Message]] = []

    @settings(FUZZ, max_examples=count // 20)
    @given(st.lists(st.tuples(KEYS, MESSAGES), min_size=20, max_size=20))
    def collect(batch: list[tuple[str | bytes, Message]]) -> None:
        made.extend(batch)

    collect()
    return made[:count]


def acceptable(properties: Properties) -> Properties:
    """The properties as a broker takes them: it checks these two itself, and would close the channel."""
    result = copy.copy(properties)
    result.user_id = None
    if not isinstance(result.expiration, str) or not result.expiration.isascii() or not result.expiration[:9].isdigit():
        result.expiration = None
    else:
        result.expiration = result.expiration[:9]
    return result


class Attacker:
    """Publishes with confirms, and connects again when the broker has had enough of it."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self.sent = 0

    async def publish(self, exchange: str, routing_key: str | bytes, message: Message) -> None:
        if self._channel is None or not self._channel.is_open:
            await self.close()
            self._connection = await Connection.open(self._uri, name="attacker")
            self._channel = await self._connection.channel(confirm=True)
        # What cannot be sent, and what the broker refuses (some of it by closing the connection), costs only us.
        with contextlib.suppress(Unencodable, BrokerError):
            await self._channel.publish(exchange, routing_key, message.body, acceptable(message.properties))
            self.sent += 1

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


async def attack(pool: Pool, messages: list[tuple[str | bytes, Message]]) -> int:
    """Send each message once as a client, and once from a worker in turn to where it does most harm; how many."""
    names = pool.names
    ways = [
        (names.activity_exchange, None),
        ("", names.dead_letter_queue),
        ("", names.orphan_queue),
        ("", names.activity_queue),
        ("", names.request_queue("42")),
    ]
    client, worker = Attacker(pool.client_uri), Attacker(pool.uri(pool.users.worker))
    for number, (key, message) in enumerate(messages):
        exchange, queue = ways[number % len(ways)]
        await client.publish(names.request_exchange, key, message)
        await worker.publish(exchange, queue or key, message)
    await client.close()
    await worker.close()
    return client.sent + worker.sent


def drained(pool: Pool) -> bool:
    names = pool.names
    queues = (names.orphan_queue, names.dead_letter_queue, names.activity_queue, names.request_queue("42"))
    return not any(pool.depth(queue) for queue in queues)


def counted(daemon: DaemonProcess, metric: str) -> float:
    """The sum of a counter over its labels."""
    lines = [line for line in daemon.get("/metrics").splitlines() if line.startswith(f"osrdyne_{metric}_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_hostile_messages_stop_nothing_and_the_daemon_stays_as_small(
    make_pool: Callable[..., Pool], make_daemon: Callable[..., DaemonProcess]
) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=LIBRARY)
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    count = examples(2000)
    messages = generated(count)
    sizes = []
    for batch in (messages[: count // 5], messages[count // 5 :]):
        sent = asyncio.run(attack(pool, batch))
        assert sent > len(batch)
        until(partial(drained, pool), within=90, what="queues without messages")
        sizes.append(process.memory_info().rss / 1e6)
    with Client(pool.client_uri, "core") as client:
        for key in ("42", "a new key"):
            assert client.call(key, b"x", timeout=60).body == f"{key}|x".encode()
    # Then all of it went through the daemon
    until(lambda: counted(daemon, "dead_letters") > count // 8, what="dead letters")
    until(lambda: counted(daemon, "activity_events") > count // 4, what="activity")
    # And did nothing to it
    assert daemon.status()["state"] == "leading"
    assert daemon.sessions_ended() == 0
    failures = [line for line in daemon.lines() if "exception" in line]
    assert failures == []
    assert sizes[-1] - sizes[0] < GROWTH, sizes
