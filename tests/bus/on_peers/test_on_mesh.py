"""The bus over a mesh of routers: what holds over every peer, and what a mesh does in its own way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus, AsyncBusServer
from osrdyne_bus.errors import DeliveryFailure, MessagingTimeout, PeerLost
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.settings import BusSettings
from osrdyne_calls.handling import Requeue
from testbed.mesh.router import Router, mesh
from testbed.waiting import PATIENCE, until_async
from tests.bus.on_peers.conformance import *  # noqa: F403 - its tests
from tests.bus.on_peers.conformance import MAPS, client, echo, named
from tests.bus.on_peers.conftest import OpenBus

Mesh = dict[str, Router]


@pytest.fixture
async def routers() -> AsyncIterator[Mesh]:
    """Four routers, each connected to each other, as in the figure of the specification."""
    made = await mesh("ABCD", "AB AC AD BC BD CD")
    await until_async(lambda: all(len(one.states) == 4 and one.reaches_all() for one in made.values()))
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
        for target in (MAPS, named("n")):
            assert (await client(caller).call(target, "echo", b"x", timeout=PATIENCE)).body == b"x"
    passed = {name: sum(router.passed.values()) for name, router in routers.items()}
    assert passed == {"A": 4, "B": 0, "C": 4, "D": 0}


async def test_the_nearest_server_is_taken_and_a_farther_one_once_that_has_gone(
    open_bus: OpenBus, routers: Mesh
) -> None:
    caller, near, far = await open_bus("C"), await open_bus("C"), await open_bus("A")

    def who(server: str) -> Any:
        return echo(name=lambda request: server.encode())

    async with AsyncBusServer(far, named("far"), who("far")):
        async with AsyncBusServer(near, named("near"), who("near")):
            answers = [(await client(caller).call(MAPS, "name", timeout=PATIENCE)).body for _ in range(10)]
            assert answers == [b"near"] * 10
        assert (await client(caller).call(MAPS, "name", timeout=PATIENCE)).body == b"far"


async def test_without_a_server_there_is_no_credit_and_a_message_fails_in_its_time(open_bus: OpenBus) -> None:
    bus = await open_bus("A", settings=BusSettings(call_timeout=0.5, notification_timeout=0.5))
    with pytest.raises(MessagingTimeout, match=r"had no credit; it was not sent"):
        await client(bus).call(MAPS, "echo", timeout=0.5)
    for send in (client(bus).call, client(bus).cast, client(bus).fanout, client(bus).notify):
        with pytest.raises(DeliveryFailure, match=r"within 0.5 s the message .* had no credit; it was not sent"):
            await send(MAPS, "echo")


async def test_a_cast_is_acknowledged_by_its_server_and_a_fanout_by_the_mesh(open_bus: OpenBus) -> None:
    bus, far = await open_bus("A"), await open_bus("D")
    go = asyncio.Event()
    seen: list[str] = []

    async def wait(request: BusRequest) -> None:
        seen.append(request.method)
        await go.wait()

    async with AsyncBusServer(far, named("n"), echo(wait=wait), acknowledge="end"):
        cast = asyncio.create_task(client(bus).cast(MAPS, "wait", timeout=PATIENCE))
        await client(bus).fanout(MAPS, "wait", timeout=PATIENCE)
        await until_async(lambda: len(seen) == 2)
        assert not cast.done()
        go.set()
        await cast


async def test_a_server_that_died_with_a_request_is_a_failed_delivery_for_its_caller(open_bus: OpenBus) -> None:
    bus, dying = await open_bus("A"), await open_bus("D")
    begun = asyncio.Event()

    async def hang(request: BusRequest) -> None:
        begun.set()
        await asyncio.Event().wait()

    server = AsyncBusServer(dying, named("n"), echo(hang=hang), acknowledge="end")
    await server.start()
    waiting = asyncio.create_task(client(bus).call(MAPS, "hang", timeout=PATIENCE))
    await begun.wait()
    await dying.close()
    with pytest.raises(DeliveryFailure, match=r"a receiver gave it back, and may have begun"):
        await waiting
    for task in [task for task in asyncio.all_tasks() if "Consumer._process" in repr(task)]:
        task.cancel()


async def test_a_request_that_a_handler_gives_back_is_a_failed_delivery_and_is_sent_again_if_set(
    open_bus: OpenBus,
) -> None:
    once, again, far = await open_bus("A"), await open_bus("A", settings=BusSettings(resends=5)), await open_bus("D")
    tried: list[bytes] = []

    def work(request: BusRequest) -> bytes:
        tried.append(request.body)
        if len(tried) % 3:
            raise Requeue
        return b"done"

    async with AsyncBusServer(far, named("n"), echo(work=work), acknowledge="end"):
        with pytest.raises(DeliveryFailure, match=r"was released: no receiver took it"):
            await client(once).call(MAPS, "work", timeout=PATIENCE)
        assert tried == [b""]
        tried.clear()
        assert (await client(again).call(MAPS, "work", b"x", timeout=PATIENCE)).body == b"done"
        assert tried == [b"x"] * 3


async def test_when_a_router_dies_calls_end_and_later_ones_take_the_other_path() -> None:
    # A and D have two ways to each other: over B and over C.
    routers = await mesh("ABCD", "AB AC BD CD")
    try:
        await until_async(lambda: all(len(one.states) == 4 and one.reaches_all() for one in routers.values()))
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
            assert sum(routers["B"].passed.values()) == 10
            assert sum(routers["C"].passed.values()) == 0
            routers["B"].kill()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(one) for one in ended} == {DeliveryFailure}
            go.set()

            async def answered() -> bool:
                try:
                    return (await client(bus).call(MAPS, "echo", b"x", timeout=PATIENCE)).body == b"x"
                except DeliveryFailure:  # as long as the routers do not know of the other way
                    return False

            while not await answered():
                pass
            assert sum(routers["C"].passed.values()) >= 2
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
        waiting = asyncio.create_task(client(bus).call(MAPS, "wait", timeout=PATIENCE))
        await begun.wait()
        # Its request was acknowledged, and its reply has no way any more.
        await until_async(lambda: not routers["A"].held)
        routers["A"].kill()
        with pytest.raises(PeerLost):
            await waiting
        assert (await client(bus).call(MAPS, "echo", b"x", timeout=PATIENCE)).body == b"x"
        assert bus.peer == f"127.0.0.1:{routers['B'].port}"
        go.set()


async def test_ten_thousand_casts_to_a_slow_server_wait_at_their_sender_and_nowhere_else(
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
                await client(bus).cast(MAPS, "work", bytes(1000), timeout=PATIENCE)

        await asyncio.gather(*(send() for _ in range(200)))
        assert done == 10_000
    # 100 is the credit of the subscription; with it the routers' promises are used up.
    assert most <= 100
    assert max(router.most_held for router in routers.values()) <= 100


async def test_a_mesh_has_another_bus_beside_this_one(open_bus: OpenBus) -> None:
    bus, far = await open_bus("A"), await open_bus("B")
    async with AsyncBusServer(far, named("n"), echo()):
        assert (await client(bus).call(MAPS, "echo", b"x", timeout=PATIENCE)).body == b"x"
        with pytest.raises(MessagingTimeout):
            await client(bus).call(Target("maps", exchange="other"), "echo", timeout=0.5)
