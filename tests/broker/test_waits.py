"""Whatever becomes of the broker, what waits for it ends in its time and one second, and says for what it waited."""

from __future__ import annotations

import asyncio
import urllib.error
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_calls.waits import Wait
from osrdyne_client import AsyncClient, CallTimeout, Client, OsrdyneError
from osrdyne_worker import Request, WorkerEnvironment, serve
from testbed.broker import Broker
from testbed.command_line import CommandResult, osrdyne
from testbed.in_time import command_in_time, in_time
from testbed.outages import moved
from testbed.peer import make_request_queue
from testbed.pool import DaemonProcess, Pool
from testbed.tcp_proxy import TcpProxy
from testbed.waiting import until_async, until_in_thread
from tests.unit.runtime.commands_on_peers import NOBODY

#: Seconds of the calls here. Without bounds it was 10.
SHORT_SECONDS = 1.0
#: Names of the faults of the way to the broker, and what a call then waits for.
AWAY, HALF_OPEN = "away", "half-open"


class Way:
    """The way of programs to the broker, which a fault breaks."""

    def __init__(self, pool: Pool, proxy: TcpProxy) -> None:
        self._pool, self._proxy = pool, proxy

    def uri(self, user: str) -> str:
        return moved(self._pool.uri(user), self._pool.broker.amqp_port, self._proxy.port)

    @property
    def client_uri(self) -> str:
        return self.uri(self._pool.users.client)

    def breaks(self, fault: str) -> None:
        if fault == AWAY:
            self._proxy.cut(refuse=True)
        else:
            self._proxy.silence()


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool()


@pytest.fixture
async def way(pool: Pool) -> AsyncIterator[Way]:
    async with TcpProxy(pool.broker.amqp_port) as proxy:
        yield Way(pool, proxy)


faults = pytest.mark.parametrize(("fault", "wait"), [(AWAY, Wait.CONNECTING), (HALF_OPEN, Wait.SENT)])


@faults
async def test_a_call_a_cast_and_the_end_of_a_client_take_their_time_and_no_more(
    pool: Pool, way: Way, fault: str, wait: Wait
) -> None:
    await make_request_queue(pool, "42")
    client = AsyncClient(way.client_uri, "core", timeout=SHORT_SECONDS)
    await client.open()
    await client.cast("42", b"the key is proven")
    way.breaks(fault)
    await until_async(lambda: client.is_connected is (fault == HALF_OPEN))
    for send in (client.call, client.cast):
        with pytest.raises(CallTimeout) as caught:
            await in_time(send("42", b""), SHORT_SECONDS)
        assert caught.value.wait is wait
    await in_time(client.close(), CLOSE_SECONDS)


@faults
async def test_the_same_holds_for_threads(pool: Pool, way: Way, fault: str, wait: Wait) -> None:
    await make_request_queue(pool, "42")
    client = Client(way.client_uri, "core", timeout=SHORT_SECONDS)
    await asyncio.to_thread(client.open)
    await asyncio.to_thread(client.cast, "42", b"the key is proven")
    way.breaks(fault)
    await until_async(lambda: client.is_connected is (fault == HALF_OPEN))
    with pytest.raises(CallTimeout) as caught:
        await in_time(asyncio.to_thread(client.call, "42", b""), SHORT_SECONDS)
    assert caught.value.wait is wait
    await in_time(asyncio.to_thread(client.close), CLOSE_SECONDS)


async def test_a_client_that_cannot_connect_says_so_in_time(way: Way) -> None:
    way.breaks(HALF_OPEN)
    client = AsyncClient(way.client_uri, "core", connect_timeout=SHORT_SECONDS)
    with pytest.raises(OsrdyneError, match=r"no AMQP answer within 1 s"):
        await in_time(client.open(), SHORT_SECONDS)


