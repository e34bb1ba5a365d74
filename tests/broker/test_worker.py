"""The worker library on a real broker, with the permissions that a worker has."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from osrdyne_amqp import Connection, Properties
from osrdyne_client import AsyncClient, errors
from osrdyne_protocol import headers
from osrdyne_worker import Handler, Reject, Request, Requeue, WorkerEnvironment, WorkerError, serve
from testbed.broker import Broker
from testbed.peer import administrator, consuming, make_request_queue
from testbed.pool import Pool
from testbed.waiting import PATIENCE_SECONDS, until_in_thread

#: Reply queues: one that refuses more, one of the test's own, and one that is not there.
FULL, MINE, GONE = (f"reply-test-{number:032x}" for number in range(3))


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool(delivery_limit=2)


@pytest.fixture
async def client(pool: Pool) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(pool.client_uri, pool.settings.name, timeout=30) as client:
        yield client


def environment_of(pool: Pool, key: str, **changes: str) -> WorkerEnvironment:
    values: dict[str, Any] = {
        "id": "w1",
        "key": key,
        "pool": pool.settings.name,
        "requests_queue": pool.names.request_queue(key),
        "activity_exchange": pool.names.activity_exchange,
        "amqp_uri": pool.uri(pool.users.worker),
        **changes,
    }
    return WorkerEnvironment(**values)


@asynccontextmanager
async def working(pool: Pool, handler: Handler, key: str = "42", **options: Any) -> AsyncIterator[asyncio.Event]:
    """A worker in this process; the event stops it."""
    await make_request_queue(pool, key)
    stop = asyncio.Event()
    changes = options.pop("changes", {})
    worker = asyncio.create_task(serve(handler, environment_of(pool, key, **changes), stop, **options))
    try:
        yield stop
    finally:
        stop.set()
        await worker


async def activity(pool: Pool, last: str) -> list[dict[str, Any]]:
    """The activity events up to the message with the first of type `last`."""
    events: list[dict[str, Any]] = []
    async with consuming(pool, pool.names.activity_queue) as listener:
        while last not in [event["x-event"] for event in events]:
            events += await listener.take_events()
    return events


def echo(request: Request) -> bytes:
    return request.body


# --- answers --------------------------------------------------------------------------------------------------


async def test_a_worker_answers_with_the_status_and_what_the_client_sent_along(pool: Pool, client: AsyncClient) -> None:
    seen: list[Request] = []

    def handle(request: Request) -> bytes:
        seen.append(request)
        return request.body.upper()

    async with working(pool, handle):
        reply = await client.call("42", b"question", headers={"x-rpc-path": "/a", "other": 1})
    assert (reply.status, reply.body) == ("ok", b"QUESTION")
    assert reply.headers == {"x-status": "ok", "x-rpc-path": "/a"}
    (request,) = seen
    assert (request.key, request.body, request.correlation_id) == ("42", b"question", reply.correlation_id)
    assert request.headers["other"] == 1
    assert not request.redelivered
    assert request.deadline is not None
    assert abs(request.deadline - time.time() - 30) < 5


async def test_every_verdict_of_a_handler_reaches_the_client(pool: Pool, client: AsyncClient) -> None:
    def handle(request: Request) -> bytes:
        if request.body == b"reject":
            raise Reject("no such flight")
        if request.body == b"error":
            raise WorkerError(b"details", "sorry")
        return 1 // len(request.body) * b""

    async with working(pool, handle):
        with pytest.raises(errors.Rejected, match="no such flight"):
            await client.call("42", b"reject")
        with pytest.raises(errors.WorkerFailed, match="sorry") as failed:
            await client.call("42", b"error")
        assert failed.value.body == b"details"
        with pytest.raises(errors.WorkerFailed) as crashed:
            await client.call("42", b"")
        assert crashed.value.body.startswith(b"ZeroDivisionError")
        # And the worker goes on
        assert (await client.call("42", b"fine")).body == b""
        await until_in_thread(lambda: pool.depth(pool.names.request_queue("42")) == 0)


async def test_an_async_handler_serves_as_many_at_once_as_the_prefetch_allows(pool: Pool, client: AsyncClient) -> None:
    together = asyncio.Barrier(4)

    async def handle(request: Request) -> bytes:
        await together.wait()
        return request.body

    async with working(pool, handle, prefetch=4):
        replies = await asyncio.gather(*(client.call("42", b"%d" % number) for number in range(4)))
    assert [reply.body for reply in replies] == [b"0", b"1", b"2", b"3"]


async def test_threads_serve_several_blocking_requests_at_once(pool: Pool, client: AsyncClient) -> None:
    together = threading.Barrier(4)

    def handle(request: Request) -> bytes:
        together.wait(20)
        return threading.current_thread().name.encode()

    async with working(pool, handle, threads=4):
        replies = await asyncio.gather(*(client.call("42", b"") for _ in range(4)))
    assert len({reply.body for reply in replies}) == 4


async def test_a_handler_without_threads_runs_on_the_loop(pool: Pool, client: AsyncClient) -> None:
    def handle(_: Request) -> bytes:
        return threading.current_thread().name.encode()

    async with working(pool, handle, threads=0):
        assert (await client.call("42", b"")).body == threading.current_thread().name.encode()


def process_id(_: Request) -> bytes:
    return b"%d" % os.getpid()


def end_process(_: Request) -> bytes:
    os._exit(1)


async def test_a_process_pool_of_the_users_serves_requests_and_its_breaking_is_an_error_reply(
    pool: Pool, client: AsyncClient
) -> None:
    import multiprocessing

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        async with working(pool, process_id, executor=executor):
            assert int((await client.call("42", b"")).body) != os.getpid()
        async with working(pool, end_process, executor=executor):
            for _ in range(2):
                with pytest.raises(errors.WorkerFailed, match="BrokenProcessPool"):
                    await client.call("42", b"")


async def test_an_answer_that_is_too_large_becomes_an_error_reply(pool: Pool, client: AsyncClient) -> None:
    async with working(pool, lambda _: bytes(17 * 1024 * 1024)):
        with pytest.raises(errors.WorkerFailed, match=r"17825792 bytes.*at most"):
            await client.call("42", b"")


async def test_an_answer_that_the_broker_refuses_becomes_an_error_reply_and_harms_no_other_request(
    pool: Pool, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osrdyne_worker.loop.REPLY_PAUSE_SECONDS", 0.05)

    def handle(request: Request) -> bytes:
        return bytes(int(request.body))

    async with working(pool, handle, max_body=2**30, prefetch=2):
        large = asyncio.create_task(client.call("42", b"%d" % (17 * 1024 * 1024)))
        small = [asyncio.create_task(client.call("42", b"3")) for _ in range(20)]
        with pytest.raises(errors.WorkerFailed, match="larger than configured max size"):
            await large
        assert [reply.body for reply in await asyncio.gather(*small)] == [b"\0\0\0"] * 20


# --- settling -------------------------------------------------------------------------------------------------


async def test_a_request_is_acknowledged_only_after_its_reply_was_accepted(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osrdyne_worker.loop.REPLY_PAUSE_SECONDS", 0.05)
    connection = await Connection.open(administrator(pool), name="test")
    channel = await connection.channel(confirm=True)
    # Given a caller whose reply queue is full
    full = {"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish"}
    await channel.declare_queue(FULL, arguments=full)
    await channel.publish("", FULL, b"in the way")
    handled: list[bytes] = []

    def handle(request: Request) -> bytes:
        handled.append(request.body)
        return b"answer"

    async with working(pool, handle):
        # When the worker has an answer that the broker does not accept
        await channel.publish(pool.names.request_exchange, "42", b"q", Properties(reply_to=FULL, correlation_id="c"))
        await until_in_thread(lambda: handled)
        # Then the request stays the worker's until there is room for the answer
        await asyncio.sleep(0.1)
        assert await until_in_thread(lambda: pool.depth(pool.names.request_queue("42")) == 1)
        async with consuming(pool, FULL) as reader:
            reader.ack(await reader.take())
            answer = await reader.take()
        assert (answer.body, answer.properties.correlation_id) == (b"answer", "c")
        await until_in_thread(lambda: pool.depth(pool.names.request_queue("42")) == 0)
    assert handled == [b"q"]
    await connection.close()


@pytest.mark.both_versions
async def test_a_reply_that_is_refused_for_long_holds_up_no_request_that_failed_before(
    pool: Pool, client: AsyncClient
) -> None:
    handled: list[bytes] = []

    def handle(request: Request) -> bytes:
        handled.append(request.body)
        if request.body == b"fails once" and not request.redelivered:
            raise Requeue
        return b"answer"

    # Given a caller whose reply queue stays full
    connection = await Connection.open(administrator(pool), name="test")
    channel = await connection.channel(confirm=True)
    full = {"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish"}
    await channel.declare_queue(FULL, arguments=full)
    await channel.publish("", FULL, b"in the way")
    async with working(pool, handle, prefetch=4):
        await channel.publish(pool.names.request_exchange, "42", b"q", Properties(reply_to=FULL, correlation_id="c"))
        await until_in_thread(lambda: handled)
        # When another request comes again, then it is answered within the caller's time
        assert (await client.call("42", b"fails once")).body == b"answer"
        assert (await client.call("42", b"after")).body == b"answer"
        async with consuming(pool, FULL) as reader:
            reader.ack(await reader.take())
            assert (await reader.take()).body == b"answer"
    await connection.close()


@pytest.mark.both_versions
async def test_a_requeued_request_is_tried_again_until_the_delivery_limit_dead_letters_it(
    pool: Pool, client: AsyncClient
) -> None:
    tries: list[bool] = []

    def handle(request: Request) -> bytes:
        tries.append(request.redelivered)
        raise Requeue

    async with working(pool, handle):
        call = asyncio.create_task(client.call("42", b"poison"))
        async with consuming(pool, pool.names.dead_letter_queue) as letters:
            letter = await letters.take()
        call.cancel()
    assert letter.body == b"poison"
    assert letter.properties.headers["x-first-death-reason"] == "delivery_limit"
    assert tries == [False, True, True]


async def test_a_request_without_reply_to_is_worked_on_and_acknowledged(pool: Pool, client: AsyncClient) -> None:
    seen: list[bytes] = []

    async with working(pool, lambda request: seen.append(request.body)):
        await client.cast("42", b"do it")
        await until_in_thread(lambda: seen == [b"do it"])
        await until_in_thread(lambda: pool.depth(pool.names.request_queue("42")) == 0)


async def test_requests_of_foreign_clients_with_odd_properties_are_answered(pool: Pool) -> None:
    connection = await Connection.open(administrator(pool), name="test")
    channel = await connection.channel(confirm=True)
    await channel.declare_queue(MINE, arguments={"x-queue-type": "classic"})
    odd: list[Properties] = [
        Properties(reply_to=MINE),
        Properties(reply_to=MINE, correlation_id=b"\xff\xfe"),
        Properties(reply_to=MINE, correlation_id="c", headers={"x-rpc-path": b"\xff"}),
        Properties(reply_to=MINE, correlation_id="d", headers={"x-rpc-path": "p" * 120_000}),
        Properties(reply_to=MINE, correlation_id="e", headers={"deep": {"a": [1, {"b": None}]}}),
    ]
    async with working(pool, echo), consuming(pool, MINE) as reader:
        for properties in odd:
            await channel.publish(pool.names.request_exchange, "42", b"q", properties)
            reply = await reader.take()
            assert reply.body == b"q"
            assert reply.properties.correlation_id == properties.correlation_id
            assert headers.text(reply.properties.headers["x-status"]) == "ok"
    await connection.close()


async def test_a_reply_whose_caller_is_gone_is_final(pool: Pool) -> None:
    connection = await Connection.open(administrator(pool), name="test")
    channel = await connection.channel(confirm=True)
    async with working(pool, echo):
        await channel.publish(pool.names.request_exchange, "42", b"q", Properties(reply_to=GONE))
        finished = (await activity(pool, "finished"))[-1]
        assert finished["x-outcome"] == "ok"
        await until_in_thread(lambda: pool.depth(pool.names.request_queue("42")) == 0)
    await connection.close()


async def test_a_reply_to_that_is_not_the_address_of_a_reply_queue_is_refused_and_dead_lettered(pool: Pool) -> None:
    connection = await Connection.open(administrator(pool), name="test")
    channel = await connection.channel(confirm=True)
    seen: list[bytes] = []
    async with (
        working(pool, lambda request: seen.append(request.body)),
        consuming(pool, pool.names.dead_letter_queue) as letters,
    ):
        for queue in (pool.names.request_queue("43"), "other-orphan", "amq.rabbitmq.reply-to.g1h2AA.x"):
            await channel.publish(pool.names.request_exchange, "42", b"evil", Properties(reply_to=queue))
            letter = await letters.take()
            letters.ack(letter)
            assert letter.properties.headers["x-first-death-reason"] == "rejected"
    assert not seen
    await connection.close()


async def test_a_request_past_its_deadline_is_answered_without_being_executed(pool: Pool, client: AsyncClient) -> None:
    seen: list[bytes] = []
    async with working(pool, lambda request: seen.append(request.body)):
        past = {"x-deadline": int((time.time() - 1) * 1000)}
        with pytest.raises(errors.Expired, match="deadline passed"):
            await client.call("42", b"late", headers=past, deadline=False)
        await client.call("42", b"in time")
    assert seen == [b"in time"]


# --- events ---------------------------------------------------------------------------------------------------


async def test_a_worker_reports_what_it_does(pool: Pool, client: AsyncClient) -> None:
    async with working(pool, echo):
        reply = await client.call("42", b"")
        with pytest.raises(errors.CallTimeout):
            await client.call("other", b"", timeout=0.01)
        events = await activity(pool, "finished")
    events += await activity(pool, "stopping")
    assert [event["x-event"] for event in events] == ["started", "request-received", "finished", "stopping"]
    assert {(event["key"], event["x-worker-id"]) for event in events} == {("42", "w1")}
    assert len({event["x-event-id"] for event in events}) == 4
    assert all(isinstance(event["x-event-time"], int) for event in events)
    received, finished = events[1], events[2]
    assert received["x-request-id"] == finished["x-request-id"] == reply.correlation_id
    assert finished["x-outcome"] == "ok"
    assert 0 <= finished["x-duration-ms"] < 5000


async def test_events_of_a_burst_arrive_in_order_each_with_the_time_at_which_it_happened(
    pool: Pool, client: AsyncClient
) -> None:
    moments: dict[str | None, tuple[int, int]] = {}
    async with working(pool, echo):
        for _ in range(20):
            began = int(time.time() * 1000)
            reply = await client.call("42", b"")
            moments[reply.correlation_id] = (began, int(time.time() * 1000))
        events_sent: list[dict[str, Any]] = []
        async with consuming(pool, pool.names.activity_queue) as listener:
            while len(events_sent) < 41:
                events_sent += await listener.take_events()
    assert events_sent.pop(0)["x-event"] == "started"
    assert [event["x-event"] for event in events_sent] == ["request-received", "finished"] * 20
    assert (
        [event["x-request-id"] for event in events_sent[::2]]
        == [event["x-request-id"] for event in events_sent[1::2]]
        == list(moments)
    )
    # A request was received before its client had the reply, although most events left only later
    for event in events_sent[::2]:
        began, ended = moments[event["x-request-id"]]
        assert began <= event["x-event-time"] <= ended


async def test_a_worker_that_stops_reports_all_that_it_finished_before_it_ends(pool: Pool, client: AsyncClient) -> None:
    release, begun = threading.Event(), threading.Semaphore(0)

    def handle(request: Request) -> bytes:
        begun.release()
        release.wait(20)
        return request.body

    async with working(pool, handle, threads=4) as stop:
        calls = [asyncio.create_task(client.call("42", b"%d" % number)) for number in range(4)]
        for _ in calls:
            await asyncio.to_thread(begun.acquire)
        stop.set()
        release.set()
        await asyncio.gather(*calls)
    events_sent: list[str] = []
    async with consuming(pool, pool.names.activity_queue) as listener:
        while events_sent.count("finished") < 4:
            events_sent += [event["x-event"] for event in await listener.take_events()]
    assert events_sent[:5] == ["started", *["request-received"] * 4]


async def test_a_handler_that_takes_long_can_be_asked_to_end_when_its_worker_stops(
    pool: Pool, client: AsyncClient
) -> None:
    asked, begun = threading.Event(), threading.Event()

    def handle(request: Request) -> bytes:
        begun.set()
        return b"asked" if asked.wait(20) else b"not asked"

    async with working(pool, handle, on_stop=asked.set) as stop:
        call = asyncio.create_task(client.call("42", b""))
        await asyncio.to_thread(begun.wait)
        assert not asked.is_set()
        stop.set()
        assert (await call).body == b"asked"


async def test_a_long_request_is_reported_alive_again_and_again(pool: Pool, client: AsyncClient) -> None:
    release = threading.Event()

    def handle(request: Request) -> bytes:
        release.wait(20)
        return request.body

    async with working(pool, handle, alive_interval=0.1):
        call = asyncio.create_task(client.call("42", b""))
        events: list[str] = []
        async with consuming(pool, pool.names.activity_queue) as listener:
            while events.count("alive") < 3:
                events += [event["x-event"] for event in await listener.take_events()]
        release.set()
        await call
    assert events == ["started", "request-received", "alive", "alive", "alive"]


async def test_a_missing_activity_exchange_costs_no_request(pool: Pool, client: AsyncClient) -> None:
    async with working(pool, echo, changes={"activity_exchange": "missing"}):
        for number in range(20):
            assert (await client.call("42", b"%d" % number)).body == b"%d" % number


# --- the queue and the broker ---------------------------------------------------------------------------------


async def test_a_worker_waits_for_its_queue_and_for_its_coming_back(pool: Pool, client: AsyncClient) -> None:
    stop = asyncio.Event()
    worker = asyncio.create_task(serve(echo, environment_of(pool, "42"), stop))
    events: list[str] = []
    async with consuming(pool, pool.names.activity_queue) as listener:
        # Given a worker whose queue is not there yet
        events.append((await listener.take()).properties.headers["x-event"])
        await asyncio.sleep(0.5)
        assert listener.requests.empty(), "waiting is not activity"
        # When it is made, deleted, and made again, then the worker serves it
        for _ in range(2):
            await make_request_queue(pool, "42")
            assert (await client.call("42", b"x")).body == b"x"
            pool.broker.management.delete("queues", pool.vhost, pool.names.request_queue("42"))
    assert events == ["started"]
    stop.set()
    await worker


async def test_work_in_hand_outlives_a_lost_connection_and_is_not_done_twice(pool: Pool, client: AsyncClient) -> None:
    release, runs = threading.Event(), [0]

    def handle(request: Request) -> bytes:
        runs[0] += 1
        release.wait(20)
        return request.body

    async with working(pool, handle):
        call = asyncio.create_task(client.call("42", b"long"))
        await until_in_thread(lambda: runs[0] == 1)
        # When the broker closes the worker's connection and the same request comes again
        names = await until_in_thread(lambda: worker_connections(pool))
        for name in names:
            pool.broker.management.delete("connections", name)
        await until_in_thread(
            lambda: [connection for connection in worker_connections(pool) if connection not in names]
        )
        await until_in_thread(lambda: consumers(pool) == 1)
        release.set()
        # Then the work that was begun answers it
        assert (await call).body == b"long"
        await until_in_thread(lambda: pool.depth(pool.names.request_queue("42")) == 0)
    assert runs == [1]


async def test_an_answer_found_while_the_connection_was_away_is_sent_when_the_request_comes_again(
    pool: Pool, client: AsyncClient
) -> None:
    release, runs = threading.Event(), [0]

    def handle(request: Request) -> bytes:
        runs[0] += 1
        release.wait(20)
        return request.body

    async with working(pool, handle):
        call = asyncio.create_task(client.call("42", b"long"))
        await until_in_thread(lambda: runs[0] == 1)
        for name in await until_in_thread(lambda: worker_connections(pool)):
            pool.broker.management.delete("connections", name)
        release.set()
        assert (await call).body == b"long"
        assert (await client.call("42", b"next")).body == b"next"
    assert runs == [2]


def worker_connections(pool: Pool) -> list[str]:
    found = pool.broker.management.get("vhosts", pool.vhost, "connections")
    return [connection["name"] for connection in found if connection.get("user") == pool.users.worker]


def consumers(pool: Pool) -> int:
    found = pool.broker.management.get("consumers", pool.vhost)
    return sum(consumer["queue"]["name"] == pool.names.request_queue("42") for consumer in found)


@pytest.mark.both_versions
async def test_a_broker_restart_under_load_loses_no_request_and_no_worker(private_broker: Broker) -> None:
    pool = Pool.on(private_broker, "/", delivery_limit=20)

    def handle(request: Request) -> bytes:
        time.sleep(0.02)
        return request.body

    async with AsyncClient(pool.client_uri, pool.settings.name, timeout=90) as client, working(pool, handle, threads=4):
        calls = [asyncio.create_task(client.call("42", b"%d" % number)) for number in range(300)]
        await calls[50]
        await asyncio.to_thread(private_broker.restart)
        replies = await asyncio.gather(*calls)
        assert [int(reply.body) for reply in replies] == list(range(300))


# --- as a process ---------------------------------------------------------------------------------------------

SLOW_WORKER = """
import sys, time
from osrdyne_worker.service import run
def handle(request):
    print(request.body.decode(), flush=True)
    time.sleep(float(request.headers["seconds"]))
    return request.body
