"""While the pool's stream cannot be reached, the broker closes the whole connection of whoever publishes an event."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator

import pytest

from osrdyne_amqp import Connection, Properties
from osrdyne_client import AsyncClient
from osrdyne_worker import Request
from testbed.foreign_client import ForeignClient
from testbed.peer import consuming
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE, until
from testbed.workers import LIBRARY
from tests.broker.test_worker import working

#: Gives the stream a name that the broker's coordinator of streams does not know, as it knows none for some seconds
#: after a broker was killed; and the right one again.
RENAME = """
rabbit_amqqueue:update(rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>), fun(Queue) ->
  State = amqqueue:get_type_state(Queue),
  Name = maps:get(name, State),
  amqqueue:set_type_state(Queue, State#{{name => {name}}})
end).
"""


class Stream:
    """A pool's stream, which a test can lose; one that no longer exists under its name cannot be deleted either."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lost = False

    def lose(self) -> None:
        self._rename('"lost-" ++ Name')
        self._lost = True

    def find(self) -> None:
        if self._lost:
            self._rename('lists:nthtail(length("lost-"), Name)')
            self._lost = False

    def _rename(self, name: str) -> None:
        queue = self._pool.names.events_stream
        self._pool.broker.rabbitmqctl("eval", RENAME.format(vhost=self._pool.vhost, queue=queue, name=name))


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool()


@pytest.fixture
def stream(pool: Pool) -> Iterator[Stream]:
    """Lost until the test finds it. Who has published into it before would not notice: so nobody has."""
    stream = Stream(pool)
    stream.lose()
    yield stream
    stream.find()


async def why_a_publisher_ends(pool: Pool) -> str:
    """Publishes an event as anybody does, and returns what the broker says to it."""
    connection = await Connection.open(pool.uri(pool.users.worker), name="test: publisher of an event")
    try:
        channel = await connection.channel()
        channel.send(pool.names.activity_exchange, "42", b"", Properties(headers={"x-event": "alive"}))
        async with asyncio.timeout(PATIENCE):
            return str(await connection.wait_closed())
    finally:
        await connection.close()


async def test_a_worker_serves_over_one_connection_and_sends_its_events_once_it_can(pool: Pool, stream: Stream) -> None:
    assert "506" in await why_a_publisher_ends(pool)
    redelivered: list[bytes] = []

    def handle(request: Request) -> bytes:
        if request.redelivered:
            redelivered.append(request.body)
        return request.body

    async with AsyncClient(pool.client_uri, pool.settings.name, timeout=60) as client, working(pool, handle):
        # When a worker has something to tell at every request
        for number in range(30):
            assert (await client.call("42", b"%d" % number)).body == b"%d" % number
        # Then no request is taken from it
        assert redelivered == []
        # And what it does later is told again
        await asyncio.to_thread(stream.find)
        later = await client.call("42", b"later")
        async with consuming(pool, pool.names.activity_queue) as listener:
            while (await listener.take()).properties.headers.get("x-request-id") != later.correlation_id:
                pass


def test_the_daemon_keeps_its_session(
    pool: Pool,
    stream: Stream,
    make_daemon: Callable[..., DaemonProcess],
    make_client: Callable[[Pool], ForeignClient],
) -> None:
    # Given a daemon that tells of every step of a key's start
    daemon = make_daemon(pool, worker=LIBRARY)
    client = make_client(pool)
    cold = itertools.count()

    def is_told() -> bool:
        # When a key is started
        [answer] = client.wait(client.send(f"cold-{next(cold)}"))
        # Then it is answered
        assert answer.status == "ok"
        return any("506" in str(line) and "events" in line["message"] for line in daemon.lines())

    # And once that happens again and again, the daemon says that its events are lost, and has begun nothing anew
    until(is_told, what="a word of lost events")
    assert "osrdyne_sessions_ended_total 0.0" in daemon.get("/metrics")
