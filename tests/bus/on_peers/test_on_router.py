"""The bus over two routers of the kind that OSRDYNE_ROUTER names: what holds over every peer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from osrdyne_bus.aio import AsyncBus
from testbed.interior_router import InteriorRouter
from tests.bus.on_peers.conformance import *  # noqa: F403 - its tests
from tests.bus.on_peers.conftest import OpenBus

pytestmark = pytest.mark.xdist_group("bus on routers")


@pytest.fixture(scope="module")
def ports() -> Iterator[list[int]]:
    """Where two connected routers listen."""
    with InteriorRouter("A") as one, InteriorRouter("B", to=one) as other:
        yield [one.port, other.port]


@pytest.fixture
async def open_bus(ports: list[int]) -> AsyncIterator[OpenBus]:
    """Opens buses, in turn at each router; closes them in the end."""
    opened: list[AsyncBus] = []

    async def one(**given: Any) -> AsyncBus:
        made = AsyncBus(f"amqp://127.0.0.1:{ports[len(opened) % 2]}", **given)
        await made.open()
        opened.append(made)
        return made

    yield one
    for bus in opened:
        await bus.close()
