"""The bus over Apache ActiveMQ Artemis: what holds over every peer and broker, and what Artemis does in its own way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from osrdyne_bus.aio import AsyncBus, AsyncBusServer
from osrdyne_bus.engine import BusConnection, Login
from osrdyne_bus.errors import LinkRefused
from testbed.artemis import Artemis
from testbed.waiting import until_async
from tests.bus.on_peers.brokers import *  # noqa: F403 - its tests
from tests.bus.on_peers.conformance import *  # noqa: F403 - its tests
from tests.bus.on_peers.conformance import echo, named
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.makers import *  # noqa: F403 - its tests

pytestmark = pytest.mark.xdist_group("bus on artemis")


@pytest.fixture(scope="module")
def artemis() -> Iterator[Artemis]:
    with Artemis() as started:
        yield started


@pytest.fixture
def port(artemis: Artemis) -> int:
    """Where the peer listens."""
    return artemis.port


@pytest.fixture
def deliveries_of_rejected() -> int:
    """How often a message comes that a receiver rejects."""
    return 1


@pytest.fixture
async def open_bus(artemis: Artemis) -> AsyncIterator[OpenBus]:
    """Opens buses; closes them in the end, and deletes what they made."""
    opened: list[AsyncBus] = []

    async def one(*, port: int = artemis.port, password: str = artemis.password, **given: Any) -> AsyncBus:
        made = AsyncBus(f"amqp://{artemis.user}:{password}@127.0.0.1:{port}", **given)
        await made.open()
        opened.append(made)
        return made

    yield one
    for bus in opened:
        await bus.close()
    await asyncio.to_thread(artemis.empty)


async def test_the_queue_of_fanouts_is_deleted_with_its_server_and_the_others_stay(
    open_bus: OpenBus, artemis: Artemis
) -> None:
    far = await open_bus()
    async with AsyncBusServer(far, named("n"), echo()):
        queues = await asyncio.to_thread(artemis.queues)
        assert len(queues) == 3
    await far.close()
    kept = ["exclusive.osrdyne.maps.n", "unicast.osrdyne.maps"]
    await until_async(lambda: asyncio.to_thread(lambda: sorted(artemis.queues()) == kept))


async def test_an_address_that_is_not_of_the_bus_is_refused(artemis: Artemis) -> None:
    login = Login(artemis.user, artemis.password)
    connection = await BusConnection.connect("127.0.0.1", artemis.port, login=login)
    with pytest.raises(LinkRefused, match="does not exist"):
        await connection.sender("other.osrdyne.maps", capabilities=("queue",))
    await connection.close()


async def test_the_broker_of_the_tests_takes_messages_however_full_the_disk_is(artemis: Artemis) -> None:
    # 90 per cent by default, also of what others have written.
    assert await asyncio.to_thread(artemis.ask, "getMaxDiskUsage") == -1
