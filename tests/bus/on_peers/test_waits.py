"""All public methods of the bus, on a peer that is lost, silent or stopped: they end in their time, and say so."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus, AsyncBusClient, AsyncBusListener, AsyncBusServer
from osrdyne_bus.errors import MessagingError, StartTimedOut
from osrdyne_bus.messages.envelopes import Envelope
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.threads import Bus, BusClient, BusListener, BusServer
from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_calls.waits import Wait
from testbed.broker import Broker
from testbed.in_time import in_time
from testbed.tcp_proxy import TcpProxy
from testbed.waiting import PATIENCE_SECONDS, until_async, until_in_thread
from tests.broker.test_waits import ill
from tests.bus.on_peers.servers import MAPS, N, endpoint
from tests.unit.runtime.commands_on_peers import SHORT_SECONDS
from tests.unit.runtime.every_wait import public

#: The handlers and replies at the end of a server have a short time.
SETTINGS = BusSettings(grace=SHORT_SECONDS, reply_timeout=SHORT_SECONDS, start_timeout=SHORT_SECONDS)
MODULES = ("osrdyne_bus", "osrdyne_bus.aio", "osrdyne_bus.threads")
OTHER = Target("other")
AIO, THREADS = "osrdyne_bus.aio", "osrdyne_bus.threads"


@dataclass
class UsedBus:
    """What a program has of a bus, as its peer is lost."""

    bus: AsyncBus
    client: AsyncBusClient
    server: AsyncBusServer
    listener: AsyncBusListener
    subscription: Any


@dataclass
class UsedByThreads:
    """The same for threads."""

    bus: Bus
    client: BusClient
    server: BusServer
    listener: BusListener


def address(scheme: Any) -> str:
    return str(scheme.shared(MAPS))


def request(_: str, reply_to: str) -> Envelope:
    return Envelope(reply_to=reply_to)


#: By method: how it is asked, and for how many seconds it may wait.
ASKS: dict[str, tuple[Callable[[UsedBus], Awaitable[Any]], float]] = {
    "AsyncBus.send": (lambda used: used.bus.send(address, Envelope(), SHORT_SECONDS), SHORT_SECONDS),
    "AsyncBus.reply": (lambda used: used.bus.reply(Envelope(to="/queues/q"), SHORT_SECONDS), SHORT_SECONDS),
    "AsyncBus.call": (lambda used: used.bus.call(address, request, SHORT_SECONDS), SHORT_SECONDS),
    "AsyncBus.ping": (lambda used: used.bus.ping(SHORT_SECONDS), SHORT_SECONDS),
    "AsyncBus.fanouts": (lambda used: used.bus.fanouts(MAPS, SHORT_SECONDS), SHORT_SECONDS),
    "AsyncBus.until_known": (lambda used: used.bus.until_known(address), 0.0),
    "AsyncBus.unsubscribe": (lambda used: used.bus.unsubscribe(used.subscription), 0.0),
    "AsyncBusClient.call": (lambda used: used.client.call(MAPS, "echo", timeout=SHORT_SECONDS), SHORT_SECONDS),
    "AsyncBusClient.cast": (lambda used: used.client.cast(MAPS, "echo", timeout=SHORT_SECONDS), SHORT_SECONDS),
    "AsyncBusClient.fanout": (lambda used: used.client.fanout(MAPS, "echo", timeout=SHORT_SECONDS), SHORT_SECONDS),
    "AsyncBusClient.notify": (lambda used: used.client.notify(MAPS, "e", timeout=SHORT_SECONDS), SHORT_SECONDS),
    "AsyncBusListener.stop": (lambda used: used.listener.stop(), SHORT_SECONDS),
    "AsyncBusServer.stop": (lambda used: used.server.stop(), SHORT_SECONDS),
}
#: Those that begin to receive.
BEGINNINGS: dict[str, Callable[[UsedBus], Awaitable[Any]]] = {
    "AsyncBus.subscribe": lambda used: used.bus.subscribe(address, 1, lambda _: None, timeout=SHORT_SECONDS),
    "AsyncBusListener.start": lambda used: AsyncBusListener(used.bus, MAPS, print).start(SHORT_SECONDS),
    "AsyncBusServer.start": lambda used: AsyncBusServer(used.bus, N, endpoint()).start(SHORT_SECONDS),
}
BY_THREADS: dict[str, tuple[Callable[[UsedByThreads], Any], float]] = {
    "Bus.run": (lambda used: used.bus.run(used.bus.asynchronous.ping(SHORT_SECONDS)), SHORT_SECONDS),
    "BusClient.call": (lambda used: used.client.call(MAPS, "echo", timeout=SHORT_SECONDS), SHORT_SECONDS),
    "BusClient.cast": (lambda used: used.client.cast(MAPS, "echo", timeout=SHORT_SECONDS), SHORT_SECONDS),
    "BusClient.fanout": (lambda used: used.client.fanout(MAPS, "echo", timeout=SHORT_SECONDS), SHORT_SECONDS),
    "BusClient.notify": (lambda used: used.client.notify(MAPS, "e", timeout=SHORT_SECONDS), SHORT_SECONDS),
    "BusListener.stop": (lambda used: used.listener.stop(), SHORT_SECONDS),
    "BusServer.stop": (lambda used: used.server.stop(), SHORT_SECONDS),
}
BEGINNINGS_BY_THREADS: dict[str, Callable[[UsedByThreads], Any]] = {
    "BusListener.start": lambda used: BusListener(used.bus, MAPS, print).start(SHORT_SECONDS),
    "BusServer.start": lambda used: BusServer(used.bus, N, endpoint()).start(SHORT_SECONDS),
}
#: Beginnings and ends by statements are those of `open`, `start`, `stop` and `close`.
BY_STATEMENTS = {
    *(
        f"{AIO}.{name}.{method}"
        for name in ("AsyncBus", "AsyncBusListener", "AsyncBusServer")
        for method in ("__aenter__", "__aexit__")
    ),
    *(
        f"{THREADS}.{name}.{method}"
        for name in ("Bus", "BusListener", "BusServer")
        for method in ("__enter__", "__exit__")
    ),
}
#: test_silent_peers.py has `open` on peers that are away or silent. `close` ends each test here.
OPEN_AND_CLOSE = {f"{bus}.{method}" for bus in (f"{AIO}.AsyncBus", f"{THREADS}.Bus") for method in ("open", "close")}
#: Classes and functions that compute, and wait for nothing.
PURE = ("Brokered", "CreditWindow", "RabbitMQ", "Routable", "Scheme", "scheme_for")


def test_each_public_method_of_the_bus_has_its_wait_in_these_tables() -> None:
    known = {f"{AIO}.{name}" for name in (*ASKS, *BEGINNINGS)}
    known |= {f"{THREADS}.{name}" for name in (*BY_THREADS, *BEGINNINGS_BY_THREADS)}
    found = {name for name in public(*MODULES) if not name.startswith(tuple(f"osrdyne_bus.{pure}" for pure in PURE))}

    assert found == known | BY_STATEMENTS | OPEN_AND_CLOSE


@asynccontextmanager
async def broken(broker: Broker, proxy: TcpProxy, fault: str) -> AsyncIterator[None]:
    if fault == "stopped":
        async with ill(broker, fault):
            yield
        return
    if fault == "away":
        proxy.cut(refuse=True)
    else:
        proxy.silence()
    yield


faults = pytest.mark.parametrize("fault", ["away", "half-open", "stopped"])


def ended_as(found: list[Any]) -> list[Any]:
    """Return what is neither an error of the bus nor an end without a result."""
    return [end for end in found if not isinstance(end, MessagingError | None)]


@faults
async def test_what_is_asked_of_a_bus_ends_in_its_time_and_with_it(private_broker: Broker, fault: str) -> None:
    private_broker.management.put("queues", "/", "q", body={"durable": True})
    async with TcpProxy(private_broker.amqp_port) as proxy:
        uri = private_broker.amqp_uri().replace(f":{private_broker.amqp_port}", f":{proxy.port}")
        bus = AsyncBus(uri, settings=SETTINGS)
        await bus.open()
        server, listener = AsyncBusServer(bus, N, endpoint()), AsyncBusListener(bus, MAPS, print)
        await server.start()
        await listener.start()
        subscription = await bus.subscribe(lambda scheme: scheme.shared(OTHER), 1, lambda _: None)
        used = UsedBus(bus, AsyncBusClient(bus), server, listener, subscription)
        await used.client.call(N, "echo")
        async with broken(private_broker, proxy, fault):
            await until_async(lambda: bus.is_connected is (fault != "away"))
            begun = asyncio.gather(
                *(in_time(begin(used), SHORT_SECONDS) for begin in BEGINNINGS.values()), return_exceptions=True
            )
            asked = [in_time(ask(used), seconds) for ask, seconds in ASKS.values()]
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert ended_as(found) == [], dict(zip(ASKS, found, strict=True))
            for error in await begun:
                assert_said(error, fault, proxy)
            # One without a time of its own has that of the setting, and hears of the end of its bus
            server = AsyncBusServer(bus, N, endpoint())
            with pytest.raises(StartTimedOut):
                await in_time(server.start(), SHORT_SECONDS)
            waits = asyncio.create_task(server.start(math.inf))
            await asyncio.sleep(0)
            await in_time(bus.close(), CLOSE_SECONDS)
            with pytest.raises(MessagingError):
                await in_time(waits, CLOSE_SECONDS)


def assert_said(error: Any, fault: str, proxy: TcpProxy) -> None:
    """Check that the error of what was to begin says for what it waited, and where."""
    assert isinstance(error, StartTimedOut), repr(error)
    away = fault == "away"
    assert (error.wait, f"127.0.0.1:{proxy.port}" in str(error)) == (Wait.CONNECTING if away else Wait.SENT, True)
    said = "there was no connection to receive over (" if away else f"127.0.0.1:{proxy.port} did not attach a receiver"
    assert str(error).startswith(f"within 1 s {said}")


@faults
async def test_what_threads_ask_of_a_bus_ends_in_its_time_and_with_it(private_broker: Broker, fault: str) -> None:
    async with TcpProxy(private_broker.amqp_port) as proxy:
        uri = private_broker.amqp_uri().replace(f":{private_broker.amqp_port}", f":{proxy.port}")
        bus = Bus(uri, settings=SETTINGS)
        await asyncio.to_thread(bus.open)
        server, listener = BusServer(bus, N, endpoint()), BusListener(bus, MAPS, print)
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(listener.start)
        used = UsedByThreads(bus, BusClient(bus), server, listener)
        await asyncio.to_thread(used.client.call, N, "echo")
        async with broken(private_broker, proxy, fault):
            await until_in_thread(lambda: bus.is_connected is (fault != "away"))
            begun = asyncio.gather(
                *(in_time(asyncio.to_thread(ask, used), SHORT_SECONDS) for ask in BEGINNINGS_BY_THREADS.values()),
                return_exceptions=True,
            )
            asked = [in_time(asyncio.to_thread(ask, used), seconds) for ask, seconds in BY_THREADS.values()]
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert ended_as(found) == [], dict(zip(BY_THREADS, found, strict=True))
            for error in await begun:
                assert_said(error, fault, proxy)
            await in_time(asyncio.to_thread(bus.close), CLOSE_SECONDS)


async def test_what_did_not_start_in_time_starts_once_its_peer_is_back(private_broker: Broker) -> None:
    async with AsyncBus(private_broker.amqp_uri(), settings=SETTINGS) as bus:
        server = AsyncBusServer(bus, N, endpoint())
        async with ill(private_broker, "stopped"):
            with pytest.raises(StartTimedOut):
                await in_time(server.start(), SHORT_SECONDS)
        await server.start(PATIENCE_SECONDS)
        assert (await AsyncBusClient(bus).call(N, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
        await server.stop()
