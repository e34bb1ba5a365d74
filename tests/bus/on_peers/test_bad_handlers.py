"""On RabbitMQ: what handlers do wrong, what users may not do, what is asked at the wrong moment. The bus goes on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import steps
from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus, AsyncBusClient, AsyncBusListener, AsyncBusServer
from osrdyne_bus.aio.handler_threads import HandlerThreads
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.errors import BusClosed, ConnectFailed, LinkRefused
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.wire import BusRequest, Notification
from osrdyne_client.errors import WorkerFailed
from osrdyne_worker.handling import Reject, WorkerError
from testbed import proton
from testbed.waiting import PATIENCE, until_async
from tests.bus.on_peers.conftest import OpenBus
from tests.bus.on_peers.proxy import Proxy
from tests.bus.on_peers.scripted_peer import ScriptedPeer, serving
from tests.conftest import Vhost

pytestmark = pytest.mark.both_versions


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Keep what handlers raise out of the log: pytest cannot report texts with surrogates."""
    caplog.set_level(logging.CRITICAL, "osrdyne_bus.aio")


MAPS = Target("maps")
N = Target("maps", server="n")


def endpoint(**handlers: Callable[[BusRequest], Any]) -> list[Endpoint]:
    made = Endpoint()
    made.add("echo", lambda request: request.body)
    for name, handler in handlers.items():
        made.add(name, handler)
    return [made]


def stop_iteration(_: object) -> bytes:
    return next(iter(()))


def leave(_: object) -> None:
    sys.exit(3)


async def leave_on_loop(_: object) -> None:
    sys.exit(3)


async def cancelled(_: object) -> None:
    task = asyncio.create_task(asyncio.sleep(PATIENCE))
    task.cancel()
    await task


def surrogates(_: object) -> None:
    raise OSError("caf\udce9")


def worker_error(_: object) -> None:
    raise WorkerError(b"", "caf\udce9")


def text(_: object) -> str:
    return "text"


BAD = (stop_iteration, leave, leave_on_loop, cancelled, surrogates, worker_error, text)


@pytest.mark.parametrize("acknowledge", ["start", "end"])
async def test_whatever_a_handler_does_its_caller_gets_an_error_and_the_server_goes_on(
    open_bus: OpenBus, acknowledge: Any
) -> None:
    bus, far = await open_bus(), await open_bus(settings=BusSettings(server_credit=2))
    handlers = {one.__name__: one for one in BAD}
    async with AsyncBusServer(far, N, endpoint(**handlers), concurrency=2, acknowledge=acknowledge) as server:
        calls = AsyncBusClient(bus)
        for _ in range(3):
            for name in handlers:
                with pytest.raises(WorkerFailed):
                    await calls.call(MAPS, name, timeout=PATIENCE)
        assert (await calls.call(MAPS, "echo", b"x", timeout=PATIENCE)).body == b"x"
        assert server.lost_replies == 0


async def test_a_plain_function_that_returns_a_coroutine_is_awaited(open_bus: OpenBus) -> None:
    bus = await open_bus()

    async def later(request: BusRequest) -> bytes:
        return b"later"

    def plain(request: BusRequest) -> Any:
        return later(request)

    async with AsyncBusServer(bus, N, endpoint(later=plain)):
        assert (await AsyncBusClient(bus).call(MAPS, "later", timeout=PATIENCE)).body == b"later"


def long_reject(_: object) -> None:
    raise Reject("x" * 100_000)


