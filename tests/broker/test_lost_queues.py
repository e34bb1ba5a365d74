"""A queue that the broker lost delays no other key, and the daemon creates it again. On 4.3 it just comes back empty.

The broker loses it by `lose_as_by_a_kill`. What a SIGKILL loses is in the faults run.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable

import pytest

from osrdyne_amqp import Connection, Properties
from osrdyne_client import AsyncClient, Reply, errors
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_worker import serve
from testbed.foreign_client import ForeignClient
from testbed.lost_queue import lose, lose_as_by_a_kill
from testbed.peer import administrator, consuming, make_request_queue
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import PATIENCE_SECONDS, until
from testbed.workers import MINIMAL

pytestmark = pytest.mark.both_versions

OTHERS = [f"other-{number}" for number in range(5)]
CALLERS_OWN = f"reply-test-{0:032x}"


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool()


@pytest.fixture
def daemon(pool: Pool, make_daemon: Callable[..., DaemonProcess]) -> DaemonProcess:
    return make_daemon(pool, worker=MINIMAL)


def warm(pool: Pool, key: str) -> None:
    """Start a key's worker. The broker ends all connections when it loses a queue: this one is closed before."""
    client = ForeignClient(pool.client_uri, pool.names.request_exchange)
    client.wait(client.send(key, b"warm"))
    client.close()


async def answered(client: AsyncClient, key: str) -> Reply:
    """Call a key until a worker answers, as a caller does that may repeat its request."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            # What waited for the lost queue is refused when that is deleted. After ten seconds the client no longer
            # waits for the broker, and the call ends with its own timeout.
            with contextlib.suppress(errors.Nacked, errors.CallTimeout, errors.RemoteError):
                return await client.call(key, b"again", timeout=20.0)


@pytest.mark.full
async def test_a_lost_queue_delays_no_other_key_of_the_same_client_and_answers_again_by_itself(
    pool: Pool, daemon: DaemonProcess
) -> None:
    async with AsyncClient(pool.client_uri, pool.names.pool, timeout=PATIENCE_SECONDS) as client:
        for key in ("lost", *OTHERS):
            await client.call(key, b"warm")
        lost = pool.broker.version == "4.0"
        # Given a queue that stays lost while the other keys are called: the daemon would make it again
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.to_thread(lose_as_by_a_kill, pool.broker, pool.vhost, pool.names.request_queue("lost"))
            waiting = asyncio.ensure_future(answered(client, "lost"))
            for turn in range(20):
                replies = await asyncio.gather(*(client.call(key, b"%d" % turn) for key in OTHERS))
                assert [reply.body for reply in replies] == [b"%s|%d" % (key.encode(), turn) for key in OTHERS]
            assert not (lost and waiting.done())
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert (await waiting).body == b"lost|again"
    assert ("osrdyne_queues_lost_by_broker_total 1.0" in daemon.get("/metrics")) is lost
    shown = daemon.key("lost")
    assert shown is not None
    assert (shown["queue_remade_ago"] is not None) is lost
    reported = [
        line for line in daemon.lines() if line["message"] == "the broker had lost this queue; it is created again"
    ]
    assert [event["key"] for event in reported] == ["lost"] * lost


@pytest.mark.full
async def test_an_answer_to_a_lost_queue_delays_no_other_answer_of_a_worker(pool: Pool) -> None:
    await make_request_queue(pool, "42")
    queue, exchange = pool.names.request_queue("42"), pool.names.activity_exchange
    given = WorkerEnvironment("w", "42", pool.names.pool, queue, exchange, pool.uri(pool.users.worker))
    connection = await Connection.open(administrator(pool), name="test: a caller whose queue is lost")
    channel = await connection.channel(confirm=True)
    await channel.declare_queue(CALLERS_OWN, arguments={"x-queue-type": "quorum"})
    await asyncio.to_thread(lose, pool.broker, pool.vhost, CALLERS_OWN)
    stop = asyncio.Event()
    worker = asyncio.create_task(serve(lambda request: request.body, given, stop, prefetch=8, threads=0, grace=1.0))
    # Given a request whose answer the broker does not take on 4.0, ahead of others
    lost = Properties(reply_to=CALLERS_OWN, correlation_id="lost")
    await channel.publish(pool.names.request_exchange, "42", b"first", lost)
    async with AsyncClient(pool.client_uri, pool.names.pool, timeout=PATIENCE_SECONDS) as client:
        for number in range(20):
            assert (await client.call("42", b"%d" % number)).body == b"%d" % number
    stop.set()
    await worker
    # Then the others were answered before its turn was over
    ended = []
    async with consuming(pool, pool.names.activity_queue) as listener:
        while "stopping" not in ended:
            ended += [
                reported["x-request-id"] if reported["x-event"] == "finished" else reported["x-event"]
                for reported in await listener.take_events()
            ]
    assert ("lost" not in ended) or pool.broker.version == "4.3"
    await connection.close()


@pytest.mark.full
def test_the_daemon_answers_and_starts_other_keys_while_a_forward_waits_for_a_lost_queue(
    pool: Pool, daemon: DaemonProcess, make_client: Callable[[Pool], ForeignClient]
) -> None:
    warm(pool, "lost")
    # Given orphans of a key whose queue is lost, when a daemon begins
    daemon.stop()
    queue = pool.names.request_queue("lost")
    pool.broker.management.delete("bindings", pool.vhost, "e", pool.names.request_exchange, "q", queue, "lost")
    lose_as_by_a_kill(pool.broker, pool.vhost, queue)
    client = make_client(pool)
    waiting = [client.send("lost", b"%d" % number) for number in range(3)]
    daemon.start()
    # Then cold keys get their workers, and error replies their callers
    answers = client.wait(*(client.send(key, b"hello") for key in OTHERS), client.send("a\0b", b""))
    assert [answer.status for answer in answers] == ["ok"] * len(OTHERS) + ["invalid_key"]
    # And the key itself answers, once for each request
    assert [answer.status for answer in client.wait(*waiting)] == ["ok"] * 3


@pytest.mark.full
def test_an_idle_key_whose_queue_is_lost_leaves_as_any_other(
    make_pool: Callable[..., Pool],
    make_daemon: Callable[..., DaemonProcess],
    make_client: Callable[[Pool], ForeignClient],
) -> None:
    pool = make_pool(unbind_delay=1.0, stop_delay=15.0)  # so that the queue is lost before it is deleted
    daemon = make_daemon(pool, worker=MINIMAL)
    warm(pool, "lost")
    lose_as_by_a_kill(pool.broker, pool.vhost, pool.names.request_queue("lost"))
    until(lambda: pool.names.request_queue("lost") not in pool.queues(), what="the queue's end")
    until(lambda: daemon.key("lost") is None, what="the key's end")
    client = make_client(pool)
    assert client.wait(client.send("lost", b"cold"))[0].status == "ok"
