"""On RabbitMQ: servers that stop while handlers work or hang, and buses that are closed at whatever moment."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import steps
from osrdyne_bus.aio import AsyncBus, AsyncBusClient, AsyncBusServer
from osrdyne_bus.errors import BusClosed
from osrdyne_bus.settings import BusSettings
from osrdyne_calls.errors import WorkerFailed
from testbed import proton
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.scripted_peer import ScriptedPeer, serving
from tests.bus.on_peers.servers import MAPS, N, endpoint
from tests.conftest import Vhost


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep what handlers raise out of the log: pytest cannot report texts with surrogates."""
    caplog.set_level(logging.CRITICAL, "osrdyne_bus.aio")


def hang_in_thread(_: object) -> None:
    threading.Event().wait()


async def hang_on_loop(_: object) -> None:
    await asyncio.Event().wait()


async def test_a_server_stops_although_handlers_hang_and_their_callers_get_an_error(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus(settings=BusSettings(grace=0.5))
    server = AsyncBusServer(far, N, endpoint(a=hang_in_thread, b=hang_on_loop))
    await server.start()
    calls = [asyncio.create_task(AsyncBusClient(bus).call(MAPS, name, timeout=PATIENCE_SECONDS)) for name in "ab"]
    await until_async(lambda: server.in_hand == 2)

    await server.stop()

    for call in calls:
        with pytest.raises(WorkerFailed, match="the server stopped before its handler had ended"):
            await call
    # And it can start again.
    async with server:
        pass


async def test_a_handler_that_ignores_its_cancellation_has_no_second_answer(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus(settings=BusSettings(grace=0.1))
    go = asyncio.Event()

    async def stubborn(_: object) -> bytes:
        while not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go.wait()
        return b"late"

    server = AsyncBusServer(far, N, endpoint(a=stubborn))
    await server.start()
    call = asyncio.create_task(AsyncBusClient(bus).call(MAPS, "a", timeout=PATIENCE_SECONDS))
    await until_async(lambda: server.in_hand == 1)

    await server.stop()
    with pytest.raises(WorkerFailed, match="the server stopped before its handler had ended"):
        await call
    go.set()
    await until_async(lambda: server.in_hand == 0)

    assert far.counts.sent["reply", "accepted"] == 1
    assert far.counts.sent.total() == 1


async def test_a_stop_that_is_cancelled_can_be_repeated(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus()
    server = AsyncBusServer(far, N, endpoint())
    await server.start()
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait([stopping])

    await server.stop()

    async with AsyncBusServer(bus, N, endpoint()):
        for _ in range(10):  # none of these goes to a link that was left
            assert (await AsyncBusClient(bus).call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS)).body == b"x"


async def test_two_stops_at_once_both_end(open_bus: OpenBus) -> None:
    server = AsyncBusServer(await open_bus(), N, endpoint())
    await server.start()
    await asyncio.gather(server.stop(), server.stop())
    async with server:
        pass


async def test_a_request_whose_handler_hangs_goes_to_another_server_when_this_one_stops(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus(settings=BusSettings(grace=0.5))
    server = AsyncBusServer(far, N, endpoint(work=hang_in_thread), acknowledge="end")
    await server.start()
    call = asyncio.create_task(AsyncBusClient(bus).call(MAPS, "work", b"x", timeout=PATIENCE_SECONDS))
    await until_async(lambda: server.in_hand == 1)

    await server.stop()

    async with AsyncBusServer(bus, N, endpoint(work=lambda request: request.body)):
        assert (await call).body == b"x"


def test_a_program_ends_although_a_handler_hangs_in_its_thread(vhost: Vhost, tmp_path: Path) -> None:
    program = f"""
import threading
from osrdyne_bus import Target
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.threads import Bus, BusClient, BusServer

begun, made = threading.Event(), Endpoint()

@made.method
def hang(request):
    begun.set()
    threading.Event().wait()

quick = BusSettings(grace=0.1)
with Bus({vhost.amqp_uri()!r}, settings=quick) as bus, BusServer(bus, Target("maps", server="n"), [made]):
    BusClient(bus).cast(Target("maps"), "hang")
    begun.wait()
print("ended")
"""
    (tmp_path / "program.py").write_text(program)
    environment = steps.environment(PYTHONPATH=str(proton.folder()))
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=PATIENCE_SECONDS,
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


async def test_a_bus_that_is_closed_while_it_connects_leaves_no_connection() -> None:
    class Slow(ScriptedPeer):
        begun = False

        def on_connection_remote_open(self, event: Any) -> None:
            self.begun = True

    peer = Slow()
    async with serving(peer) as port:
        bus = AsyncBus(f"amqp://127.0.0.1:{port}")
        opening = asyncio.create_task(bus.open())
        await until_async(lambda: peer.begun)
        await bus.close()

        peer.connection.container = "peer"
        peer.connection.open()
        peer.flush()

        with pytest.raises(BusClosed):
            await opening
        await asyncio.wait_for(peer.gone.wait(), PATIENCE_SECONDS)


async def test_a_bus_that_is_not_open_says_so(vhost: Vhost) -> None:
    bus = AsyncBus(vhost.amqp_uri())
    assert not bus.is_connected
    with pytest.raises(BusClosed, match="not open"):
        await AsyncBusClient(bus).cast(MAPS, "echo", timeout=PATIENCE_SECONDS)
    await bus.close()
    with pytest.raises(BusClosed, match="opened before"):
        await bus.open()