run(handle, prefetch=4, grace=10)
print("ended", flush=True)
"""


async def start_worker(
    environment: WorkerEnvironment | None, *, script: str = SLOW_WORKER
) -> asyncio.subprocess.Process:
    variables = {} if environment is None else environment.to_environ()
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        env={"PATH": os.environ["PATH"], **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.both_versions
async def test_sigterm_finishes_work_in_hand_gives_the_rest_back_and_exits_with_0(
    pool: Pool, client: AsyncClient
) -> None:
    await make_request_queue(pool, "42")
    worker = await start_worker(environment_of(pool, "42"))
    assert worker.stdout is not None
    # Given one request in hand and three prefetched
    calls = [asyncio.create_task(client.call("42", b"%d" % n, headers={"seconds": "3"})) for n in range(4)]
    assert await asyncio.wait_for(worker.stdout.readline(), PATIENCE_SECONDS) == b"0\n"
    # When it gets the signal to stop
    worker.send_signal(signal.SIGTERM)
    output, errors_text = await asyncio.wait_for(worker.communicate(), PATIENCE_SECONDS)
    # Then it answered the one, began no other, and returned as it should
    assert (worker.returncode, output, errors_text) == (0, b"ended\n", b"")
    assert (await calls[0]).body == b"0"
    assert not any(call.done() for call in calls[1:])
    events = [event["x-event"] for event in await activity(pool, "finished")]
    assert "stopping" in events
    # And the rest is served by the next worker, on 4.3 without having been counted as failed. On 4.0 they are suspects
    # for that, and all but the one that is run first are given back once more.
    counts: list[Any] = []

    def handle(request: Request) -> bytes:
        counts.append(request.headers.get("x-delivery-count", 0))
        return request.body

    async with working(pool, handle):
        assert [(await call).body for call in calls[1:]] == [b"1", b"2", b"3"]
    assert counts == ([0, 0, 0] if pool.broker.version == "4.3" else [1, 2, 2])


async def test_work_that_outlasts_the_grace_goes_to_another_worker(pool: Pool, client: AsyncClient) -> None:
    await make_request_queue(pool, "42")
    worker = await start_worker(environment_of(pool, "42"), script=SLOW_WORKER.replace("grace=10", "grace=0.2"))
    assert worker.stdout is not None
    call = asyncio.create_task(client.call("42", b"long", headers={"seconds": "60"}))
    assert await asyncio.wait_for(worker.stdout.readline(), PATIENCE_SECONDS) == b"long\n"
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(worker.wait(), PATIENCE_SECONDS) == 0
    async with working(pool, echo):
        assert (await call).body == b"long"
    await worker.communicate()


async def test_a_worker_that_may_not_log_in_says_so_and_exits(pool: Pool) -> None:
    uri = pool.broker.amqp_uri(pool.users.worker, "secret-2", pool.vhost)
    worker = await start_worker(environment_of(pool, "42", amqp_uri=uri))
    _, errors_text = await asyncio.wait_for(worker.communicate(), PATIENCE_SECONDS)
    assert worker.returncode == os.EX_NOPERM
    assert b"check user name and password" in errors_text
    assert b"secret-2" not in errors_text
    assert b"Traceback" not in errors_text


async def test_a_worker_without_its_variables_names_them(tmp_path: Path) -> None:
    worker = await start_worker(None)
    _, errors_text = await asyncio.wait_for(worker.communicate(), PATIENCE_SECONDS)
    assert worker.returncode == os.EX_CONFIG
    assert b"WORKER_ID" in errors_text
    assert b"Traceback" not in errors_text