@pytest.mark.parametrize("fault", [AWAY, HALF_OPEN])
async def test_a_client_ends_in_time_while_it_connects_again(way: Way, fault: str) -> None:
    client = AsyncClient(way.client_uri, "core")
    await client.open()
    way.breaks(HALF_OPEN)
    way._proxy.cut()  # and the next connection gets no answer
    if fault == AWAY:
        way.breaks(AWAY)
    await until_async(lambda: not client.is_connected)
    await in_time(client.close(), CLOSE_SECONDS)


@pytest.mark.parametrize("fault", [AWAY, HALF_OPEN])
async def test_a_worker_with_work_in_hand_ends_within_its_grace(pool: Pool, way: Way, fault: str) -> None:
    await make_request_queue(pool, "42")
    began, hangs = asyncio.Event(), asyncio.Event()

    async def work(_: Request) -> bytes:
        began.set()
        await hangs.wait()
        return b""

    stop = asyncio.Event()
    worker = asyncio.create_task(serve(work, environment_of(pool, way), stop, grace=SHORT_SECONDS))
    async with AsyncClient(pool.client_uri, "core") as client:
        await client.cast("42", b"")
    await began.wait()
    way.breaks(fault)
    stop.set()
    await in_time(worker, SHORT_SECONDS)


def environment_of(pool: Pool, way: Way) -> WorkerEnvironment:
    return WorkerEnvironment(
        id="w1",
        key="42",
        pool="core",
        requests_queue=pool.names.request_queue("42"),
        activity_exchange=pool.names.activity_exchange,
        amqp_uri=way.uri(pool.users.worker),
    )


# --- commands -----------------------------------------------------------------------------------------------------


async def command(uri: str, *words: str, timeout: float) -> CommandResult:
    variables = {"OSRDYNE_CLIENT_URI": uri, "OSRDYNE_OPERATOR_URI": uri}
    alone = partial(osrdyne, *words, "--pool", "core", variables=dict.fromkeys(variables, NOBODY.broker))
    return await command_in_time([*words, "--pool", "core"], variables, timeout, alone=alone)


@pytest.mark.parametrize("fault", [AWAY, HALF_OPEN])
async def test_a_call_by_command_ends_in_the_time_that_it_was_given(way: Way, fault: str) -> None:
    way.breaks(fault)
    done = await command(way.client_uri, "call", "42", "--timeout", "1", timeout=SHORT_SECONDS)
    assert done.code == 2
    assert fault == AWAY or "no AMQP answer within 1 s" in done.line


@pytest.mark.full
@pytest.mark.parametrize("fault", [AWAY, HALF_OPEN])
@pytest.mark.parametrize("words", [("list",), ("show", "1"), ("replay", "--all", "--yes"), ("bury", "--all", "--yes")])
async def test_each_command_on_the_inventory_gives_up_after_ten_seconds(
    pool: Pool, way: Way, tmp_path: Path, fault: str, words: tuple[str, ...]
) -> None:
    way.breaks(fault)
    audit = ("--audit", str(tmp_path / "audit")) if "--yes" in words else ()
    done = await command(way.uri(pool.users.operator), "poison", *words, *audit, timeout=10.0)
    assert done.code == 2


# --- a broker of the test's own -----------------------------------------------------------------------------------


class IllBroker:
    """A broker that is ill and gets well."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def begin(self, fault: str) -> None:
        if fault == "disk alarm":
            await asyncio.to_thread(self._broker.rabbitmqctl, "set_disk_free_limit", "900000GB")
            await until_in_thread(lambda: self._broker.management.get("nodes")[0].get("disk_free_alarm"))
        elif fault == "memory alarm":
            await asyncio.to_thread(self._broker.rabbitmqctl, "set_vm_memory_high_watermark", "0.00001")
            await until_in_thread(lambda: self._broker.management.get("nodes")[0].get("mem_alarm"))
        else:
            self._beam.suspend()

    async def end(self, fault: str) -> None:
        if fault == "stopped":
            self._beam.resume()
        elif fault == "disk alarm":
            await asyncio.to_thread(self._broker.rabbitmqctl, "set_disk_free_limit", "50MB")

    @property
    def _beam(self) -> psutil.Process:
        """The broker's own process, which the tool keeps."""
        assert self._broker._process is not None
        found = psutil.Process(self._broker._process.pid).children(recursive=True)
        return next(process for process in found if process.name() == "beam.smp")


