"""Requests that crash or hang their workers, on brokers that notice a held request within a second or two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from osrdyne_amqp import Connection, Message
from testbed.broker import Broker
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE_SECONDS, until
from testbed.workers import LIBRARY, SCRIPTED
from tests.conftest import Vhost

# Its brokers are of its own: one group, so that each is started once.
pytestmark = [pytest.mark.both_versions, pytest.mark.full, pytest.mark.xdist_group("poison")]

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]
MakeClient = Callable[[Pool], ForeignClient]

#: Failed deliveries that a request survives, and seconds that a worker may hold one.
LIMIT, TIMEOUT = 2, 2.0


@pytest.fixture(scope="module")
def broker(broker_version: str) -> Iterator[Broker]:
    """Brokers of this module: RabbitMQ 4.0 looks for deliveries held too long once a minute unless set otherwise."""
    with Broker(broker_version) as own:
        if broker_version == "4.0":
            own.rabbitmqctl("eval", "application:set_env(rabbit, channel_tick_interval, 300).")
        yield own


def poison(pool: Pool) -> list[Any]:
    """Return the messages of the poison inventory, which stay."""
    connection = pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost)))
    channel = connection.channel()
    found: list[Any] = []
    while True:
        method, properties, _ = channel.basic_get(pool.names.poison_queue)
        if method is None:
            connection.close()
            return found
        found.append(properties)


def started(daemon: DaemonProcess) -> list[str]:
    return [line["key"] for line in daemon.lines() if line["message"] == "group started"]


@pytest.mark.parametrize(
    ("runner", "body"),
    [(runner, "hang") for runner in ("thread", "threads", "crowded", "process", "coroutine", "untold")]
    + [("thread", "crash"), ("foreign", "crash")],
)
def test_a_request_that_hangs_or_crashes_its_workers_ends_in_poison_and_others_are_answered(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient, runner: str, body: str
) -> None:
    pool = make_pool(delivery_limit=LIMIT, consumer_timeout=TIMEOUT)
    threads, prefetch = {"threads": ("2", "2"), "crowded": ("1", "4")}.get(runner, ("1", "1"))
    variables = {"RUNNER": runner, "THREADS": threads, "PREFETCH": prefetch}
    # A worker that does not know the timeout waits for the broker. RabbitMQ 4.3.6 does not always notice; the daemon's
    # own rule for hung groups then acts in its place.
    workers = {"untold": ["/usr/bin/env", "-u", "WORKER_CONSUMER_TIMEOUT", *LIBRARY], "foreign": SCRIPTED}
    worker = workers.get(runner, LIBRARY)
    daemon = make_daemon(pool, worker=worker, environment=variables, limits={"start_grace": 3.0})
    client = make_client(pool)
    # Given requests before, beside and after one that fails every worker
    assert client.ask("42", b"before").status == "ok"
    bad = client.send("42", body.encode())
    beside = [client.send("42", b"beside") for _ in range(3)]
    # Then its caller gets an error in the end, and all others get answers
    assert client.wait(bad, timeout=90)[0].status == "delivery_limit"
    assert {answer.status for answer in client.wait(*beside)} == {"ok"}
    assert client.ask("42", b"after").status == "ok"
    # And it is kept, once, with its reason, and with the workers that had it; its caller gets the error before
    until(lambda: pool.depth(pool.names.poison_queue), what="the copy of its request")
    (entry,) = poison(pool)
    assert entry.correlation_id == bad
    assert entry.headers["x-osrdyne-poison-reason"] == "delivery_limit"
    assert entry.headers["x-osrdyne-poison-key"] == "42"
    assert entry.headers["x-osrdyne-poison-deliveries"] >= LIMIT + 1
    assert entry.headers["x-death"][0]["reason"] == "delivery_limit"
    # And no more workers had it than the limit allows, or one more on 4.3: that does not count a request that it takes
    # back itself. It does so where a worker does not know the timeout, or is too slow to give the request back before.
    attempts = entry.headers.get("x-osrdyne-poison-attempts", [])
    runs = len(attempts) if body == "hang" else LIMIT + 1
    if body == "hang":
        uncounted = {1} if runner == "untold" else {0, 1}
        assert runs - (LIMIT + 1) in (uncounted if pool.broker.version == "4.3" else {0}), attempts
        assert [attempt["x-event-time"] for attempt in attempts] == sorted(
            attempt["x-event-time"] for attempt in attempts
        )
    had_it = {attempt["x-worker-id"] for attempt in attempts}
    if runner == "coroutine":
        assert (len(had_it), len(started(daemon))) == (1, 1), daemon.log()
    else:
        # What cannot be ended in its process ends with it
        assert (len(had_it), len(started(daemon))) == (len(attempts), runs + 1), daemon.log()


def test_a_foreign_worker_that_hangs_is_restarted_and_its_client_gets_expired(
    make_pool: MakePool, make_daemon: MakeDaemon, make_client: MakeClient
) -> None:
    pool = make_pool(delivery_limit=20, consumer_timeout=TIMEOUT)
    daemon = make_daemon(pool, worker=SCRIPTED, limits={"start_grace": 2.0})
    client = make_client(pool)
    assert client.ask("42", b"before").status == "ok"
    hung = client.send("42", b"hang", expiration="8000")
    beside = client.send("42", b"beside")
    answer = client.wait(hung)[0]
    assert (answer.status, answer.headers["x-expired-at"]) == ("expired", "queue")
    assert client.wait(beside)[0].status == "ok"
    assert len(started(daemon)) > 1
    until(lambda: "stuck: " in daemon.log(), what="the reason in the log")


async def test_what_is_settled_too_late_brings_a_cancelled_consumer_no_deliveries(vhost: Vhost) -> None:
    # Given a consumer that held a message for too long, and settles it then
    connection = await Connection.open(vhost.amqp_uri(), name="late")
    channel, publisher = await connection.channel(prefetch=1), await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments={"x-queue-type": "quorum", "x-consumer-timeout": 1000})
    got: asyncio.Queue[Message] = asyncio.Queue()
    cancelled = asyncio.Event()
    await channel.consume("q", got.put_nowait, on_cancel=cancelled.set)
    await publisher.publish("", "q", b"late")
    late = await asyncio.wait_for(got.get(), PATIENCE_SECONDS)
    ends = [asyncio.ensure_future(wait) for wait in (cancelled.wait(), channel.wait_closed())]
    await asyncio.wait(ends, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    assert cancelled.is_set() or not channel.is_open
    if channel.is_open:
        channel.ack(late.delivery_tag)
    await publisher.publish("", "q", b"other")
    # Then another consumer gets all there is, and no consumer has taken and given it back meanwhile
    other = await Connection.open(vhost.amqp_uri(), name="other")
    taken: asyncio.Queue[Message] = asyncio.Queue()
    receiver = await other.channel(prefetch=10)
    await receiver.consume("q", taken.put_nowait, on_cancel=lambda: None)
    counts = {}
    for _ in range(2):
        message = await asyncio.wait_for(taken.get(), PATIENCE_SECONDS)
        counts[message.body] = (message.properties.headers or {}).get("x-acquired-count", 0)
        receiver.ack(message.delivery_tag)
    assert counts == {b"late": 1 if vhost.broker.version == "4.3" else 0, b"other": 0}
    for end in ends:
        end.cancel()
    await connection.close()
    await other.close()
