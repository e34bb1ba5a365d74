"""What holds of the bus over every mesh of routers: nothing is kept, and receivers answer for what they took.

A module for each mesh has all of these tests, and a fixture `open_bus(at)`: a bus at the router A, B, C or D, which are
connected each to each other, as in the figure of the specification.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBusClient, AsyncBusServer
from osrdyne_bus.errors import DeliveryFailure, MessagingTimeout
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.settings import BusSettings
from osrdyne_calls.handling import Requeue
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conformance import client, echo, named
from tests.bus.on_peers.conftest import OpenBus


async def test_the_nearest_server_is_taken_and_a_farther_one_once_that_has_gone(
    open_bus: OpenBus, maps: Target
) -> None:
    caller, near, far = await open_bus("C"), await open_bus("C"), await open_bus("A")

    def who(server: str) -> Any:
        return echo(name=lambda request: server.encode())

    async with AsyncBusServer(far, named("far", maps), who("far")):
        async with AsyncBusServer(near, named("near", maps), who("near")):
            answers = [(await client(caller).call(maps, "name", timeout=PATIENCE_SECONDS)).body for _ in range(10)]
            assert answers == [b"near"] * 10
        assert (await client(caller).call(maps, "name", timeout=PATIENCE_SECONDS)).body == b"far"


async def test_without_a_server_there_is_no_credit_and_a_message_fails_in_its_time(
    open_bus: OpenBus, maps: Target
) -> None:
    bus = await open_bus("A", settings=BusSettings(call_timeout=0.5, notification_timeout=0.5))
    with pytest.raises(MessagingTimeout, match=r"had no credit; it was not sent"):
        await client(bus).call(maps, "echo", timeout=0.5)
    for send in (client(bus).call, client(bus).cast, client(bus).fanout, client(bus).notify):
        with pytest.raises(DeliveryFailure, match=r"within 0.5 s the message .* had no credit; it was not sent"):
            await send(maps, "echo")


async def test_a_cast_is_acknowledged_by_its_server_and_a_fanout_by_no_one(open_bus: OpenBus, maps: Target) -> None:
    bus, far = await open_bus("A"), await open_bus("D")
    go = asyncio.Event()
    seen: list[str] = []

    async def wait(request: BusRequest) -> None:
        seen.append(request.method)
        await go.wait()

    async with AsyncBusServer(far, named("n", maps), echo(wait=wait), acknowledge="end"):
        cast = asyncio.create_task(client(bus).cast(maps, "wait", timeout=PATIENCE_SECONDS))
        await client(bus).fanout(maps, "wait", timeout=PATIENCE_SECONDS)
        await until_async(lambda: len(seen) == 2)
        assert not cast.done()
        go.set()
        await cast


async def test_a_fanout_over_a_mesh_reaches_each_server_once(open_bus: OpenBus, maps: Target) -> None:
    bus, *others = [await open_bus(at) for at in "ABCD"]
    names = ("b", "c", "d")
    seen: list[str] = []
    async with AsyncExitStack() as stack:
        for far, name in zip(others, names, strict=True):
            noting = echo(note=partial(lambda name, request: seen.append(name), name))
            await stack.enter_async_context(AsyncBusServer(far, named(name, maps), noting))
        await client(bus).fanout(maps, "note", timeout=PATIENCE_SECONDS)
        await until_async(lambda: len({*seen}) == len(names))
        # A call from each to each shows that no second one is on its way there, by way of another router.
        for far in (bus, *others):
            for name in names:
                await client(far).call(named(name, maps), "echo", timeout=PATIENCE_SECONDS)
    assert sorted(seen) == list(names)


async def test_a_server_that_hangs_holds_up_no_fanout_to_the_others(open_bus: OpenBus, maps: Target) -> None:
    bus, hanging, far = await open_bus("A"), await open_bus("D"), await open_bus("B")
    go = asyncio.Event()
    seen: list[bytes] = []

    async def wait(request: BusRequest) -> None:
        await go.wait()

    async def note(request: BusRequest) -> None:
        seen.append(request.body)

    hung = AsyncBusServer(hanging, named("hung", maps), echo(note=wait), concurrency=1, acknowledge="end")
    async with hung, AsyncBusServer(far, named("n", maps), echo(note=note), acknowledge="end"):
        # More than a router holds for a sender, and for a receiver.
        sent = [str(number).encode() for number in range(600)]
        try:
            for at in range(0, len(sent), 100):
                for body in sent[at : at + 100]:
                    await client(bus).fanout(maps, "note", body, timeout=PATIENCE_SECONDS)
                # A router drops what comes faster than a server takes it.
                await until_async(partial(lambda most: len({*seen}) == most, at + 100))
            assert {*seen} == {*sent}
            await until_async(lambda: hung.in_hand > 0)
        finally:
            go.set()


async def test_a_cast_that_a_router_held_for_longer_than_its_time_is_not_begun(open_bus: OpenBus, maps: Target) -> None:
    bus, far = await open_bus("A"), await open_bus("D", settings=BusSettings(server_credit=1))
    go = asyncio.Event()
    seen: list[bytes] = []

    async def wait(request: BusRequest) -> None:
        seen.append(request.body)
        await go.wait()

    async with AsyncBusServer(far, named("n", maps), echo(wait=wait), concurrency=1, acknowledge="end"):
        first = asyncio.create_task(client(bus).cast(maps, "wait", b"first", timeout=PATIENCE_SECONDS))
        await until_async(lambda: bool(seen))
        with pytest.raises(MessagingTimeout, match="was not acknowledged; it may have been delivered"):
            await client(bus).cast(maps, "wait", b"second", timeout=0.5)
        go.set()
        await first
        # What comes after it is served, so that it has gone by.
        assert (await client(bus).call(maps, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
    assert seen == [b"first"]


async def test_a_server_that_died_with_a_request_is_a_failed_delivery_for_its_caller(
    open_bus: OpenBus, maps: Target
) -> None:
    bus, dying = await open_bus("A"), await open_bus("D")
    begun = asyncio.Event()

    async def hang(request: BusRequest) -> None:
        begun.set()
        await asyncio.Event().wait()

    server = AsyncBusServer(dying, named("n", maps), echo(hang=hang), acknowledge="end")
    await server.start()
    waiting = asyncio.create_task(client(bus).call(maps, "hang", timeout=PATIENCE_SECONDS))
    await begun.wait()
    await dying.close()
    with pytest.raises(DeliveryFailure, match=r"a receiver gave it back, and may have begun"):
        await waiting
    for task in [task for task in asyncio.all_tasks() if "Consumer._process" in repr(task)]:
        task.cancel()


async def test_a_request_that_a_server_died_with_is_sent_again_where_that_is_set(
    open_bus: OpenBus, maps: Target
) -> None:
    bus = await open_bus("A", settings=BusSettings(resend_modified=True))
    dying, far = await open_bus("D"), await open_bus("B")
    begun = asyncio.Event()

    async def hang(request: BusRequest) -> None:
        begun.set()
        await asyncio.Event().wait()

    await AsyncBusServer(dying, named("n", maps), echo(work=hang), acknowledge="end").start()
    waiting = asyncio.create_task(client(bus).call(maps, "work", timeout=PATIENCE_SECONDS))
    await begun.wait()
    async with AsyncBusServer(far, named("far", maps), echo(work=lambda request: b"done")):
        await dying.close()
        assert (await waiting).body == b"done"
    for task in [task for task in asyncio.all_tasks() if "Consumer._process" in repr(task)]:
        task.cancel()


async def test_a_request_that_a_handler_gives_back_is_sent_again_in_its_time_or_as_often_as_is_set(
    open_bus: OpenBus, maps: Target
) -> None:
    bus, far = await open_bus("A"), await open_bus("D")
    once, twice = (
        await open_bus("A", settings=BusSettings(resends=0)),
        await open_bus("A", settings=BusSettings(resends=1)),
    )
    tried: list[bytes] = []

    def work(request: BusRequest) -> bytes:
        tried.append(request.body)
        if request.body != b"third time" or tried.count(request.body) < 3:
            raise Requeue
        return b"done"

    async with AsyncBusServer(far, named("n", maps), echo(work=work), acknowledge="end"):
        assert (await client(bus).call(maps, "work", b"third time", timeout=PATIENCE_SECONDS)).body == b"done"
        for sender, body, timeout in (
            (once, b"once", PATIENCE_SECONDS),
            (twice, b"twice", PATIENCE_SECONDS),
            (bus, b"never", 1.0),
        ):
            with pytest.raises(DeliveryFailure, match=r"was released: no receiver took it"):
                await client(sender).call(maps, "work", body, timeout=timeout)
    assert [tried.count(body) for body in (b"third time", b"once", b"twice")] == [3, 1, 2]
    assert tried.count(b"never") > 2


@pytest.mark.parametrize("acknowledge", ["start", "end"])
async def test_a_server_that_stops_finishes_what_it_began_and_another_one_serves_the_rest(
    open_bus: OpenBus, maps: Target, acknowledge: Any
) -> None:
    bus, stopping, far = await open_bus("A"), await open_bus("B"), await open_bus("D")
    go = asyncio.Event()
    served: list[str] = []

    async def slow(request: BusRequest) -> bytes:
        await go.wait()
        return b"old"

    async def quick(request: BusRequest) -> bytes:
        served.append("new")
        return b"new"

    old = AsyncBusServer(stopping, named("old", maps), echo(work=slow), concurrency=1, acknowledge=acknowledge)
    await old.start()
    calls = [asyncio.create_task(client(bus).call(maps, "work", timeout=PATIENCE_SECONDS)) for _ in range(20)]
    await until_async(lambda: old.in_hand == 20)
    async with AsyncBusServer(far, named("new", maps), echo(work=quick)):
        stop = asyncio.gather(old.stop(), old.stop())
        try:
            await until_async(lambda: len(served) == 19)
        finally:
            go.set()
        await stop
        answers = [answer.body for answer in await asyncio.gather(*calls)]
    assert sorted(answers) == [*[b"new"] * 19, b"old"]


@pytest.mark.parametrize("acknowledge", ["start", "end"])
async def test_callers_see_no_failure_when_one_of_two_servers_stops(
    open_bus: OpenBus, maps: Target, acknowledge: Any
) -> None:
    first, second = await open_bus("A"), await open_bus("D")
    callers = [client(await open_bus("ABCD"[at % 4])) for at in range(10)]
    stopped = asyncio.Event()

    async def work(request: BusRequest) -> None:
        await asyncio.sleep(0.001)

    async def ask(caller: AsyncBusClient) -> None:
        left = 20
        while left:
            await caller.call(maps, "work", timeout=PATIENCE_SECONDS)
            left -= stopped.is_set()

    one = AsyncBusServer(first, named("one", maps), echo(work=work), concurrency=2, acknowledge=acknowledge)
    await one.start()
    async with AsyncBusServer(second, named("two", maps), echo(work=work), concurrency=2, acknowledge=acknowledge):
        asking = [asyncio.create_task(ask(caller)) for caller in callers]
        await until_async(lambda: one.in_hand > 0)
        await one.stop()
        stopped.set()
        await asyncio.gather(*asking)


async def test_a_mesh_has_another_bus_beside_this_one(open_bus: OpenBus, maps: Target) -> None:
    bus, far = await open_bus("A"), await open_bus("B")
    async with AsyncBusServer(far, named("n", maps), echo()):
        assert (await client(bus).call(maps, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
        with pytest.raises(MessagingTimeout):
            await client(bus).call(replace(maps, exchange="other"), "echo", timeout=0.5)
