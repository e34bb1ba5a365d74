"""The bus over four routers of the kind that OSRDYNE_ROUTER names: what holds over every peer, and over every mesh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from osrdyne_bus.aio import AsyncBus
from osrdyne_bus.engine import BusConnection
from osrdyne_bus.engine.router_management import RouterManagement
from osrdyne_bus.errors import DeliveryFailure
from testbed.interior_router import full_mesh
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conformance import *  # noqa: F403 - its tests
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.routed import *  # noqa: F403 - its tests

pytestmark = pytest.mark.xdist_group("bus on routers")

#: Seen with 1.19.0: a router that passes on what is for all receivers does not look where it came in. So in a circle of
#: routers each passes it to the others. Dispatch is retired; skupper-router has had the mend since 3.1.
TWICE = (
    "qpid-dispatch delivers a multicast over each path: https://github.com/skupperproject/skupper-router/issues/1365"
)


@pytest.fixture(scope="module")
def ports() -> Iterator[Mapping[str, int]]:
    """Where four routers listen that know each other."""
    with full_mesh("ABCD") as routers:
        found = {name: router.port for name, router in routers.items()}
        for port in found.values():
            asyncio.run(_knows(port, len(found) - 1))
        yield found


@pytest.fixture(scope="module")
def product(ports: Mapping[str, int]) -> str:
    """What the routers say that they are."""
    return asyncio.run(_product(ports["A"]))


@pytest.fixture(autouse=True)
def known_fault(request: pytest.FixtureRequest, product: str) -> None:
    """Expect the failure of a test that a product fails by its own fault."""
    fanouts = request.function.__name__ == "test_a_fanout_over_a_mesh_reaches_each_server_once"
    if fanouts and "qpid-dispatch" in product:
        request.applymarker(pytest.mark.xfail(strict=True, reason=TWICE))


async def _product(port: int) -> str:
    connection = await BusConnection.connect("127.0.0.1", port)
    await connection.close()
    return str(connection.properties["product"])


async def _knows(port: int, number: int) -> None:
    """Wait until a router knows so many others, and has their answers."""
    connection = await BusConnection.connect("127.0.0.1", port)
    async with RouterManagement.opened(connection) as management:
        assert management is not None
        asked = management

        async def knows() -> bool:
            _, others = await asked.others(PATIENCE_SECONDS)
            with suppress(TimeoutError, DeliveryFailure):
                await asyncio.gather(*(asked.read("any", 1.0, at=at) for at in others.values()))
                return len(others) == number
            return False

        await until_async(knows)
    await connection.close()


@pytest.fixture
async def open_bus(ports: Mapping[str, int]) -> AsyncIterator[OpenBus]:
    """Opens buses at a router, in turn at each where none is named; closes them in the end."""
    opened: list[AsyncBus] = []

    async def one(at: str | None = None, **given: Any) -> AsyncBus:
        names = at or sorted(ports)[len(opened) % len(ports)]
        made = AsyncBus([f"amqp://127.0.0.1:{ports[name]}" for name in names], **given)
        await made.open()
        opened.append(made)
        return made

    yield one
    for bus in opened:
        await bus.close()
