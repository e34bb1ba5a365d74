"""The bus and its commands, where the peer is away or says nothing: they end in their time, and say where it is."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from osrdyne_bus.aio import AsyncBus, AsyncBusClient, AsyncBusServer
from osrdyne_bus.errors import MessagingError, MessagingTimeout
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.threads import Bus
from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_calls.waits import Wait
from testbed.command_line import osrdyne
from testbed.in_time import command_in_time, in_time
from testbed.tcp_proxy import TcpProxy
from testbed.waiting import until_async
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.servers import MAPS, N, endpoint
from tests.conftest import Vhost
from tests.unit.runtime.commands_on_peers import NOBODY, SHORT_SECONDS
from tests.unit.runtime.test_silent_peers import port

__all__ = ["port"]  # a fixture


@pytest.mark.parametrize("words", [("ping", "maps"), ("watch", "maps", "--rounds", "1")])
async def test_a_command_on_the_bus_ends_in_the_time_that_it_was_given(port: int, words: tuple[str, ...]) -> None:
    uri = f"amqp://user:password@127.0.0.1:{port}"
    line = ["bus", *words, "--timeout", "1"]
    alone = partial(osrdyne, *line, variables={"OSRDYNE_BUS_URI": NOBODY.broker})
    done = await command_in_time(line, {"OSRDYNE_BUS_URI": uri}, SHORT_SECONDS, alone=alone)
    assert (done.code, f"127.0.0.1:{port}" in done.line) == (2, True)
    assert "password" not in done.err


async def test_a_bus_that_cannot_connect_says_so_in_time_and_ends_at_once(port: int) -> None:
    bus = AsyncBus(f"amqp://127.0.0.1:{port}")
    with pytest.raises(MessagingError, match=f"127.0.0.1:{port}"):
        await in_time(bus.open(), 10.0)
    await in_time(bus.close(), CLOSE_SECONDS)
    threads = Bus(f"amqp://127.0.0.1:{port}")
    with pytest.raises(MessagingError, match=f"127.0.0.1:{port}"):
        await in_time(asyncio.to_thread(threads.open), 10.0)
    await in_time(asyncio.to_thread(threads.close), CLOSE_SECONDS)


@pytest.mark.parametrize(("fault", "wait"), [("away", Wait.CONNECTING), ("half-open", Wait.SENT)])
async def test_a_call_says_how_far_it_came_when_its_peer_is_lost(
    open_bus: OpenBus, vhost: Vhost, fault: str, wait: Wait
) -> None:
    far, hang = await open_bus(), asyncio.Event()

    async def wait_for_ever(_: BusRequest) -> None:
        await hang.wait()

    async with (
        TcpProxy(vhost.broker.amqp_port) as proxy,
        AsyncBusServer(far, N, endpoint(wait=wait_for_ever)),
    ):
        bus = await open_bus(ports=(proxy.port,))
        calls = AsyncBusClient(bus)
        with pytest.raises(MessagingTimeout) as caught:
            await in_time(calls.call(MAPS, "wait", timeout=SHORT_SECONDS), SHORT_SECONDS)
        assert caught.value.wait is Wait.CONFIRMED
        if fault == "away":
            proxy.cut(refuse=True)
            await until_async(lambda: not bus.is_connected)
        else:
            proxy.silence()
        with pytest.raises(MessagingTimeout) as caught:
            await in_time(calls.call(MAPS, "wait", timeout=SHORT_SECONDS), SHORT_SECONDS)
        assert caught.value.wait is wait
        # Why there is no connection
        assert wait is not Wait.CONNECTING or f"127.0.0.1:{proxy.port}" in str(caught.value)
        await in_time(bus.close(), CLOSE_SECONDS)
