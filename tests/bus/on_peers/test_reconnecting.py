"""What happens to calls and servers when a connection, a link, a queue or the whole broker goes away, on RabbitMQ."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest

from osrdyne_bus.aio import AsyncBus, AsyncBusClient, AsyncBusServer
from osrdyne_bus.engine import transport
from osrdyne_bus.errors import BusClosed, DeliveryFailure, MessagingError, MessagingTimeout
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.settings import BusSettings
from testbed.broker import Broker
from testbed.tcp_proxy import TcpProxy
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.servers import MAPS, N, endpoint
from tests.conftest import Vhost

pytestmark = pytest.mark.both_versions


class Gate:
    """A handler that waits until it may go on."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun: list[bytes] = []

    async def __call__(self, request: BusRequest) -> bytes:
        self.begun.append(request.body)
        await self.go.wait()
        return request.body


async def test_a_call_whose_connection_was_cut_gets_its_reply_over_the_next_one(
    open_bus: OpenBus, vhost: Vhost
) -> None:
    far, gate = await open_bus(), Gate()
    async with TcpProxy(vhost.broker.amqp_port) as proxy, AsyncBusServer(far, N, endpoint(wait=gate)):
        bus = await open_bus(ports=(proxy.port,))
        waiting = asyncio.create_task(AsyncBusClient(bus).call(MAPS, "wait", b"x", timeout=PATIENCE_SECONDS))
        await until_async(lambda: bool(gate.begun))
        proxy.cut(refuse=True)
        await until_async(lambda: not bus.is_connected)
        gate.go.set()
        proxy.refuses = False
        assert (await waiting).body == b"x"
        assert gate.begun == [b"x"]
        assert bus.connections == 2


async def test_what_is_asked_while_there_is_no_connection_waits_for_one(
    open_bus: OpenBus, vhost: Vhost, caplog: pytest.LogCaptureFixture
) -> None:
    far = await open_bus()
    async with AsyncBusServer(far, N, endpoint()), TcpProxy(vhost.broker.amqp_port) as proxy:
        bus = await open_bus(ports=(proxy.port,))
        calls = AsyncBusClient(bus)
        await calls.call(MAPS, "echo", timeout=PATIENCE_SECONDS)
        for _ in range(3):
            proxy.cut(refuse=True)
            await until_async(lambda: not bus.is_connected)
            asked = [asyncio.create_task(calls.call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)) for _ in range(20)]
            await asyncio.sleep(0)
            proxy.refuses = False
            assert [answer.body for answer in await asyncio.gather(*asked)] == [b"x"] * 20
        assert bus.connections == 4
    assert "the peer cannot be used" in caplog.text


async def test_without_a_connection_a_message_fails_in_its_time_and_says_that_it_was_not_sent(
    open_bus: OpenBus, vhost: Vhost
) -> None:
    async with TcpProxy(vhost.broker.amqp_port) as proxy:
        bus = await open_bus(ports=(proxy.port,), settings=BusSettings(call_timeout=0.5))
    await until_async(lambda: not bus.is_connected)
    calls = AsyncBusClient(bus)
    with pytest.raises(MessagingTimeout, match=r"had no connection; it was not sent"):
        await calls.call(MAPS, "echo", timeout=0.5)
    with pytest.raises(DeliveryFailure, match=r"had no connection; it was not sent"):
        await calls.call(MAPS, "echo")
    with pytest.raises(MessagingTimeout, match=r"had no connection"):
        await calls.cast(MAPS, "echo", timeout=0.5)
    waiting = asyncio.create_task(calls.call(MAPS, "echo", timeout=PATIENCE_SECONDS))
    await asyncio.sleep(0)
    await bus.close()
    with pytest.raises(BusClosed):
        await waiting


async def test_a_server_serves_over_its_next_connection_and_begins_nothing_twice(
    open_bus: OpenBus, vhost: Vhost
) -> None:
    bus, gate = await open_bus(), Gate()
    async with TcpProxy(vhost.broker.amqp_port) as proxy:
        far = await open_bus(ports=(proxy.port,))
        server = AsyncBusServer(far, N, endpoint(wait=gate), concurrency=1)
        async with server:
            bodies = [str(number).encode() for number in range(10)]
            asked = [
                asyncio.create_task(AsyncBusClient(bus).call(MAPS, "wait", body, timeout=PATIENCE_SECONDS))
                for body in bodies
            ]
            await until_async(lambda: server.in_hand == 10)

            def unacknowledged() -> int:
                found = vhost.broker.management.queue(vhost.name, "unicast.osrdyne.maps") or {}
                return int(found.get("messages_unacknowledged", 0))

            # The broker has the acknowledgement of the one that was begun.
            await until_async(lambda: unacknowledged() == 9)
            proxy.cut()
            await until_async(lambda: far.connections == 2)
            gate.go.set()
            answers = await asyncio.gather(*asked)
    assert [answer.body for answer in answers] == bodies
    assert sorted(gate.begun) == bodies


