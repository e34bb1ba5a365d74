"""Talking to a bus that is not there, says nothing, or refuses; and where the bus is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dbus_fast import Message, MessageType

from osrdyne.drivers.systemd import bus
from osrdyne.drivers.systemd.bus import BusError, DBusConnection, Listener, MethodCall
from testbed.waiting import PATIENCE_SECONDS

HELLO = MethodCall("/", "org.example", "Hello")


def bus_at(path: Path, timeout: float = PATIENCE_SECONDS) -> DBusConnection:
    async def prepare() -> None:
        pass

    listener = Listener((), prepare, lambda _: None, lambda _: None)
    return DBusConnection(f"unix:path={path}", "org.example", listener, timeout=timeout)


async def test_a_bus_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BusError, match=r"No such file or directory; start D-Bus there, or set driver.bus_address"):
        await bus_at(tmp_path / "bus").call(HELLO)


@contextlib.asynccontextmanager
async def server(path: Path, says: bytes) -> AsyncIterator[None]:
    """What answers the first line in this way, and sees that the caller hangs up."""
    hung_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(says)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        hung_up.set()

    async with await asyncio.start_unix_server(serve, path):
        yield
        await asyncio.wait_for(hung_up.wait(), PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("says", "timeout", "said"),
    [
        (b"", 0.2, "does not answer; see systemctl status dbus"),
        (b"REJECTED EXTERNAL\r\n", PATIENCE_SECONDS, "authentication failed: REJECTED"),
        (b"220 mail.example ESMTP\r\n", PATIENCE_SECONDS, "cannot reach the bus at .*: authentication failed"),
        (b"OK 1234\r\n", 0.2, "does not answer"),
    ],
)
async def test_a_bus_that_does_not_take_us_is_reported_in_time_and_hung_up_on(
    says: bytes, timeout: float, said: str, tmp_path: Path
) -> None:
    async with server(tmp_path / "bus", says):
        with pytest.raises(BusError, match=said):
            await bus_at(tmp_path / "bus", timeout).call(HELLO)


async def test_an_address_that_is_none_is_reported() -> None:
    async def prepare() -> None:
        pass

    listener = Listener((), prepare, lambda _: None, lambda _: None)
    with pytest.raises(BusError, match="cannot reach the bus at /run/dbus"):
        await DBusConnection("/run/dbus", "org.example", listener).call(HELLO)


def test_the_usual_bus_is_the_one_that_systemctl_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DBUS_SYSTEM_BUS_ADDRESS", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 1234)
    assert bus.default_address("system") == "unix:path=/run/dbus/system_bus_socket"
    assert bus.default_address("user") == "unix:path=/run/user/1234/bus"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/somewhere")
    assert bus.default_address("user") == "unix:path=/somewhere/bus"
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/session")
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/system")
    assert (bus.default_address("user"), bus.default_address("system")) == ("unix:path=/session", "unix:path=/system")


class SerialBus:
    """A bus whose peer takes a second for each answer, one after the other; it stands for dbus_fast's connection."""

    def __init__(self, _: str) -> None:
        self._one = asyncio.Lock()

    async def connect(self) -> SerialBus:
        return self

    def add_message_handler(self, _: object) -> None:
        pass

    async def wait_for_disconnect(self) -> None:
        await asyncio.Event().wait()

    async def call(self, _: Message) -> Message:
        async with self._one:
            await asyncio.sleep(1)
        return Message(message_type=MessageType.METHOD_RETURN, reply_serial=1)


@pytest.mark.looptime
async def test_a_call_is_not_given_up_because_a_hundred_others_are_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def prepare() -> None:
        pass

    monkeypatch.setattr(bus, "MessageBus", SerialBus)
    crowded = DBusConnection("unix:path=/bus", "org.example", Listener((), prepare, lambda _: None, lambda _: None))
    assert await asyncio.gather(*(crowded.call(HELLO) for _ in range(100))) == [[]] * 100
