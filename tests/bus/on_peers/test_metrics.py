"""The figures of a bus for Prometheus, of real messages."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from osrdyne_bus import Routable, Target
from osrdyne_bus.aio import AsyncBus, AsyncBusServer
from osrdyne_bus.aio.senders import Senders
from osrdyne_bus.errors import LinkRefused, MessagingTimeout
from osrdyne_bus.messages.envelopes import Header
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.metrics import BusMetrics
from osrdyne_bus.settings import BusSettings
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conformance import MAPS, client, echo, named
from tests.bus.on_peers.conftest import OpenBus


async def test_figures_are_those_of_the_messages_that_passed(open_bus: OpenBus) -> None:
    bus, far = await open_bus(name="caller"), await open_bus(name="server", settings=BusSettings(server_credit=2))
    registry, go = CollectorRegistry(), asyncio.Event()
    registry.register(BusMetrics(bus, far))

    def figures() -> set[str]:
        return {line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")}

    async def wait(_: BusRequest) -> None:
        await go.wait()

    async with AsyncBusServer(far, named("n"), echo(wait=wait), acknowledge="end") as server:
        for _ in range(3):
            await client(bus).call(MAPS, "echo", timeout=PATIENCE_SECONDS)
        with pytest.raises(MessagingTimeout):
            await client(bus).call(MAPS, "wait", timeout=0.5)
        with pytest.raises(LinkRefused):
            await client(bus).cast(Target("roads"), "echo")
        waiting = asyncio.create_task(client(bus).call(MAPS, "wait", timeout=PATIENCE_SECONDS))
        await until_async(lambda: server.in_hand == 2)

        assert figures() >= {
            'osrdyne_bus_connected{bus="caller"} 1.0',
            'osrdyne_bus_senders{bus="caller"} 1.0',
            'osrdyne_bus_calls{bus="caller"} 1.0',
            'osrdyne_bus_in_hand{bus="caller"} 0.0',
            'osrdyne_bus_in_hand{bus="server"} 2.0',
            'osrdyne_bus_connections_total{bus="caller"} 1.0',
            'osrdyne_bus_received_total{bus="caller"} 3.0',
            'osrdyne_bus_received_total{bus="server"} 5.0',
            'osrdyne_bus_sent_total{bus="caller",kind="call",outcome="accepted"} 3.0',
            'osrdyne_bus_sent_total{bus="caller",kind="call",outcome="MessagingTimeout"} 1.0',
            'osrdyne_bus_sent_total{bus="caller",kind="message",outcome="LinkRefused"} 1.0',
            'osrdyne_bus_sent_total{bus="server",kind="reply",outcome="accepted"} 3.0',
        }
        assert far.stalls >= 1
        go.set()
        await waiting
        stalls = far.stalls
    # What a subscription counted stays when it ends, and what it had in hand does not.
    await far.close()
    assert figures() >= {
        'osrdyne_bus_connected{bus="server"} 0.0',
        'osrdyne_bus_received_total{bus="server"} 5.0',
        'osrdyne_bus_in_hand{bus="server"} 0.0',
    }
    assert far.stalls == stalls


async def test_another_thread_reads_the_figures_while_links_come_and_go() -> None:
    loop = asyncio.get_running_loop()
    senders = Senders(SimpleNamespace(loop=loop), Routable(), unused=600)  # type: ignore[arg-type]
    stop, problems = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                len(senders)
            except RuntimeError as error:
                problems.append(error)

    reader, interval = threading.Thread(target=read), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader.start()
    for number in range(20_000):
        senders._links[str(number)] = SimpleNamespace(is_open=True)  # type: ignore[assignment]
        if number > 5:
            del senders._links[str(number - 5)]
    stop.set()
    reader.join()
    sys.setswitchinterval(interval)
    senders.close()
    assert problems == []


def test_two_buses_of_one_name_are_refused() -> None:
    buses = [AsyncBus("amqp://127.0.0.1", name="one") for _ in range(2)]
    with pytest.raises(ValueError, match="two buses have one name"):
        BusMetrics(*buses)


async def test_headers_reach_the_handler_as_the_caller_gave_them(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus()
    seen: list[BusRequest] = []
    trace: dict[str, Header] = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "shard": 7}
    async with AsyncBusServer(far, named("n"), echo(note=seen.append)):
        await client(bus).call(MAPS, "note", headers=trace, timeout=PATIENCE_SECONDS)
    assert {name: seen[0].headers[name] for name in trace} == trace
