"""What holds of the bus over every peer: who gets a message, what comes back, and what a server does.

A module for each peer has all of these tests, and a fixture `open_bus` of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus, AsyncBusClient, AsyncBusListener, AsyncBusServer
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.errors import (
    BusClosed,
    MessagingError,
    MessagingTimeout,
)
from osrdyne_bus.messages.envelopes import Envelope
from osrdyne_bus.messages.wire import BusRequest, Notification
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.targets import Priority
from osrdyne_calls.errors import NoFreeSlot, Rejected, WorkerFailed
from osrdyne_calls.handling import Reject
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conftest import OpenBus

#: The topic of tests that have a peer, or a part of it, of their own. Those below have the fixture `maps`.
MAPS = Target("maps")


def echo(**more: Callable[[BusRequest], Any]) -> list[Endpoint]:
    """An endpoint that answers with what it is sent, and other methods."""
    made = Endpoint("maps", "1.2")
    made.add("echo", lambda request: request.body)
    for name, handler in more.items():
        made.add(name, handler)
    return [made]


def client(bus: AsyncBus, **given: Any) -> AsyncBusClient:
    return AsyncBusClient(bus, namespace="maps", version="1.1", **given)


def named(server: str, topic: Target = MAPS) -> Target:
    return replace(topic, server=server)


async def test_a_call_is_answered_by_a_server_of_its_topic_and_by_the_one_that_it_names(
    open_bus: OpenBus, maps: Target
) -> None:
    bus, far = await open_bus(), await open_bus()

    def who(server: str) -> list[Endpoint]:
        async def name(request: BusRequest) -> bytes:
            return server.encode()

        return echo(name=name)

    async with AsyncBusServer(far, named("n1", maps), who("n1")), AsyncBusServer(far, named("n2", maps), who("n2")):
        calls = client(bus)
        assert (await calls.call(maps, "echo", b"Lille", timeout=PATIENCE_SECONDS)).body == b"Lille"
        answers = [
            (await calls.call(named(name, maps), "name", timeout=PATIENCE_SECONDS)).body for name in ("n1", "n2", "n1")
        ]
        assert answers == [b"n1", b"n2", b"n1"]
        either = await asyncio.gather(*(calls.call(maps, "name", timeout=PATIENCE_SECONDS) for _ in range(40)))
        assert {event.body for event in either} <= {b"n1", b"n2"}


async def test_a_plain_handler_runs_in_a_thread_and_an_async_one_on_the_loop(open_bus: OpenBus, maps: Target) -> None:
    bus = await open_bus()
    ran: dict[str, int] = {}

    def plain(request: BusRequest) -> None:
        ran["plain"] = threading.get_ident()

    async def on_loop(request: BusRequest) -> None:
        ran["on_loop"] = threading.get_ident()

    async with AsyncBusServer(bus, named("n", maps), echo(plain=plain, on_loop=on_loop)):
        for method in ("plain", "on_loop"):
            assert (await client(bus).call(maps, method, timeout=PATIENCE_SECONDS)).body == b""
    assert ran["on_loop"] == threading.get_ident() != ran["plain"]


async def test_what_a_handler_raises_reaches_the_caller_as_an_error_of_its_kind(
    open_bus: OpenBus, maps: Target
) -> None:
    bus = await open_bus()

    def fail(request: BusRequest) -> bytes:
        raise LookupError("no such map")

    def reject(request: BusRequest) -> bytes:
        raise Reject("not today")

    async with AsyncBusServer(bus, named("n", maps), echo(fail=fail, reject=reject)):
        with pytest.raises(WorkerFailed, match="no such map"):
            await client(bus).call(maps, "fail", timeout=PATIENCE_SECONDS)
        with pytest.raises(LookupError, match="no such map"):
            await client(bus, allowed_errors=[LookupError]).call(maps, "fail", timeout=PATIENCE_SECONDS)
        with pytest.raises(Rejected, match="not today"):
            await client(bus).call(maps, "reject", timeout=PATIENCE_SECONDS)
        with pytest.raises(Rejected, match=r"no method 'lose' of namespace 'maps' in version 1.1"):
            await client(bus).call(maps, "lose", timeout=PATIENCE_SECONDS)
        with pytest.raises(Rejected, match=r"this server has version 1.2"):
            await AsyncBusClient(bus, namespace="maps", version="1.3").call(maps, "echo", timeout=PATIENCE_SECONDS)
        # And the server goes on.
        assert (await client(bus).call(maps, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"


async def test_a_fanout_reaches_every_server_once(open_bus: OpenBus, maps: Target) -> None:
    bus, far = await open_bus(), await open_bus()
    seen: list[str] = []

    def noting(server: str) -> list[Endpoint]:
        return echo(note=lambda request: seen.append(server))

    async with (
        AsyncBusServer(far, named("n1", maps), noting("n1")),
        AsyncBusServer(far, named("n2", maps), noting("n2")),
        AsyncBusServer(bus, named("n3", maps), noting("n3")),
    ):
        await client(bus).fanout(maps, "note", timeout=PATIENCE_SECONDS)
        await until_async(lambda: len(seen) >= 3)
        # A call to each shows that no second one is on its way there.
        for server in ("n1", "n2", "n3"):
            await client(bus).call(named(server, maps), "echo", timeout=PATIENCE_SECONDS)
    assert sorted(seen) == ["n1", "n2", "n3"]


async def test_a_late_answer_is_dropped_and_the_slot_is_free_again(open_bus: OpenBus, maps: Target) -> None:
    bus, far = await open_bus(settings=BusSettings(slots=1)), await open_bus()
    go = asyncio.Event()

    async def wait(request: BusRequest) -> bytes:
        await go.wait()
        return b"late"

    async with AsyncBusServer(far, named("n", maps), echo(wait=wait)):
        with pytest.raises(MessagingTimeout):
            await client(bus).call(maps, "wait", timeout=1)
        go.set()
        assert (await client(bus).call(maps, "echo", b"mine", timeout=PATIENCE_SECONDS)).body == b"mine"
        waiting = asyncio.create_task(client(bus).call(maps, "wait", timeout=PATIENCE_SECONDS))
        go.clear()
        await asyncio.sleep(0)
        with pytest.raises(NoFreeSlot):
            await client(bus).call(maps, "echo", timeout=PATIENCE_SECONDS)
        go.set()
        await waiting


async def test_a_caller_that_vanished_holds_up_no_reply_to_others(
    open_bus: OpenBus, maps: Target, caplog: pytest.LogCaptureFixture
) -> None:
    bus, gone = await open_bus(), await open_bus()
    far = await open_bus(settings=BusSettings(reply_timeout=1))
    go, addresses = asyncio.Event(), set()

    async def wait(request: BusRequest) -> bytes:
        addresses.add(str(request.reply_to))
        await go.wait()
        return b"answer"

    async def no_way_there() -> bool:
        """A broker may keep the address for a moment, and what is sent there meanwhile is accepted."""
        (address,) = addresses
        try:
            await bus.send(lambda scheme: address, Envelope(), 0.5)
        except MessagingError:
            return True
        return False

    server = AsyncBusServer(far, named("n", maps), echo(wait=wait))
    async with server:
        calls = [asyncio.create_task(client(gone).call(maps, "wait", timeout=PATIENCE_SECONDS)) for _ in range(5)]
        await until_async(lambda: server.in_hand == 5)
        await gone.close()
        for ended in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(ended, BusClosed)
        await until_async(no_way_there)
        go.set()
        assert (await client(bus).call(maps, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
        await until_async(lambda: server.lost_replies == 5)
    assert 'the reply to a call is lost method="wait"' in caplog.text


async def test_a_sender_without_use_for_a_while_is_dropped_and_attached_again_when_it_is(
    open_bus: OpenBus,
    maps: Target,
) -> None:
    bus, far = await open_bus(settings=BusSettings(unused_links=0.4)), await open_bus()
    async with AsyncBusServer(far, named("n", maps), echo()):
        await client(bus).call(maps, "echo", timeout=PATIENCE_SECONDS)
        assert bus.senders == 1
        await until_async(lambda: bus.senders == 0)
        assert (await client(bus).call(maps, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
        assert bus.senders == 1


async def test_a_closed_bus_ends_what_waits_and_refuses_what_comes(open_bus: OpenBus, maps: Target) -> None:
    bus, far = await open_bus(), await open_bus(settings=BusSettings(reply_timeout=1))
    hang = asyncio.Event()

    async def wait(request: BusRequest) -> None:
        await hang.wait()

    server = AsyncBusServer(far, named("n", maps), echo(wait=wait))
    async with server:
        waiting = asyncio.create_task(client(bus).call(maps, "wait", timeout=PATIENCE_SECONDS))
        await until_async(lambda: server.in_hand == 1)
        await bus.close()
        await bus.close()
        with pytest.raises(BusClosed):
            await waiting
        for late in (client(bus).call, client(bus).cast):
            with pytest.raises(BusClosed):
                await late(maps, "echo", timeout=PATIENCE_SECONDS)
        hang.set()


async def test_many_calls_at_once_get_each_their_own_answer(open_bus: OpenBus, maps: Target) -> None:
    bus, far = await open_bus(), await open_bus()
    async with AsyncBusServer(far, named("n", maps), echo()):
        asked = [str(number).encode() for number in range(500)]
        clients = [client(bus), client(bus)]
        answers = await asyncio.gather(
            *(clients[at % 2].call(maps, "echo", body, timeout=PATIENCE_SECONDS) for at, body in enumerate(asked))
        )
        assert [answer.body for answer in answers] == asked


async def test_a_notification_is_heard_by_one_listener_to_its_priority(open_bus: OpenBus, maps: Target) -> None:
    bus, far = await open_bus(), await open_bus()
    heard: list[tuple[str, Notification]] = []

    def listener(name: str, *priorities: Priority) -> AsyncBusListener:
        return AsyncBusListener(far, maps, lambda event: heard.append((name, event)), priorities=priorities)

    async with listener("a", Priority.INFO), listener("b", Priority.ERROR):
        for number in range(20):
            await client(bus).notify(
                maps, "map.loaded", str(number).encode(), publisher="here", timeout=PATIENCE_SECONDS
            )
        await client(bus).notify(maps, "map.lost", priority=Priority.ERROR, timeout=PATIENCE_SECONDS)
        await until_async(lambda: len(heard) >= 21)
    assert sorted(int(event.body) for name, event in heard if name == "a") == list(range(20))
    assert [(name, event.event_type) for name, event in heard if name == "b"] == [("b", "map.lost")]
    assert {event.publisher for _, event in heard} == {"here", None}
