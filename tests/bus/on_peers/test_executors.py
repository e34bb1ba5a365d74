"""On RabbitMQ: plain handlers in an executor of the program's."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from osrdyne_bus.aio import AsyncBusClient, AsyncBusListener, AsyncBusServer
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.errors import MessagingTimeout
from osrdyne_bus.messages.wire import BusRequest, Notification
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.threads import Bus, BusClient, BusServer
from osrdyne_calls.errors import Rejected, WorkerFailed
from osrdyne_calls.handling import Reject
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.servers import MAPS, N, endpoint
from tests.conftest import Vhost


class Unreadable(Exception):
    """Its pickle cannot be read: two arguments become one."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def process(_: BusRequest) -> bytes:
    return str(os.getpid()).encode()


def reject(_: BusRequest) -> bytes:
    raise Reject("not here")


def unreadable(_: BusRequest) -> bytes:
    raise Unreadable("a", "b")


def notified(notification: Notification) -> None:
    Path(notification.body.decode()).write_text(str(os.getpid()))


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


async def test_handlers_run_in_another_process_and_their_errors_come_back(
    open_bus: OpenBus, processes: Executor
) -> None:
    bus = await open_bus()
    handlers = endpoint(process=process, reject=reject, unreadable=unreadable)
    async with AsyncBusServer(bus, N, handlers, executor=processes):
        client = AsyncBusClient(bus)
        for _ in range(2):
            assert int((await client.call(MAPS, "process", timeout=PATIENCE_SECONDS)).body) != os.getpid()
            with pytest.raises(Rejected, match="not here"):
                await client.call(MAPS, "reject", timeout=PATIENCE_SECONDS)
            with pytest.raises(WorkerFailed, match="ab"):
                await client.call(MAPS, "unreadable", timeout=PATIENCE_SECONDS)
        with pytest.raises(WorkerFailed, match="the worker's executor failed"):  # `echo` is not a function of a module
            await client.call(MAPS, "echo", timeout=PATIENCE_SECONDS)


async def test_a_listener_hears_in_another_process(open_bus: OpenBus, processes: Executor, tmp_path: Path) -> None:
    bus, heard = await open_bus(), tmp_path / "heard"
    async with AsyncBusListener(bus, MAPS, notified, executor=processes):
        await AsyncBusClient(bus).notify(MAPS, "landed", str(heard).encode(), timeout=PATIENCE_SECONDS)
        await until_async(lambda: heard.exists() and heard.read_text() != "")
    assert int(heard.read_text()) != os.getpid()


async def test_an_async_handler_runs_on_the_loop_although_there_is_an_executor(
    open_bus: OpenBus, processes: Executor
) -> None:
    async def here(_: BusRequest) -> bytes:
        return str(os.getpid()).encode()

    bus = await open_bus()
    async with AsyncBusServer(bus, N, endpoint(here=here), executor=processes):
        assert int((await AsyncBusClient(bus).call(MAPS, "here", timeout=PATIENCE_SECONDS)).body) == os.getpid()


async def test_a_call_whose_caller_left_while_the_executor_was_busy_does_not_begin(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus(settings=BusSettings(grace=PATIENCE_SECONDS))
    go, begun = threading.Event(), []

    def work(request: BusRequest) -> bytes:
        begun.append(request.body)
        go.wait()
        return b""

    with ThreadPoolExecutor(1) as executor:
        async with AsyncBusServer(far, N, endpoint(work=work), executor=executor) as server:
            first = asyncio.create_task(AsyncBusClient(bus).call(MAPS, "work", b"1", timeout=PATIENCE_SECONDS))
            await until_async(lambda: begun == [b"1"])
            with pytest.raises(MessagingTimeout):
                await AsyncBusClient(bus).call(MAPS, "work", b"2", timeout=0.5)
            go.set()
            await first
            await until_async(lambda: server.in_hand == 0)
    assert begun == [b"1"]


def test_a_server_for_threads_has_an_executor_too(vhost: Vhost) -> None:
    made = Endpoint()

    @made.method
    def thread(_: BusRequest) -> bytes:
        return threading.current_thread().name.encode()

    with (
        ThreadPoolExecutor(1, thread_name_prefix="mine") as executor,
        Bus(vhost.amqp_uri()) as bus,
        BusServer(bus, N, [made], executor=executor),
    ):
        assert BusClient(bus).call(MAPS, "thread", timeout=PATIENCE_SECONDS).body == b"mine_0"
