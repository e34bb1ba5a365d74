"""On RabbitMQ: servers and buses that cannot begin, or whose connection ends, and what each of them says."""

from __future__ import annotations

import asyncio

import pytest

from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus, AsyncBusClient, AsyncBusServer
from osrdyne_bus.errors import ConnectFailed, LinkRefused
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.settings import BusSettings
from testbed.tcp_proxy import TcpProxy
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.servers import MAPS, N, endpoint
from tests.conftest import Vhost


async def test_a_server_that_could_not_start_starts_when_it_can(open_bus: OpenBus, vhost: Vhost) -> None:
    management, user = vhost.broker.management, f"bus-{vhost.name}"
    management.put("users", user, body={"password": "of-a-test", "tags": ""})
    management.put("permissions", vhost.name, user, body={"configure": "^$", "write": ".*", "read": ".*"})
    try:
        bus, narrow = await open_bus(), await open_bus(user=user, password="of-a-test")
        server = AsyncBusServer(narrow, N, endpoint())
        with pytest.raises(LinkRefused):
            await server.start()
        async with AsyncBusServer(bus, N, endpoint()):
            pass
        for _ in range(2):
            async with server:
                with pytest.raises(RuntimeError, match="started already"):
                    await server.start()
                assert (await AsyncBusClient(bus).call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
    finally:
        management.delete("users", user)


async def test_a_program_that_may_not_have_replies_serves_on_after_its_connection_was_cut(
    open_bus: OpenBus, vhost: Vhost
) -> None:
    management, user = vhost.broker.management, f"bus-{vhost.name}"
    management.put("users", user, body={"password": "of-a-test", "tags": ""})
    rights = {"configure": "^(unicast|exclusive|broadcast)", "write": ".*", "read": ".*"}
    management.put("permissions", vhost.name, user, body=rights)
    try:
        bus = await open_bus()
        async with TcpProxy(vhost.broker.amqp_port) as proxy:
            narrow = await open_bus(user=user, password="of-a-test", ports=(proxy.port,))
            async with AsyncBusServer(narrow, N, endpoint()):
                with pytest.raises(LinkRefused, match="reply-bus-"):
                    await AsyncBusClient(narrow).call(MAPS, "echo", timeout=PATIENCE_SECONDS)
                proxy.cut()
                await until_async(lambda: narrow.connections == 2)
                assert (await AsyncBusClient(bus).call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
            await narrow.close()
    finally:
        management.delete("users", user)


async def test_many_refused_addresses_at_once_harm_no_other(open_bus: OpenBus) -> None:
    bus = await open_bus()
    async with AsyncBusServer(bus, N, endpoint()):
        calls = AsyncBusClient(bus)
        ended = await asyncio.gather(
            *(calls.fanout(Target(f"never-{number}"), "echo", timeout=PATIENCE_SECONDS) for number in range(150)),
            return_exceptions=True,
        )
        assert {type(result) for result in ended} == {LinkRefused}
        assert (await calls.call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
        assert bus.connections == 1


async def test_what_a_server_holds_is_bounded_however_often_its_connection_ends(
    open_bus: OpenBus, vhost: Vhost
) -> None:
    bus, go = await open_bus(), asyncio.Event()

    async def wait(_: BusRequest) -> None:
        await go.wait()

    async with TcpProxy(vhost.broker.amqp_port) as proxy:
        far = await open_bus(ports=(proxy.port,), settings=BusSettings(server_credit=10))
        async with AsyncBusServer(far, N, endpoint(wait=wait), concurrency=1) as server:
            await asyncio.gather(*(AsyncBusClient(bus).cast(MAPS, "wait", timeout=PATIENCE_SECONDS) for _ in range(50)))
            for times in range(2, 5):
                await until_async(lambda: server.in_hand >= 10)
                proxy.cut()
                await until_async(lambda times=times: far.connections == times)  # type: ignore[misc]
                await until_async(lambda: server.in_hand >= 10)
                assert server.in_hand <= 11
            go.set()


async def test_a_host_that_is_not_a_name_is_not_a_peer_and_hinders_no_other(open_bus: OpenBus, vhost: Vhost) -> None:
    with pytest.raises(ConnectFailed, match=r"cannot connect to a\.\.b"):
        await AsyncBus("amqp://a..b").open()
    async with TcpProxy(vhost.broker.amqp_port) as proxy:
        bus = AsyncBus(["amqp://a..b", vhost.amqp_uri().replace(str(vhost.broker.amqp_port), str(proxy.port))])
        async with bus:
            proxy.cut()
            await until_async(lambda: bus.connections == 2)


async def test_a_bus_that_could_not_be_opened_says_why_at_once() -> None:
    bus = AsyncBus("amqp://127.0.0.1:1")
    with pytest.raises(ConnectFailed):
        await bus.open()
    with pytest.raises(ConnectFailed):
        await AsyncBusClient(bus).cast(MAPS, "x", timeout=PATIENCE_SECONDS)
