"""On RabbitMQ: what handlers do wrong. Their callers get an error, and the server goes on."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import pytest

from osrdyne_bus.aio import AsyncBusClient, AsyncBusListener, AsyncBusServer
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.messages.wire import BusRequest, Notification
from osrdyne_bus.settings import BusSettings
from osrdyne_calls.errors import WorkerFailed
from osrdyne_calls.handling import Reject, WorkerError
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.servers import MAPS, N, endpoint


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep what handlers raise out of the log: pytest cannot report texts with surrogates."""
    caplog.set_level(logging.CRITICAL, "osrdyne_bus.aio")


def stop_iteration(_: object) -> bytes:
    return next(iter(()))


def leave(_: object) -> None:
    sys.exit(3)


async def leave_on_loop(_: object) -> None:
    sys.exit(3)


async def cancelled(_: object) -> None:
    task = asyncio.create_task(asyncio.sleep(PATIENCE_SECONDS))
    task.cancel()
    await task


def surrogates(_: object) -> None:
    raise OSError("caf\udce9")


def worker_error(_: object) -> None:
    raise WorkerError(b"", "caf\udce9")


def text(_: object) -> str:
    return "text"


BAD = (stop_iteration, leave, leave_on_loop, cancelled, surrogates, worker_error, text)


@pytest.mark.parametrize("acknowledge", ["start", "end"])
async def test_whatever_a_handler_does_its_caller_gets_an_error_and_the_server_goes_on(
    open_bus: OpenBus, acknowledge: Any
) -> None:
    bus, far = await open_bus(), await open_bus(settings=BusSettings(server_credit=2))
    handlers = {handler.__name__: handler for handler in BAD}
    async with AsyncBusServer(far, N, endpoint(**handlers), concurrency=2, acknowledge=acknowledge) as server:
        calls = AsyncBusClient(bus)
        for _ in range(3):
            for name in handlers:
                with pytest.raises(WorkerFailed):
                    await calls.call(MAPS, name, timeout=PATIENCE_SECONDS)
        assert (await calls.call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
        assert server.lost_replies == 0


async def test_a_plain_function_that_returns_a_coroutine_is_awaited(open_bus: OpenBus) -> None:
    bus = await open_bus()

    async def later(request: BusRequest) -> bytes:
        return b"later"

    def plain(request: BusRequest) -> Any:
        return later(request)

    async with AsyncBusServer(bus, N, endpoint(later=plain)):
        assert (await AsyncBusClient(bus).call(MAPS, "later", timeout=PATIENCE_SECONDS)).body == b"later"


def long_reject(_: object) -> None:
    raise Reject("x" * 100_000)


async def test_whatever_a_listener_does_it_hears_the_next_notification(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus(settings=BusSettings(notification_credit=2))
    bad = {handler.__name__: handler for handler in (*BAD[:5], long_reject)}
    heard: list[str] = []

    def listen(notification: Notification) -> Any:
        heard.append(notification.event_type)
        return bad[notification.event_type](notification) if notification.event_type in bad else None

    async with AsyncBusListener(far, MAPS, listen, concurrency=1):
        for name in (*bad, *bad, "last"):
            await AsyncBusClient(bus).notify(MAPS, name, timeout=PATIENCE_SECONDS)
        await until_async(lambda: "last" in heard)
    assert heard == [*bad, *bad, "last"]
    assert far.connections == 1


async def test_an_answer_that_is_too_large_is_an_error_for_its_caller(open_bus: OpenBus) -> None:
    bus = await open_bus()
    async with AsyncBusServer(bus, N, endpoint(large=lambda request: bytes(20 * 2**20))) as server:
        with pytest.raises(WorkerFailed, match=r"the answer cannot be sent: .* its peer takes at most 16777216"):
            await AsyncBusClient(bus).call(MAPS, "large", timeout=PATIENCE_SECONDS)
        assert server.lost_replies == 0


async def test_the_namespace_of_the_methods_that_all_servers_have_is_taken(open_bus: OpenBus) -> None:
    with pytest.raises(ValueError, match="the namespace 'osrdyne' has the methods of all servers"):
        AsyncBusServer(await open_bus(), N, [Endpoint("osrdyne")])
