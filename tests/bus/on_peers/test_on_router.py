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
from testbed.waiting import PATIENCE, until_async
from tests.bus.on_peers.conformance import *  # noqa: F403 - its tests
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.routed import *  # noqa: F403 - its tests

pytestmark = pytest.mark.xdist_group("bus on routers")


@pytest.fixture(scope="module")
def ports() -> Iterator[Mapping[str, int]]:
    """Where four routers listen that know each other."""
    with full_mesh("ABCD") as routers:
        found = {name: router.port for name, router in routers.items()}
        for port in found.values():
            asyncio.run(_knows(port, len(found) - 1))
        yield found


async def _knows(port: int, number: int) -> None:
    """Wait until a router knows so many others, and has their answers."""
    connection = await BusConnection.connect("127.0.0.1", port)
    async with RouterManagement.opened(connection) as management:
        assert management is not None
        asked = management

        async def knows() -> bool:
            _, others = await asked.others(PATIENCE)
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
