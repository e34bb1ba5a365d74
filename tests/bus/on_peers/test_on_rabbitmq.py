"""The bus over RabbitMQ: what holds over every peer and every broker, and what RabbitMQ does in its own way."""

from __future__ import annotations

import pika
import pytest

from osrdyne_bus.aio import AsyncBus, AsyncBusServer
from osrdyne_bus.errors import (
    ConnectFailed,
    LinkRefused,
    LoginRefused,
    MessageTooLarge,
)
from osrdyne_bus.messages.wire import BusRequest, request_envelope
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.brokers import *  # noqa: F403 - its tests
from tests.bus.on_peers.conformance import *  # noqa: F403 - its tests
from tests.bus.on_peers.conformance import MAPS, client, echo, named
from tests.bus.on_peers.conftest import OpenBus
from tests.conftest import Vhost

pytestmark = pytest.mark.both_versions


@pytest.fixture
def deliveries_of_rejected() -> int:
    """How often a message comes that a receiver rejects."""
    return 1


async def test_a_message_to_what_no_server_ever_had_is_refused_with_the_name(open_bus: OpenBus) -> None:
    bus = await open_bus()
    for refused in (client(bus).call, client(bus).cast):
        with pytest.raises(LinkRefused, match=r"unicast\.osrdyne\.maps"):
            await refused(MAPS, "echo", timeout=PATIENCE_SECONDS)
    with pytest.raises(LinkRefused, match=r"broadcast\.osrdyne\.maps"):
        await client(bus).fanout(MAPS, "echo", timeout=PATIENCE_SECONDS)


async def test_a_user_who_may_not_declare_serves_queues_that_infrastructure_code_declared(
    open_bus: OpenBus, vhost: Vhost
) -> None:
    management = vhost.broker.management
    user = f"bus-{vhost.name}"
    management.put("users", user, body={"password": "of-a-test", "tags": ""})
    rights = {"configure": "^$", "write": ".*", "read": ".*"}
    management.put("permissions", vhost.name, user, body=rights)
    try:
        bus = await open_bus()
        narrow = await open_bus(user=user, password="of-a-test")
        with pytest.raises(LinkRefused, match=r"unicast\.osrdyne\.maps"):
            await AsyncBusServer(narrow, named("n"), echo()).start()
        async with AsyncBusServer(bus, named("n"), echo()):
            pass
        async with AsyncBusServer(narrow, named("n"), echo()):
            assert (await client(bus).call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
    finally:
        management.delete("users", user)


async def test_a_caller_reaches_no_queue_by_its_reply_to_but_one_for_replies(open_bus: OpenBus, vhost: Vhost) -> None:
    bus, far = await open_bus(), await open_bus()
    theirs = vhost.broker.management
    theirs.put("queues", vhost.name, "theirs", body={"durable": True, "arguments": {"x-queue-type": "quorum"}})
    server = AsyncBusServer(far, named("n"), echo())
    async with server:
        asked = request_envelope(BusRequest("echo", body=b"forged", id="1", reply_to="/queues/theirs"))
        await bus.send(lambda scheme: scheme.shared(MAPS), asked, PATIENCE_SECONDS)
        await until_async(lambda: server.lost_replies == 1)
        assert (await client(bus).call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
    with pika.BlockingConnection(pika.URLParameters(vhost.amqp_uri())) as connection:
        assert connection.channel().basic_get("theirs") == (None, None, None)


async def test_a_message_that_the_peer_does_not_take_is_refused_before_it_leaves(open_bus: OpenBus) -> None:
    bus = await open_bus()
    async with AsyncBusServer(bus, named("n"), echo()):
        with pytest.raises(MessageTooLarge, match="its peer takes at most") as raised:
            await client(bus).cast(MAPS, "echo", bytes(20 * 2**20), timeout=PATIENCE_SECONDS)
        assert raised.value.limit == 16 * 2**20 < raised.value.size
        assert (await client(bus).call(MAPS, "echo", bytes(2**20), timeout=PATIENCE_SECONDS)).body == bytes(2**20)


async def test_a_bus_that_no_peer_takes_says_why(open_bus: OpenBus, vhost: Vhost) -> None:
    with pytest.raises(LoginRefused):
        await open_bus(password="wrong")
    with pytest.raises(ConnectFailed, match=r"cannot connect to 127.0.0.1:1"):
        await AsyncBus("amqp://127.0.0.1:1").open()


async def test_calls_of_a_program_share_one_reply_queue_which_is_deleted_with_the_bus(
    open_bus: OpenBus, vhost: Vhost
) -> None:
    bus, far = await open_bus(), await open_bus()
    async with AsyncBusServer(far, named("n"), echo()):
        for caller in (client(bus), client(bus)):
            await caller.call(MAPS, "echo", timeout=PATIENCE_SECONDS)

        def reply_queues() -> list[str]:
            found = vhost.broker.management.get("queues", vhost.name)
            return [queue["name"] for queue in found if queue["name"].startswith("reply-")]

        assert len(reply_queues()) == 1
        await bus.close()
        assert reply_queues() == []
