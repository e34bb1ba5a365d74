"""The face of the bus for threads, on RabbitMQ."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from osrdyne_bus import Target
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.errors import BusClosed, ConnectFailed, LinkRefused, MessagingError, MessagingTimeout
from osrdyne_bus.messages.wire import BusRequest, Notification
from osrdyne_bus.threads import Bus, BusClient, BusListener, BusServer
from osrdyne_calls.errors import WorkerFailed
from testbed.waiting import PATIENCE_SECONDS, until
from tests.conftest import Vhost

MAPS = Target("maps")
N = Target("maps", server="n")


@pytest.fixture
def bus(vhost: Vhost) -> Iterator[Bus]:
    with Bus(vhost.amqp_uri()) as opened:
        yield opened


def endpoint(*handlers: Callable[[BusRequest], bytes | None]) -> list[Endpoint]:
    made = Endpoint()
    for handler in handlers:
        made.method(handler)
    return [made]


def echo(request: BusRequest) -> bytes:
    return request.body


def test_threads_call_cast_fan_out_and_notify_over_one_connection(bus: Bus) -> None:
    noted: list[bytes] = []

    def note(request: BusRequest) -> None:
        noted.append(request.body)

    def heard(notification: Notification) -> None:
        noted.append(notification.body)

    with BusServer(bus, N, endpoint(echo, note)), BusListener(bus, MAPS, heard):
        client = BusClient(bus)
        with ThreadPoolExecutor(8) as threads:
            bodies = [str(number).encode() for number in range(200)]
            answers = threads.map(lambda body: client.call(MAPS, "echo", body, timeout=PATIENCE_SECONDS).body, bodies)
            assert list(answers) == bodies
        client.cast(N, "note", b"cast", timeout=PATIENCE_SECONDS)
        client.fanout(MAPS, "note", b"fanout", timeout=PATIENCE_SECONDS)
        client.notify(MAPS, "event", b"notify", timeout=PATIENCE_SECONDS)
        until(lambda: len(noted) == 3)
    assert sorted(noted) == [b"cast", b"fanout", b"notify"]
    assert bus.asynchronous.connections == 1


def test_a_call_that_times_out_leaves_the_bus_as_it_was(bus: Bus) -> None:
    go = threading.Event()

    def wait(request: BusRequest) -> None:
        go.wait()

    with BusServer(bus, N, endpoint(echo, wait)):
        with pytest.raises(MessagingTimeout):
            BusClient(bus).call(MAPS, "wait", timeout=0.5)
        assert BusClient(bus).call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS).body == b"x"
        go.set()


def test_closing_ends_calls_that_wait_in_other_threads(vhost: Vhost) -> None:
    go, begun = threading.Event(), threading.Event()

    def wait(request: BusRequest) -> None:
        begun.set()
        go.wait()

    with Bus(vhost.amqp_uri()) as far, BusServer(far, N, endpoint(wait)):
        bus = Bus(vhost.amqp_uri())
        bus.open()
        ended: list[BaseException] = []

        def call() -> None:
            try:
                BusClient(bus).call(MAPS, "wait", timeout=PATIENCE_SECONDS)
            except BaseException as error:  # noqa: BLE001 - whatever it is
                ended.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        until(lambda: begun.is_set() or bool(ended))
        bus.close()
        bus.close()
        thread.join()
        go.set()
        assert [type(result) for result in ended] == [BusClosed]
        with pytest.raises(BusClosed, match="open one with `with`"):
            BusClient(bus).call(MAPS, "wait")
        assert not bus.is_connected


def test_a_bus_that_cannot_be_opened_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(ConnectFailed):
        Bus("amqp://127.0.0.1:1").open()
    assert set(threading.enumerate()) <= before


def test_several_threads_may_close_at_once(vhost: Vhost) -> None:
    for _ in range(5):
        bus = Bus(vhost.amqp_uri())
        bus.open()
        closing = [threading.Thread(target=bus.close) for _ in range(4)]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


def test_calls_that_begin_while_the_bus_is_closed_end(vhost: Vhost) -> None:
    bus = Bus(vhost.amqp_uri())
    bus.open()
    ended: list[type[BaseException]] = []

    def call() -> None:
        client = BusClient(bus)
        try:
            while True:
                client.cast(Target("never"), "x", timeout=PATIENCE_SECONDS)
        except LinkRefused:
            call()
        except BaseException as error:  # noqa: BLE001 - whatever it is
            ended.append(type(error))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    bus.close()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert ended == [BusClosed] * 4


def test_a_handler_on_the_loop_that_uses_the_face_for_threads_is_refused_and_harms_nothing(bus: Bus) -> None:
    async def wrong(request: BusRequest) -> bytes:
        return BusClient(bus).call(MAPS, "echo", timeout=PATIENCE_SECONDS).body

    made = endpoint(echo)
    made[0].add("wrong", wrong)
    with BusServer(bus, N, made):
        with pytest.raises(WorkerFailed, match="has to use the bus' `asynchronous`"):
            BusClient(bus).call(MAPS, "wrong", timeout=PATIENCE_SECONDS)
        assert BusClient(bus).call(MAPS, "echo", b"x", timeout=PATIENCE_SECONDS).body == b"x"


def test_a_bus_that_is_closed_while_it_is_opened_leaves_no_thread(vhost: Vhost) -> None:
    before = set(threading.enumerate())
    bus = Bus(vhost.amqp_uri())

    def opening() -> None:
        with contextlib.suppress(BusClosed):
            bus.open()

    opener = threading.Thread(target=opening)
    opener.start()
    until(lambda: len(set(threading.enumerate()) - before) == 2)  # this one, and the bus' own
    closer = threading.Thread(target=bus.close, daemon=True)
    closer.start()
    for thread in (opener, closer):
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    assert set(threading.enumerate()) <= before
    with pytest.raises(BusClosed):
        BusClient(bus).call(MAPS, "echo")


def test_a_bus_can_be_closed_at_any_moment_of_its_opening() -> None:
    problems: list[Exception] = []

    def noted(act: Callable[[], None]) -> None:
        try:
            act()
        except MessagingError:  # nothing listens there
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is
            problems.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for _ in range(100):
        bus = Bus("amqp://127.0.0.1:1")
        threads = [threading.Thread(target=noted, args=(act,)) for act in (bus.open, bus.close)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()
    sys.setswitchinterval(interval)
    assert problems == []