async def test_whatever_a_listener_does_it_hears_the_next_notification(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus(settings=BusSettings(notification_credit=2))
    bad = {one.__name__: one for one in (*BAD[:5], long_reject)}
    heard: list[str] = []

    def listen(notification: Notification) -> Any:
        heard.append(notification.event_type)
        return bad[notification.event_type](notification) if notification.event_type in bad else None

    async with AsyncBusListener(far, MAPS, listen, concurrency=1):
        for name in (*bad, *bad, "last"):
            await AsyncBusClient(bus).notify(MAPS, name, timeout=PATIENCE)
        await until_async(lambda: "last" in heard)
    assert heard == [*bad, *bad, "last"]
    assert far.connections == 1


def hang_in_thread(_: object) -> None:
    threading.Event().wait()


async def hang_on_loop(_: object) -> None:
    await asyncio.Event().wait()


async def test_a_server_stops_although_handlers_hang_and_their_callers_get_an_error(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus(settings=BusSettings(grace=0.5))
    server = AsyncBusServer(far, N, endpoint(a=hang_in_thread, b=hang_on_loop))
    await server.start()
    calls = [asyncio.create_task(AsyncBusClient(bus).call(MAPS, name, timeout=PATIENCE)) for name in "ab"]
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
    call = asyncio.create_task(AsyncBusClient(bus).call(MAPS, "a", timeout=PATIENCE))
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
            assert (await AsyncBusClient(bus).call(MAPS, "echo", b"x", timeout=PATIENCE)).body == b"x"


async def test_two_stops_at_once_both_end(open_bus: OpenBus) -> None:
    server = AsyncBusServer(await open_bus(), N, endpoint())
    await server.start()
    await asyncio.gather(server.stop(), server.stop())
    async with server:
        pass


async def test_a_handler_thread_that_waits_keeps_nothing_of_its_last_call() -> None:
    class Answer:
        pass

    threads = HandlerThreads("test")
    answer: Answer | None = Answer()
    seen = weakref.ref(answer)
    assert await threads.run(partial(getattr, answer, "__class__")) is Answer
    answer = None
    await until_async(lambda: gc.collect() >= 0 and seen() is None)
    threads.close()


async def test_a_request_whose_handler_hangs_goes_to_another_server_when_this_one_stops(open_bus: OpenBus) -> None:
    bus, far = await open_bus(), await open_bus(settings=BusSettings(grace=0.5))
    server = AsyncBusServer(far, N, endpoint(work=hang_in_thread), acknowledge="end")
    await server.start()
    call = asyncio.create_task(AsyncBusClient(bus).call(MAPS, "work", b"x", timeout=PATIENCE))
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
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


async def test_an_answer_that_is_too_large_is_an_error_for_its_caller(open_bus: OpenBus) -> None:
    bus = await open_bus()
    async with AsyncBusServer(bus, N, endpoint(large=lambda request: bytes(20 * 2**20))) as server:
        with pytest.raises(WorkerFailed, match=r"the answer cannot be sent: .* its peer takes at most 16777216"):
            await AsyncBusClient(bus).call(MAPS, "large", timeout=PATIENCE)
        assert server.lost_replies == 0


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
                assert (await AsyncBusClient(bus).call(MAPS, "echo", b"x", timeout=PATIENCE)).body == b"x"
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
        async with Proxy(vhost.broker.amqp_port) as proxy:
            narrow = await open_bus(user=user, password="of-a-test", ports=(proxy.port,))
            async with AsyncBusServer(narrow, N, endpoint()):
                with pytest.raises(LinkRefused, match="reply-bus-"):
                    await AsyncBusClient(narrow).call(MAPS, "echo", timeout=PATIENCE)
                proxy.cut()
                await until_async(lambda: narrow.connections == 2)
                assert (await AsyncBusClient(bus).call(MAPS, "echo", b"x", timeout=PATIENCE)).body == b"x"
            await narrow.close()
    finally:
        management.delete("users", user)


async def test_many_refused_addresses_at_once_harm_no_other(open_bus: OpenBus) -> None:
    bus = await open_bus()
    async with AsyncBusServer(bus, N, endpoint()):
        calls = AsyncBusClient(bus)
        ended = await asyncio.gather(
            *(calls.fanout(Target(f"never-{number}"), "echo", timeout=PATIENCE) for number in range(150)),
            return_exceptions=True,
        )
        assert {type(one) for one in ended} == {LinkRefused}
        assert (await calls.call(MAPS, "echo", b"x", timeout=PATIENCE)).body == b"x"
        assert bus.connections == 1


async def test_what_a_server_holds_is_bounded_however_often_its_connection_ends(
    open_bus: OpenBus, vhost: Vhost
) -> None:
    bus, go = await open_bus(), asyncio.Event()

    async def wait(_: BusRequest) -> None:
        await go.wait()

    async with Proxy(vhost.broker.amqp_port) as proxy:
        far = await open_bus(ports=(proxy.port,), settings=BusSettings(server_credit=10))
        async with AsyncBusServer(far, N, endpoint(wait=wait), concurrency=1) as server:
            await asyncio.gather(*(AsyncBusClient(bus).cast(MAPS, "wait", timeout=PATIENCE) for _ in range(50)))
            for times in range(2, 5):
                await until_async(lambda: server.in_hand >= 10)
                proxy.cut()
                await until_async(lambda times=times: far.connections == times)  # type: ignore[misc]
                await until_async(lambda: server.in_hand >= 10)
                assert server.in_hand <= 11
            go.set()


async def test_a_host_that_is_no_name_is_no_peer_and_hinders_no_other(open_bus: OpenBus, vhost: Vhost) -> None:
    with pytest.raises(ConnectFailed, match=r"cannot connect to a\.\.b"):
        await AsyncBus("amqp://a..b").open()
    async with Proxy(vhost.broker.amqp_port) as proxy:
        bus = AsyncBus(["amqp://a..b", vhost.amqp_uri().replace(str(vhost.broker.amqp_port), str(proxy.port))])
        async with bus:
            proxy.cut()
            await until_async(lambda: bus.connections == 2)


async def test_a_bus_that_could_not_be_opened_says_why_at_once() -> None:
    bus = AsyncBus("amqp://127.0.0.1:1")
    with pytest.raises(ConnectFailed):
        await bus.open()
    with pytest.raises(ConnectFailed):
        await AsyncBusClient(bus).cast(MAPS, "x", timeout=PATIENCE)


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
        await asyncio.wait_for(peer.gone.wait(), PATIENCE)


async def test_a_bus_that_is_not_open_says_so(vhost: Vhost) -> None:
    bus = AsyncBus(vhost.amqp_uri())
    assert not bus.is_connected
    with pytest.raises(BusClosed, match="not open"):
        await AsyncBusClient(bus).cast(MAPS, "echo", timeout=PATIENCE)
    await bus.close()
    with pytest.raises(BusClosed, match="opened before"):
        await bus.open()


async def test_the_namespace_of_the_methods_that_all_servers_have_is_taken(open_bus: OpenBus) -> None:
    with pytest.raises(ValueError, match="the namespace 'osrdyne' has the methods of all servers"):
        AsyncBusServer(await open_bus(), N, [Endpoint("osrdyne")])
