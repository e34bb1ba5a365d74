"""What holds of the bus over brokers that make a queue when a program attaches, and end a reply queue with its caller.

A module for each of them has all of these tests, and fixtures `open_bus` and `port` of its own.
"""

from __future__ import annotations

import asyncio

import pytest

from osrdyne_bus.aio import AsyncBusServer
from osrdyne_bus.errors import LoginRefused, PeerLost
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.settings import BusSettings
from testbed.tcp_proxy import TcpProxy
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conformance import MAPS, client, echo, named
from tests.bus.on_peers.conftest import OpenBus


async def test_a_message_to_what_no_server_ever_had_waits_for_the_first_one(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus()
    seen: list[bytes] = []
    await client(bus).cast(MAPS, "note", b"early", timeout=PATIENCE_SECONDS)
    await client(bus).cast(named("n"), "note", b"for n", timeout=PATIENCE_SECONDS)
    async with AsyncBusServer(far, named("n"), echo(note=lambda request: seen.append(request.body))):
        await until_async(lambda: len(seen) == 2)
    assert set(seen) == {b"early", b"for n"}


async def test_a_fanout_is_kept_for_no_server_that_comes_later(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus()
    seen: list[bytes] = []
    await client(bus).fanout(MAPS, "note", b"early", timeout=PATIENCE_SECONDS)
    async with AsyncBusServer(far, named("n"), echo(note=lambda request: seen.append(request.body))):
        await client(bus).fanout(MAPS, "note", b"in time", timeout=PATIENCE_SECONDS)
        await until_async(lambda: bool(seen))
    assert seen == [b"in time"]


async def test_a_call_whose_connection_ends_cannot_get_its_reply_and_the_next_call_can(
    open_bus: OpenBus, port: int
) -> None:
    far = await open_bus(settings=BusSettings(reply_timeout=1))
    begun, go = asyncio.Event(), asyncio.Event()

    async def wait(request: BusRequest) -> None:
        begun.set()
        await go.wait()

    async with AsyncBusServer(far, named("n"), echo(wait=wait)), TcpProxy(port) as proxy:
        bus = await open_bus(port=proxy.port)
        waiting = asyncio.create_task(client(bus).call(MAPS, "wait", timeout=PATIENCE_SECONDS))
        await begun.wait()
        proxy.cut()
        with pytest.raises(PeerLost):
            await waiting
        assert (await client(bus).call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"
        assert bus.connections == 2
        go.set()


async def test_a_message_of_twenty_mebibytes_is_taken(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus()
    body = bytes(20 * 2**20)
    async with AsyncBusServer(far, named("n"), echo()):
        assert (await client(bus).call(MAPS, "echo", body, timeout=PATIENCE_SECONDS)).body == body


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
async def test_a_login_is_by_the_mechanism_that_is_named_and_a_wrong_password_is_refused(
    open_bus: OpenBus, mechanism: str
) -> None:
    bus = await open_bus(mechanisms=mechanism)
    await client(bus).cast(MAPS, "echo", timeout=PATIENCE_SECONDS)
    with pytest.raises(LoginRefused, match=f"refused the login by {mechanism}"):
        await open_bus(password="wrong", mechanisms=mechanism)


async def test_a_peer_that_does_not_have_the_mechanism_is_named_with_those_that_it_has(open_bus: OpenBus) -> None:
    with pytest.raises(LoginRefused, match=r"127.0.0.1:\d+ offers .*SCRAM-SHA-256.* and this login takes GSSAPI$"):
        await open_bus(mechanisms="GSSAPI")
