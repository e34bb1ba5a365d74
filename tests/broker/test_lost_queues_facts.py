"""How a real broker treats a quorum queue that its registry has lost, as after a kill right after the declare.

`make_lost` has RabbitMQ 4.0 lose a queue without a kill. `python -m tests.broker_facts.lost_queues` shows much more;
docs/reference/rabbitmq-lost-queues.md describes it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from osrdyne_amqp import Connection, Properties
from osrdyne_amqp.errors import Nacked
from osrdyne_pool.broker import quorum
from testbed.broker import DEMO_VERSION, Broker
from testbed.broker_cluster import kill_now
from testbed.waiting import PATIENCE_SECONDS
from tests.broker_facts.fates import EMPTY, LOST, QUORUM, close, declare, fates, make_lost, members, open_channel
from tests.conftest import Vhost

pytestmark = pytest.mark.full
PERSISTENT = Properties(delivery_mode=2)
QUEUE = "queue"


@pytest.fixture
def vhost(brokers: Callable[[str], Broker]) -> Iterator[Vhost]:
    """Return a vhost on the broker that loses queues."""
    made = Vhost(brokers(DEMO_VERSION), f"test-{secrets.token_hex(6)}")
    made.broker.management.add_vhost(made.name, made.broker.admin)
    yield made
    made.broker.management.delete("vhosts", made.name)


@pytest.fixture
async def connection(vhost: Vhost) -> AsyncIterator[Connection]:
    opened = await Connection.open(vhost.amqp_uri(), name="test")
    yield opened
    await opened.close()


async def publish_to_a_new_queue(connection: Connection) -> None:
    channel = await connection.channel(confirm=True)
    await channel.declare_queue(QUEUE, arguments=QUORUM)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await channel.publish("", QUEUE, b"", PERSISTENT)
    await channel.close()


def members_of(vhost: Vhost) -> tuple[quorum.Member, ...]:
    return members(vhost.broker, QUEUE, vhost.name)


async def ready_messages(connection: Connection) -> int:
    channel = await connection.channel()
    found = await channel.declare_queue(QUEUE, passive=True)
    await channel.close()
    return found.ready


async def test_a_healthy_queue_has_had_a_leader(vhost: Vhost, connection: Connection) -> None:
    await publish_to_a_new_queue(connection)
    (member,) = members_of(vhost)
    assert member.state == "leader"
    assert member.term
    assert member.last_index
    assert not quorum.never_led([member])


async def test_a_lost_queue_was_never_led_and_looks_empty(vhost: Vhost, connection: Connection) -> None:
    await publish_to_a_new_queue(connection)
    make_lost(vhost.broker, QUEUE, vhost.name)
    (member,) = members_of(vhost)
    assert (member.state, member.term, member.last_index) == ("follower", 0, 0)
    assert quorum.never_led([member])
    # A passive declare does not show the difference.
    assert await ready_messages(connection) == 0


async def test_a_lost_queue_that_is_deleted_and_declared_again_is_healthy(vhost: Vhost, connection: Connection) -> None:
    await publish_to_a_new_queue(connection)
    make_lost(vhost.broker, QUEUE, vhost.name)
    channel = await connection.channel()
    await channel.delete_queue(QUEUE)
    await publish_to_a_new_queue(connection)
    assert not quorum.never_led(members_of(vhost))
    assert await ready_messages(connection) == 1


async def test_a_publish_that_waits_for_a_lost_queue_is_nacked_when_that_is_deleted(
    vhost: Vhost, connection: Connection
) -> None:
    await publish_to_a_new_queue(connection)
    make_lost(vhost.broker, QUEUE, vhost.name)
    channel = await connection.channel(confirm=True)
    publishing = asyncio.ensure_future(channel.publish("", QUEUE, b"", PERSISTENT))
    # The publish leaves for the broker before the request for another channel does.
    deleting = await connection.channel()
    assert not publishing.done()
    await deleting.delete_queue(QUEUE)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(Nacked):
            await publishing


@pytest.mark.both_versions
def test_a_queue_that_is_declared_just_before_a_kill_is_lost_or_empty(private_broker: Broker) -> None:
    channel = open_channel(private_broker)
    queue = declare(channel, QUEUE)
    kill_now(private_broker)
    private_broker.kill()
    close(channel)
    private_broker.start()
    (found,) = fates(private_broker, [queue], queue.at)
    assert found.fate == (LOST if private_broker.version == DEMO_VERSION else EMPTY)