@asynccontextmanager
async def ill(broker: Broker, fault: str) -> AsyncIterator[None]:
    made = IllBroker(broker)
    await made.begin(fault)
    try:
        yield
    finally:
        await made.end(fault)


@pytest.mark.parametrize(
    ("fault", "wait"), [("disk alarm", Wait.BLOCKED), ("memory alarm", Wait.BLOCKED), ("stopped", Wait.SENT)]
)
async def test_what_waits_for_an_ill_broker_ends_in_time_and_says_for_what(
    private_broker: Broker, fault: str, wait: Wait, tmp_path: Path
) -> None:
    pool = Pool.on(private_broker, "/")
    await make_request_queue(pool, "42")
    uri = pool.client_uri
    aio, threads = AsyncClient(uri, "core", timeout=SHORT_SECONDS), Client(uri, "core", timeout=SHORT_SECONDS)
    await aio.open()
    await asyncio.to_thread(threads.open)
    await aio.cast("42", b"the key is proven")
    await asyncio.to_thread(threads.cast, "42", b"the key is proven")
    began, hangs, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(_: Request) -> bytes:
        began.set()
        await hangs.wait()
        return b""

    async with TcpProxy(private_broker.amqp_port) as proxy:
        worker = asyncio.create_task(serve(work, environment_of(pool, Way(pool, proxy)), stop, grace=SHORT_SECONDS))
        await began.wait()
        async with ill(private_broker, fault):
            # In an alarm, the broker takes the first message of a connection, and then blocks that.
            for first in (aio.cast("42", b""), asyncio.to_thread(threads.cast, "42", b"")):
                with suppress(CallTimeout):
                    await in_time(first, SHORT_SECONDS)
            for send in (aio.call, aio.cast):
                with pytest.raises(CallTimeout) as caught:
                    await in_time(send("42", b""), SHORT_SECONDS)
                assert caught.value.wait is wait
            with pytest.raises(CallTimeout) as caught:
                await in_time(asyncio.to_thread(threads.call, "42", b""), SHORT_SECONDS)
            assert caught.value.wait is wait

            done = await command(uri, "call", "42", "--timeout", "2", timeout=2.0)
            said = "alarm (low on " if wait is Wait.BLOCKED else "no AMQP answer within 2 s"
            assert said in done.line
            done = await command(pool.uri(pool.users.operator), "poison", "list", timeout=10.0)
            assert done.code == (2 if fault == "stopped" else 0)

            hangs.set()  # its reply is not confirmed
            stop.set()
            await in_time(worker, SHORT_SECONDS)
            await in_time(aio.close(), CLOSE_SECONDS)
            await in_time(asyncio.to_thread(threads.close), CLOSE_SECONDS)


async def test_a_daemon_says_that_it_is_not_ready_in_an_alarm_and_is_ready_after_it(
    private_broker: Broker, make_daemon: Callable[..., DaemonProcess]
) -> None:
    daemon = await asyncio.to_thread(make_daemon, Pool.on(private_broker, "/"))

    def status() -> CommandResult:
        return osrdyne("status", "--url", daemon.url)

    assert (await asyncio.to_thread(status)).code == 0
    async with ill(private_broker, "disk alarm"):
        done = await until_in_thread(lambda: one if (one := status()).code == 1 else None)
        assert "is not ready: broker alarm (" in done.line
        with pytest.raises(urllib.error.HTTPError) as caught:
            await asyncio.to_thread(daemon.get, "/readyz")
        with caught.value as answer:
            assert (answer.code, b"takes no messages in its alarm" in answer.read()) == (503, True)
    await until_in_thread(lambda: status().code == 0)
