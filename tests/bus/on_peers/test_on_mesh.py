"""The bus over a mesh of routers: what holds over every peer, and what a mesh does in its own way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from osrdyne_bus.addresses import Routable
from osrdyne_bus.aio import AsyncBus, AsyncBusServer
from osrdyne_bus.errors import DeliveryFailure, PeerLost
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.settings import BusSettings
from testbed.mesh.lanes import CAPACITY
from testbed.mesh.router import Router, mesh
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conformance import *  # noqa: F403 - its tests
from tests.bus.on_peers.conformance import MAPS, client, echo, named
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.routed import *  # noqa: F403 - its tests

Mesh = dict[str, Router]


@pytest.fixture
async def routers() -> AsyncIterator[Mesh]:
    """Four routers, each connected to each other, as in the figure of the specification."""
    made = await mesh("ABCD", "AB AC AD BC BD CD")
    await until_async(lambda: all(len(lane.states) == 4 and lane.reaches_all() for lane in made.values()))
    yield made
    for router in made.values():
        router.kill()


@pytest.fixture
async def open_bus(routers: Mesh) -> AsyncIterator[OpenBus]:
    """Opens buses at a router, in turn at each where none is named; closes them in the end."""
    opened: list[AsyncBus] = []

    async def one(at: str | None = None, **given: Any) -> AsyncBus:
        names = at or sorted(routers)[len(opened) % len(routers)]
        made = AsyncBus([f"amqp://127.0.0.1:{routers[name].port}" for name in names], **given)
        await made.open()
        opened.append(made)
        return made

    yield one
    for bus in opened:
        await bus.close()


async def test_a_call_passes_only_the_routers_on_the_shortest_path(open_bus: OpenBus, routers: Mesh) -> None:
    caller, server = await open_bus("C"), await open_bus("A")
    async with AsyncBusServer(server, named("n"), echo()):
        for router in routers.values():
            router.passed.clear()
        for target in (MAPS, named("n")):
            assert (await client(caller).call(target, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
    passed = {name: sum(router.passed.values()) for name, router in routers.items()}
    assert passed == {"A": 4, "B": 0, "C": 4, "D": 0}


async def test_when_a_router_dies_calls_end_and_later_ones_take_the_other_path() -> None:
    # A and D have two ways to each other: over B and over C.
    routers = await mesh("ABCD", "AB AC BD CD")
    try:
        await until_async(lambda: all(len(router.states) == 4 and router.reaches_all() for router in routers.values()))
        uris = {name: f"amqp://127.0.0.1:{router.port}" for name, router in routers.items()}
        go, begun = asyncio.Event(), 0

        async def wait(request: BusRequest) -> bytes:
            nonlocal begun
            begun += 1
            await go.wait()
            return b"done"

        settings = BusSettings(reply_timeout=1)
        async with (
            AsyncBus(uris["A"]) as bus,
            AsyncBus(uris["D"], settings=settings) as far,
            AsyncBusServer(far, named("n"), echo(wait=wait), concurrency=5, acknowledge="end"),
        ):
            calls = [asyncio.create_task(client(bus).call(MAPS, "wait", timeout=5)) for _ in range(10)]
            await until_async(lambda: begun == 5)
            asked = Routable().shared(MAPS)
            assert [routers[name].passed[asked] for name in "BC"] == [10, 0]
            routers["B"].kill()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(result) for result in ended} == {DeliveryFailure}
            go.set()

            async def answered() -> bool:
                try:
                    return (await client(bus).call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
                except DeliveryFailure:  # as long as the routers do not know of the other way
                    return False

            while not await answered():
                pass
            assert routers["C"].passed[asked] >= 1
    finally:
        for router in routers.values():
            router.kill()


async def test_when_its_own_router_dies_a_program_goes_to_another(open_bus: OpenBus, routers: Mesh) -> None:
    bus, far = await open_bus("AB"), await open_bus("D", settings=BusSettings(reply_timeout=1))
    begun, go = asyncio.Event(), asyncio.Event()

    async def wait(request: BusRequest) -> None:
        begun.set()
        await go.wait()

    async with AsyncBusServer(far, named("n"), echo(wait=wait)):
        waiting = asyncio.create_task(client(bus).call(MAPS, "wait", timeout=PATIENCE_SECONDS))
        await begun.wait()
        # Its request was acknowledged, and its reply has no way any more.
        await until_async(lambda: not routers["A"].held)
        routers["A"].kill()
        with pytest.raises(PeerLost):
            await waiting
        assert (await client(bus).call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
        assert bus.peer == f"127.0.0.1:{routers['B'].port}"
        go.set()


async def test_of_ten_thousand_casts_to_a_slow_server_a_router_holds_what_its_links_may_have(
    open_bus: OpenBus, routers: Mesh
) -> None:
    bus, far = await open_bus("A"), await open_bus("D")
    most = done = 0

    async def work(request: BusRequest) -> None:
        nonlocal most, done
        most = max(most, server.in_hand)
        done += 1
        await asyncio.sleep(0)

    server = AsyncBusServer(far, named("n"), echo(work=work), concurrency=4, acknowledge="end")
    async with server:
        left = iter(range(10_000))

        async def send() -> None:
            for _ in left:
                await client(bus).cast(MAPS, "work", bytes(1000), timeout=PATIENCE_SECONDS)

        await asyncio.gather(*(send() for _ in range(200)))
        assert done == 10_000
    # 100 is the credit of the subscription. The other messages wait at their sender.
    assert most <= 100
    assert max(router.most_held for router in routers.values()) <= CAPACITY
