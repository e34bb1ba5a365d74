"""The proxy between two plain sockets: what passes, what does not, and who sees it first."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from faults.frames import CONFIRMED, PUBLISH, Method, Scanner
from faults.points import Point, confirmed_publish
from faults.proxy import HOST, Direction, Proxy
from testbed.waiting import until


def method(number: tuple[int, int], arguments: bytes = b"", channel: int = 1) -> bytes:
    payload = struct.pack(">HH", *number) + arguments
    return struct.pack(">BHI", 1, channel, len(payload)) + payload + b"\xce"


def publish(exchange: bytes) -> bytes:
    return method(PUBLISH, b"\0\0" + bytes([len(exchange)]) + exchange + b"\x01k\0")


class Wire:
    """One connection through the proxy, by both of its ends."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.proxy = Proxy(self._listener.getsockname()[1], "client", "other")
        self.proxy.__enter__()
        self.near, self.far = self.connect()

    def connect(self) -> tuple[socket.socket, socket.socket]:
        before = self.proxy.connections("client")
        near = socket.create_connection((HOST, self.proxy.ports["client"]), timeout=60)
        far = self._listener.accept()[0]
        far.settimeout(60)
        until(lambda: self.proxy.connections("client") == before + 1, what="the proxy's own view of it")
        return near, far

    def close(self) -> None:
        self.proxy.__exit__()
        for open_socket in (self.near, self.far, self._listener):
            open_socket.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    result = Wire()
    yield result
    result.close()


def test_bytes_pass_in_both_directions_until_one_end_hangs_up(wire: Wire) -> None:
    wire.near.sendall(b"ping")
    assert wire.far.recv(10) == b"ping"
    wire.far.sendall(b"pong")
    assert wire.near.recv(10) == b"pong"
    wire.far.close()
    assert wire.near.recv(10) == b""


def test_a_cut_ends_the_connections_of_its_side_only(wire: Wire) -> None:
    wire.proxy.cut("other")
    wire.near.sendall(b"on")
    assert wire.far.recv(10) == b"on"
    wire.proxy.cut("client")
    with pytest.raises(ConnectionResetError):
        wire.near.recv(10)


def test_a_silenced_connection_passes_nothing_while_a_new_one_does(wire: Wire) -> None:
    wire.proxy.silence("client")
    wire.near.sendall(b"unheard")
    near, far = wire.connect()
    near.sendall(b"heard")
    assert far.recv(10) == b"heard"
    wire.far.setblocking(False)
    with pytest.raises(BlockingIOError):
        wire.far.recv(10)
    wire.proxy.drop_silenced()
    until(lambda: wire.proxy.connections("client") == 1, what="the silenced connection's end")
    near.close()
    far.close()


def test_a_broker_that_is_away_looks_like_a_lost_connection(wire: Wire) -> None:
    wire._listener.close()

    def connect() -> bytes:
        with socket.create_connection((HOST, wire.proxy.ports["client"]), timeout=60) as near:
            return near.recv(10)

    with pytest.raises(ConnectionResetError):
        connect()


def test_a_watch_acts_before_the_bytes_that_it_saw_pass(wire: Wire) -> None:
    seen: list[int] = []

    def act(port: int) -> bool:
        wire.near.setblocking(False)
        with pytest.raises(BlockingIOError):
            wire.near.recv(10)
        wire.near.setblocking(True)
        seen.append(port)
        return True

    point = Point(confirmed_publish("x"), act)
    remove = wire.proxy.watch("client", point)
    wire.near.sendall(b"AMQP\0\0\x09\x01" + publish(b"other") + publish(b"x"))
    wire.far.recv(1000)
    wire.far.sendall(method(CONFIRMED, channel=2))
    wire.near.recv(1000)
    assert not point.done.is_set()
    wire.far.sendall(method(CONFIRMED))
    assert wire.near.recv(1000)
    assert point.done.is_set()
    assert seen == [wire.near.getsockname()[1]]
    remove()


def test_methods_are_found_however_the_bytes_are_cut() -> None:
    data = b"AMQP\0\0\x09\x01" + publish(b"x") + struct.pack(">BHI", 2, 1, 3) + b"abc\xce" + method(CONFIRMED)
    scanner = Scanner()
    found = [frame for at in range(len(data)) for frame in scanner.feed(data[at : at + 1])]
    assert [frame.number for frame in found] == [PUBLISH, CONFIRMED]
    assert found[0].name == "x"


def test_a_point_acts_once_and_tries_again_after_a_failure() -> None:
    answers = iter([False, True])
    point = Point(confirmed_publish("x"), lambda _: next(answers))
    up: Direction = "up"
    first = Scanner().feed(publish(b"x"))[0]
    confirm = Method(1, CONFIRMED, b"")
    for _ in range(4):
        point(7, up, first)
        point(7, "down", confirm)
    assert point.done.is_set()
    assert list(answers) == []
