"""The bus over Apache Qpid Broker-J: what holds over every peer and broker, and what Broker-J does in its own way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from osrdyne_bus.aio import AsyncBus, AsyncBusServer
from osrdyne_bus.errors import ConnectFailed, MessageTooLarge
from testbed.broker_j import ATTEMPTS, BrokerJ
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.brokers import *  # noqa: F403 - its tests
from tests.bus.on_peers.conformance import *  # noqa: F403 - its tests
from tests.bus.on_peers.conformance import MAPS, client, echo, named
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.makers import *  # noqa: F403 - its tests

pytestmark = pytest.mark.xdist_group("bus on broker-j")


@pytest.fixture(scope="module")
def broker_j() -> Iterator[BrokerJ]:
    with BrokerJ() as started:
        yield started


@pytest.fixture
def port(broker_j: BrokerJ) -> int:
    """Where the peer listens."""
    return broker_j.port


@pytest.fixture
def deliveries_of_rejected() -> int:
    """How often a message comes that a receiver rejects."""
    return ATTEMPTS


@pytest.fixture
def virtual_host(broker_j: BrokerJ) -> Iterator[str]:
    name = broker_j.add_virtual_host()
    yield name
    broker_j.remove_virtual_host(name)


@pytest.fixture
async def open_bus(broker_j: BrokerJ, virtual_host: str) -> AsyncIterator[OpenBus]:
    """Opens buses on the test's virtual host; closes them in the end."""
    opened: list[AsyncBus] = []

    async def one(*, port: int = broker_j.port, password: str = broker_j.password, **given: Any) -> AsyncBus:
        peer = f"amqp://{broker_j.user}:{password}@127.0.0.1:{port}?hostname={virtual_host}"
        made = AsyncBus(peer, **given)
        await made.open()
        opened.append(made)
        return made

    yield one
    for bus in opened:
        await bus.close()


async def test_a_virtual_host_that_is_not_there_is_named(broker_j: BrokerJ) -> None:
    with pytest.raises(ConnectFailed, match="Unknown hostname in connection open: 'nowhere'"):
        await AsyncBus(f"amqp://{broker_j.user}:{broker_j.password}@127.0.0.1:{broker_j.port}?hostname=nowhere").open()


async def test_a_message_that_the_peer_does_not_take_is_refused_before_it_leaves(open_bus: OpenBus) -> None:
    bus = await open_bus()
    with pytest.raises(MessageTooLarge, match="its peer takes at most") as raised:
        await client(bus).cast(MAPS, "echo", bytes(101 * 2**20), timeout=PATIENCE_SECONDS)
    assert raised.value.limit == 100 * 2**20 < raised.value.size


async def test_the_queue_of_fanouts_is_deleted_with_its_server_and_the_others_stay(
    open_bus: OpenBus, broker_j: BrokerJ, virtual_host: str
) -> None:
    far = await open_bus()
    async with AsyncBusServer(far, named("n"), echo()):
        assert len(broker_j.queues(virtual_host)) == 3
    await far.close()
    kept = ["exclusive.osrdyne.maps.n", "unicast.osrdyne.maps"]
    await until_async(lambda: sorted(broker_j.queues(virtual_host)) == kept, within=30)