async def test_the_next_peer_is_taken_when_one_goes_away(open_bus: OpenBus, vhost: Vhost) -> None:
    far = await open_bus()
    async with AsyncBusServer(far, N, endpoint()), TcpProxy(vhost.broker.amqp_port) as second:
        async with TcpProxy(vhost.broker.amqp_port) as first:
            bus = await open_bus(ports=(1, first.port, second.port))
            assert bus.peer == f"127.0.0.1:{first.port}"
        assert (await AsyncBusClient(bus).call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
        assert bus.peer == f"127.0.0.1:{second.port}"


async def test_a_peer_that_falls_silent_is_left_after_the_idle_time(
    open_bus: OpenBus, vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = await open_bus()
    monkeypatch.setattr(transport, "IDLE_SECONDS", 5.0)
    async with (
        AsyncBusServer(far, N, endpoint()),
        TcpProxy(vhost.broker.amqp_port) as first,
        TcpProxy(vhost.broker.amqp_port) as second,
    ):
        bus = await open_bus(ports=(first.port, second.port))
        first.silence()
        assert (await AsyncBusClient(bus).call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
        assert bus.peer == f"127.0.0.1:{second.port}"


async def test_a_server_whose_queue_was_deleted_declares_it_again(open_bus: OpenBus, vhost: Vhost) -> None:
    bus, far = await open_bus(), await open_bus()
    async with AsyncBusServer(far, N, endpoint()):
        calls = AsyncBusClient(bus)
        await calls.call(MAPS, "echo", timeout=PATIENCE_SECONDS)
        vhost.broker.management.delete("queues", vhost.name, "unicast.osrdyne.maps")

        async def answered() -> bool:
            try:
                return (await calls.call(MAPS, "echo", b"x", timeout=2)).body == b"x"
            except MessagingError:
                return False

        while not await answered():
            pass
        assert far.connections == 1


async def test_a_caller_whose_reply_queue_was_deleted_goes_on_with_another_one(open_bus: OpenBus, vhost: Vhost) -> None:
    bus, far = await open_bus(), await open_bus()
    async with AsyncBusServer(far, N, endpoint()):
        calls = AsyncBusClient(bus)
        await calls.call(MAPS, "echo", timeout=PATIENCE_SECONDS)
        queues = [queue["name"] for queue in vhost.broker.management.get("queues", vhost.name)]
        for queue in queues:
            if queue.startswith("reply-"):
                vhost.broker.management.delete("queues", vhost.name, queue)
        await until_async(lambda: bus.connections == 2)
        assert (await calls.call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"


async def test_calls_and_servers_outlive_a_broker_that_is_started_again(private_broker: Broker) -> None:
    private_broker.start()
    uri = private_broker.amqp_uri()
    async with AsyncBus(uri) as bus, AsyncBus(uri) as far, AsyncBusServer(far, N, endpoint()):
        calls = AsyncBusClient(bus)
        await calls.call(MAPS, "echo", timeout=PATIENCE_SECONDS)
        await asyncio.to_thread(private_broker.stop)
        waiting = [asyncio.create_task(calls.call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)) for _ in range(10)]
        await asyncio.to_thread(private_broker.start)
        assert [answer.body for answer in await asyncio.gather(*waiting)] == [b"x"] * 10


async def test_a_password_that_changed_counts_at_the_next_connection(
    open_bus: OpenBus, vhost: Vhost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    far, file, broker = await open_bus(), tmp_path / "uri", vhost.broker

    async with AsyncBusServer(far, N, endpoint()), TcpProxy(broker.amqp_port) as proxy:

        def write(password: str) -> None:
            name = quote(vhost.name, safe="")
            file.write_text(f"amqp://{quote(broker.admin)}:{quote(password)}@127.0.0.1:{proxy.port}/{name}")

        write(broker.admin_password)
        async with AsyncBus(file.read_text) as bus:
            calls = AsyncBusClient(bus)
            await calls.call(MAPS, "echo", timeout=PATIENCE_SECONDS)

            write("another")
            proxy.cut()
            await until_async(lambda: "trying again" in caplog.text)
            assert not bus.is_connected
            assert f"127.0.0.1:{proxy.port}" in caplog.text

            write(broker.admin_password)
            assert (await calls.call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"


async def test_a_certificate_is_asked_for_at_each_connection(open_bus: OpenBus, vhost: Vhost) -> None:
    asked: list[bool] = []
    async with TcpProxy(vhost.broker.amqp_port) as proxy:
        bus = await open_bus(ports=(proxy.port,), tls=lambda: asked.append(True))
        proxy.cut()
        await until_async(lambda: bus.connections == 2)
    assert asked == [True, True]


@pytest.mark.parametrize("fault", ["away", "half-open"])
async def test_a_bus_is_closed_in_time_whatever_its_peer_does(open_bus: OpenBus, vhost: Vhost, fault: str) -> None:
    far = await open_bus()
    async with TcpProxy(vhost.broker.amqp_port) as proxy, AsyncBusServer(far, N, endpoint()):
        bus = await open_bus(ports=(proxy.port,))
        await AsyncBusClient(bus).call(MAPS, "echo", b"it has an address for replies", timeout=PATIENCE_SECONDS)
        if fault == "away":
            proxy.cut(refuse=True)
            await until_async(lambda: not bus.is_connected)
        else:
            proxy.silence()
        async with asyncio.timeout(3.5):
            await bus.close()
