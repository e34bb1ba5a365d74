"""Whatever becomes of events, workers keep their requests, the daemon keeps its session, and keys in use stay bound."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from osrdyne_amqp import Connection, Properties
from osrdyne_client import AsyncClient
from osrdyne_protocol import events
from osrdyne_worker import Request
from testbed import lost_events
from testbed.foreign_client import ForeignClient
from testbed.lost_events import REFUSALS
from testbed.peer import consuming
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE_SECONDS, until
from testbed.workers import LIBRARY
from tests.broker.test_worker import working

#: One of the refusals is enough for every change; `make test-all` has all.
EACH_REFUSAL = [
    pytest.param(name, marks=() if name == "the exchange is deleted" else pytest.mark.full) for name in REFUSALS
]
#: Seconds for which a key stays bound after its last event; much longer than the daemon's counts are late.
UNBIND_DELAY_SECONDS = 6.0


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool()


@asynccontextmanager
async def publisher(pool: Pool) -> AsyncIterator[tuple[Connection, Callable[[], None]]]:
    """A program with one connection, and what publishes an event there."""
    connection = await Connection.open(pool.uri(pool.users.worker), name="test: publisher of an event")
    channel = await connection.channel()
    headers = Properties(headers={"x-event": "alive"})
    try:
        yield connection, lambda: channel.send(pool.names.activity_exchange, "42", b"", headers)
    finally:
        await connection.close()


@pytest.mark.both_versions
async def test_a_stream_that_cannot_be_reached_ends_the_connection_of_its_publisher(pool: Pool) -> None:
    with lost_events.stream_away(pool):
        async with publisher(pool) as (connection, publish):
            publish()
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert "506" in str(await connection.wait_closed())


@pytest.mark.parametrize("refusal", EACH_REFUSAL)
async def test_a_worker_keeps_its_requests_and_sends_its_events_once_it_can(pool: Pool, refusal: str) -> None:
    redelivered: list[bytes] = []

    def handle(request: Request) -> bytes:
        if request.redelivered:
            redelivered.append(request.body)
        return request.body

    fault, _ = REFUSALS[refusal]
    async with AsyncClient(pool.client_uri, pool.settings.name, timeout=60) as client:
        with fault(pool):
            worker = working(pool, handle)
            await worker.__aenter__()
            # When a worker has something to report at every request
            for number in range(30):
                assert (await client.call("42", b"%d" % number)).body == b"%d" % number
        # Then no request is taken from it, and what it does later is reported again
        later = await client.call("42", b"later")
        received = await events_until(pool, later.correlation_id)
        await worker.__aexit__(None, None, None)
    assert redelivered == []
    # And it says that there was an interruption
    assert events.INTERRUPTED in {event["x-event"] for event in received}


async def events_until(pool: Pool, request_id: str) -> list[Any]:
    """Return the events up to the first of a request."""
    received: list[Any] = []
    async with consuming(pool, pool.names.activity_queue) as listener:
        while request_id not in {event.get("x-request-id") for event in received}:
            received += await listener.take_events()
    return received


@pytest.mark.parametrize("refusal", EACH_REFUSAL)
def test_the_daemon_keeps_its_session_when_its_events_are_refused(
    pool: Pool,
    refusal: str,
    make_daemon: Callable[..., DaemonProcess],
    make_client: Callable[[Pool], ForeignClient],
) -> None:
    fault, word = REFUSALS[refusal]
    with fault(pool):
        # Given a daemon that reports every step of a key's start
        daemon = make_daemon(pool, worker=LIBRARY)
        client = make_client(pool)
        cold = itertools.count()

        def is_reported() -> bool:
            # When a key is started
            [answer] = client.wait(client.send(f"cold-{next(cold)}"))
            # Then it is answered
            assert answer.status == "ok"
            return any(
                word in str(line) and "the exchange of activity events cannot be used" in line["message"]
                for line in daemon.lines()
            )

        # And once that happens again and again, the daemon says that its events cannot be sent, and goes on
        until(is_reported, what="a log line about events")
        assert daemon.sessions_ended() == 0


@pytest.mark.parametrize(
    "fault",
    [
        lost_events.queue_deleted,
        pytest.param(lost_events.exchange_deleted, marks=pytest.mark.full),
        pytest.param(lost_events.rights_revoked, marks=pytest.mark.full),
    ],
)
def test_a_key_in_use_stays_bound_although_none_of_its_events_arrive(
    make_pool: Callable[..., Pool],
    fault: Callable[[Pool], Any],
    make_daemon: Callable[..., DaemonProcess],
    make_client: Callable[[Pool], ForeignClient],
) -> None:
    pool = make_pool(unbind_delay=UNBIND_DELAY_SECONDS, stop_delay=600.0)
    client = make_client(pool)
    with fault(pool):
        # Given two cold keys, of which one has requests all the time
        daemon = make_daemon(pool, worker=LIBRARY)
        client.wait(client.send("42"), client.send("idle"))
        idle = pool.names.request_queue("idle")

        def idle_is_unbound() -> bool:
            [answer] = client.wait(client.send("42"))
            assert answer.status == "ok"
            bindings = pool.broker.management.get("bindings", pool.vhost)
            return (pool.names.request_exchange, idle) not in {
                (binding["source"], binding["destination"]) for binding in bindings
            }

        # When the other one has been unbound, and the same time has passed once more
        until(idle_is_unbound, every=0.2)
        ends = time.monotonic() + UNBIND_DELAY_SECONDS
        until(lambda: idle_is_unbound() and time.monotonic() > ends, every=0.2)
        # Then only the first request of each key was an orphan
        assert 'osrdyne_orphans_total{outcome="forwarded"} 2.0' in daemon.get("/metrics")
        assert daemon.sessions_ended() == 0
