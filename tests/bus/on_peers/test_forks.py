"""A bus over a fork, on RabbitMQ: the fork hears that it needs one of its own, and harms no other process."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBusClient, AsyncBusServer
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.metrics import BusMetrics
from osrdyne_bus.threads import Bus, BusClient, BusServer
from osrdyne_protocol.errors import OtherProcess
from testbed.forked import in_fork
from testbed.waiting import PATIENCE_SECONDS
from tests.bus.on_peers.conftest import OpenBus
from tests.conftest import Vhost

MAPS = Target("maps")
N = Target("maps", server="n")


def endpoint() -> Endpoint:
    made = Endpoint()

    @made.method
    def echo(request: BusRequest) -> bytes:
        return request.body

    return made


def refused(*actions: Callable[[], Any]) -> int:
    """Return how many of these are refused because this is another process."""
    found = 0
    for action in actions:
        try:
            action()
        except OtherProcess:
            found += 1
    return found


@pytest.mark.parametrize("held", [False, True])
def test_a_fork_of_a_bus_hears_that_it_needs_its_own_and_leaves_the_connection_as_it_is(
    vhost: Vhost, held: bool
) -> None:
    with Bus(vhost.amqp_uri()) as bus, BusServer(bus, N, [endpoint()]) as server:
        client = BusClient(bus)
        assert client.call(MAPS, "echo", b"before", timeout=PATIENCE_SECONDS).body == b"before"

        def child() -> tuple[int, bool, bytes]:
            found = refused(
                lambda: client.call(MAPS, "echo", timeout=5),
                lambda: client.cast(MAPS, "echo"),
                lambda: client.notify(MAPS, "e"),
                lambda: BusServer(bus, N, [endpoint()]).start(),
                bus.open,
            )
            server.stop()
            connected = bus.is_connected
            bus.close()
            bus.__exit__(None, None, None)
            with Bus(vhost.amqp_uri()) as own:
                return found, connected, BusClient(own).call(MAPS, "echo", b"own", timeout=PATIENCE_SECONDS).body

        def drop() -> None:
            nonlocal client, server, bus
            server.stop()
            bus.close()
            del client, server, bus
            gc.collect()

        # Where another thread held the lock, it is held for ever in the fork.
        if held:
            with bus._portal._lock:
                threading.Thread(target=lambda: None).start()
                assert in_fork(lambda: refused(lambda: client.call(MAPS, "echo"))) == 1
                assert in_fork(bus.close) is None
        else:
            assert in_fork(child) == (5, False, b"own")
            in_fork(drop)
        assert client.call(MAPS, "echo", b"after", timeout=PATIENCE_SECONDS).body == b"after"
        assert bus.asynchronous.connections == 1


async def test_a_fork_of_an_asyncio_program_hears_the_same(open_bus: OpenBus, vhost: Vhost) -> None:
    bus = await open_bus()
    server = AsyncBusServer(bus, N, [endpoint()])
    client = AsyncBusClient(bus)
    async with server:
        assert (await client.call(MAPS, "echo", b"before", timeout=PATIENCE_SECONDS)).body == b"before"

        async def child() -> tuple[int, bool, float | None]:
            found = 0
            for ask in (client.call, client.cast, client.fanout):
                try:
                    await ask(MAPS, "echo", timeout=5)
                except OtherProcess:
                    found += 1
            await server.stop()
            await bus.close()
            registry = CollectorRegistry()
            registry.register(BusMetrics(bus))
            return found, bus.is_connected, registry.get_sample_value("osrdyne_bus_connected", {"bus": bus.name})

        assert await asyncio.to_thread(in_fork, lambda: asyncio.run(child())) == (3, False, 0.0)
        assert (await client.call(MAPS, "echo", b"after", timeout=PATIENCE_SECONDS)).body == b"after"
        assert bus.connections == 1
