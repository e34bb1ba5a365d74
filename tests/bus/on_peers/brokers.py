"""What holds of the bus over every broker: messages wait in its queues, and come again where they were given back.

A module for each broker has all of these tests, and fixtures `open_bus` and `deliveries_of_rejected` of its own.
"""

from __future__ import annotations

import asyncio

import pytest

from osrdyne_bus.aio import AsyncBusListener, AsyncBusServer
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.errors import (
    MessagingTimeout,
)
from osrdyne_bus.messages.wire import BusRequest, Notification
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.targets import Priority
from osrdyne_calls.errors import WorkerFailed
from osrdyne_calls.handling import Requeue
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conformance import MAPS, client, echo, named
from tests.bus.on_peers.conftest import OpenBus


async def test_a_cast_ends_when_the_broker_has_it_and_is_served_once_a_server_is_there(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus()
    seen: list[bytes] = []
    endpoints = echo(note=lambda request: seen.append(request.body))
    async with AsyncBusServer(far, named("n"), endpoints):
        pass
    await client(bus).cast(MAPS, "note", b"early", timeout=PATIENCE_SECONDS)
    await client(bus).cast(named("n"), "note", b"for n", timeout=PATIENCE_SECONDS)
    async with AsyncBusServer(far, named("n"), endpoints):
        await until_async(lambda: len(seen) == 2)
    assert set(seen) == {b"early", b"for n"}


async def test_a_call_without_a_server_times_out_and_is_not_begun_after_its_deadline(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus()
    begun: list[bytes] = []
    endpoints = echo(note=lambda request: begun.append(request.body))
    async with AsyncBusServer(far, named("n"), endpoints):
        pass
    with pytest.raises(MessagingTimeout, match=r"no reply within 0.5 s; the request was delivered"):
        await client(bus).call(MAPS, "note", b"late", timeout=0.5)
    async with AsyncBusServer(far, named("n"), endpoints):
        await client(bus).call(MAPS, "note", b"in time", timeout=PATIENCE_SECONDS)
    assert begun == [b"in time"]


async def test_with_acknowledge_end_another_server_gets_what_one_that_died_had_begun(open_bus: OpenBus) -> None:
    bus, dying, far = await open_bus(), await open_bus(), await open_bus()
    begun: list[str] = []

    async def hang(request: BusRequest) -> bytes:
        begun.append("n1")
        await asyncio.Event().wait()
        return b""

    first = AsyncBusServer(dying, named("n1"), echo(work=hang), acknowledge="end")
    await first.start()
    call = asyncio.create_task(client(bus).call(MAPS, "work", b"x", timeout=PATIENCE_SECONDS))
    await until_async(lambda: begun == ["n1"])
    async with AsyncBusServer(far, named("n2"), echo(work=lambda request: b"n2"), acknowledge="end"):
        await dying.close()
        assert (await call).body == b"n2"
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()  # the handler that hangs


async def test_with_acknowledge_end_a_handler_can_give_a_request_back(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus()
    tried: list[bytes] = []

    def work(request: BusRequest) -> bytes:
        tried.append(request.body)
        if len(tried) < 3:
            raise Requeue
        return b"done"

    async with AsyncBusServer(far, named("n"), echo(work=work), acknowledge="end"):
        assert (await client(bus).call(MAPS, "work", b"x", timeout=PATIENCE_SECONDS)).body == b"done"
    assert tried == [b"x"] * 3

    async with AsyncBusServer(far, named("n"), echo(work=work)):
        tried.clear()
        with pytest.raises(WorkerFailed, match="which this server acknowledged before"):
            await client(bus).call(MAPS, "work", b"x", timeout=PATIENCE_SECONDS)


async def test_a_notification_waits_for_a_listener_and_goes_to_one_of_them(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus()
    heard: list[tuple[str, Notification]] = []

    def listener(name: str, *priorities: Priority) -> AsyncBusListener:
        return AsyncBusListener(
            far, MAPS, lambda notification: heard.append((name, notification)), priorities=priorities
        )

    async with listener("early", Priority.INFO):
        pass
    for number in range(20):
        await client(bus).notify(MAPS, "map.loaded", str(number).encode(), publisher="here", timeout=PATIENCE_SECONDS)
    async with listener("a", Priority.INFO), listener("b", Priority.INFO, Priority.ERROR):
        await until_async(lambda: len(heard) >= 20)
        await client(bus).notify(MAPS, "map.lost", priority=Priority.ERROR, timeout=PATIENCE_SECONDS)
        await until_async(lambda: len(heard) >= 21)
    assert sorted(int(notification.body) for _, notification in heard[:20]) == list(range(20))
    assert {(notification.event_type, notification.publisher) for _, notification in heard[:20]} == {
        ("map.loaded", "here")
    }
    assert (heard[20][0], heard[20][1].event_type) == ("b", "map.lost")


async def test_a_notification_is_acknowledged_when_its_handler_ends_and_goes_back_on_requeue(
    open_bus: OpenBus, deliveries_of_rejected: int
) -> None:
    bus, far = await open_bus(), await open_bus()
    heard: list[bytes] = []

    def handler(notification: Notification) -> None:
        heard.append(notification.body)
        if notification.body == b"again" and heard.count(b"again") < 3:
            raise Requeue
        if notification.body == b"bad":
            raise LookupError("cannot be read")

    async with AsyncBusListener(far, MAPS, handler, concurrency=1):
        for body in (b"again", b"bad", b"last"):
            await client(bus).notify(MAPS, "event", body, timeout=PATIENCE_SECONDS)
        await until_async(lambda: heard.count(b"again") == 3 and b"last" in heard)
        await until_async(lambda: heard.count(b"bad") == deliveries_of_rejected)
        await client(bus).notify(MAPS, "event", b"after", timeout=PATIENCE_SECONDS)
        await until_async(lambda: b"after" in heard)
    assert heard.count(b"bad") == deliveries_of_rejected


async def test_a_slow_server_holds_no_more_than_its_credit_and_others_get_the_rest(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus(settings=BusSettings(server_credit=10))
    go, most, seen = asyncio.Event(), 0, 0

    async def wait(request: BusRequest) -> None:
        nonlocal most, seen
        most = max(most, server.in_hand)
        seen += 1
        await go.wait()

    server = AsyncBusServer(far, named("n"), echo(wait=wait), concurrency=3)
    async with server:
        await asyncio.gather(*(client(bus).cast(MAPS, "wait", timeout=PATIENCE_SECONDS) for _ in range(200)))
        # Of the three that run, all are acknowledged, so that their room was granted again.
        await until_async(lambda: server.in_hand >= 10)
        assert seen == 3
        go.set()
        await until_async(lambda: seen == 200)
    assert most <= 13


async def test_a_server_that_stops_answers_what_it_began_and_gives_back_the_rest(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus()
    go = asyncio.Event()
    begun: list[str] = []

    def noting(server: str) -> list[Endpoint]:
        async def work(request: BusRequest) -> bytes:
            begun.append(server)
            await go.wait()
            return server.encode()

        return echo(work=work)

    first = AsyncBusServer(far, named("n1"), noting("n1"), concurrency=1)
    await first.start()
    calls = [asyncio.create_task(client(bus).call(MAPS, "work", timeout=PATIENCE_SECONDS)) for _ in range(5)]
    await until_async(lambda: first.in_hand == 5)
    stopping = asyncio.create_task(first.stop())
    async with AsyncBusServer(far, named("n2"), noting("n2")):
        await until_async(lambda: len(begun) == 5)
        go.set()
        answers = [answer.body for answer in await asyncio.gather(*calls)]
        await stopping
    assert sorted(answers) == [b"n1", *[b"n2"] * 4]
    assert begun[0] == "n1"


async def test_servers_of_a_topic_take_turns(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus()

    def who(server: str) -> list[Endpoint]:
        return echo(name=lambda request: server.encode())

    async with AsyncBusServer(far, named("n1"), who("n1")), AsyncBusServer(far, named("n2"), who("n2")):
        answers = await asyncio.gather(*(client(bus).call(MAPS, "name", timeout=PATIENCE_SECONDS) for _ in range(40)))
    assert {answer.body for answer in answers} == {b"n1", b"n2"}
