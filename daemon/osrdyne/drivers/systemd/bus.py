"""One connection to a D-Bus message bus, opened when it is first needed and again after it was lost.

Its calls have a timeout and raise `BusError`; the listener gets all signals, and one call for a lost connection. The
only module that knows the library.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osrdyne.errors import DriverError
from osrdyne_runtime.console.imports import extra

with extra("osrdyne[systemd]"):
    from dbus_fast import DBusFastError, Message, MessageType
    from dbus_fast.aio import MessageBus
    from dbus_fast.unpack import unpack_variants

#: Longest wait for one answer, and for a connection, in seconds. As long as sd-bus(3) waits by default: a machine that
#: starts a hundred workers keeps systemd busy for longer than 10 s.
TIMEOUT_SECONDS = 25.0

#: Most calls that wait for their answer at once. systemd answers one after the other, and the timeout of a call should
#: cover its own answer, not those of a hundred calls before it.
_MOST_CALLS = 16

_BUS = "org.freedesktop.DBus"


class BusError(DriverError):
    """The bus is away, or the peer refused the call. `name` is the D-Bus name of a refusal, else empty."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.away = not name


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal, with its variants unpacked."""

    path: str
    interface: str
    member: str
    body: list[Any]


@dataclass(frozen=True, slots=True)
class MethodCall:
    """One method call. `signature` is the D-Bus type of each argument."""

    path: str
    interface: str
    member: str
    signature: str = ""
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Listener:
    """What a connection listens to. `prepare` is awaited on each new one, before any other call."""

    #: Match rules of the signals that are wanted (D-Bus specification, "Match Rules").
    rules: tuple[str, ...]
    prepare: Callable[[], Awaitable[None]]
    on_signal: Callable[[Signal], None]
    #: Called once for each connection that ended by itself, with the reason.
    on_lost: Callable[[str], None]


def default_address(manager: str) -> str:
    """Return the address of the bus on which a manager is, `system` or `user`, as systemctl would choose it."""
    if manager == "system":
        return os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or "unix:path=/run/dbus/system_bus_socket"
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    return os.environ.get("DBUS_SESSION_BUS_ADDRESS") or f"unix:path={runtime / 'bus'}"


class DBusConnection:
    """A connection to `peer`, a name on the bus, opened by `connect` or the first call. `timeout` in seconds."""

    def __init__(self, address: str, peer: str, listener: Listener, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self.address = address
        self._peer = peer
        self._listener = listener
        self._timeout = timeout
        self._connection: MessageBus | None = None
        self._connecting = asyncio.Lock()
        self._slots = asyncio.Semaphore(_MOST_CALLS)
        self._watcher: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    async def connect(self) -> None:
        """Return once there is a connection with a listener. Raises `BusError` when there can be none."""
        if self._connection is not None:
            return
        async with self._connecting:
            if self._connection is None:
                await self._connect()

    async def call(self, call: MethodCall) -> list[Any]:
        """Return the answer, its variants unpacked. Raises `BusError`."""
        await self.connect()
        async with self._slots:
            if self._connection is None:
                raise BusError(f"{call.member} was not sent: the connection to the bus ended")
            return await self._ask(self._connection, self._peer, call)

    async def close(self) -> None:
        """End the connection, and make no other. One that is being made just now is waited for."""
        self._closed.set()
        async with self._connecting:
            await self._end()

    async def _connect(self) -> None:
        if self._closed.is_set():
            raise BusError("the driver was closed")
        try:
            async with asyncio.timeout(self._timeout):
                connection = await MessageBus(self.address).connect()
        except TimeoutError:
            raise BusError(f"the bus at {self.address} does not answer; see systemctl status dbus") from None
        except (OSError, EOFError, UnicodeError, DBusFastError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise BusError(
                f"cannot reach the bus at {self.address}: {reason}; start D-Bus there, or set driver.bus_address"
            ) from error
        connection.add_message_handler(self._received)
        self._watcher = asyncio.create_task(self._watch(connection), name="driver-bus")
        try:
            for rule in self._listener.rules:
                await self._ask(connection, _BUS, MethodCall("/org/freedesktop/DBus", _BUS, "AddMatch", "s", (rule,)))
            self._connection = connection
            await self._listener.prepare()
        except BaseException:
            self._connection = connection
            await self._end()
            raise
        if self._closed.is_set():
            await self._end()
            raise BusError("the driver was closed")

    async def _end(self) -> None:
        """End the connection without calling `on_lost`."""
        connection, self._connection = self._connection, None
        watcher, self._watcher = self._watcher, None
        if connection is not None:
            connection.disconnect()
        if watcher is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(watcher, self._timeout)

    async def _ask(self, connection: MessageBus, peer: str, call: MethodCall) -> list[Any]:
        message = Message(
            peer, call.path, call.interface, call.member, signature=call.signature, body=list(call.arguments)
        )
        try:
            async with asyncio.timeout(self._timeout):
                reply = await connection.call(message)
        except TimeoutError:
            raise BusError(f"{call.member} was not answered within {self._timeout:g} s") from None
        except (OSError, EOFError, DBusFastError) as error:
            reason = str(error) or "the connection to the bus ended"
            raise BusError(f"{call.member} was not answered: {reason}") from error
        if reply is None:  # we ended the connection meanwhile
            raise BusError(f"{call.member} was not answered: the connection to the bus ended")
        if reply.message_type is MessageType.ERROR:
            text = str(reply.body[0]) if reply.body else "no reason given"
            raise BusError(text, str(reply.error_name))
        return list(unpack_variants(reply.body))

    def _received(self, message: Message) -> None:
        if message.message_type is MessageType.SIGNAL:
            path, interface, member = str(message.path), str(message.interface), str(message.member)
            self._listener.on_signal(Signal(path, interface, member, unpack_variants(message.body)))

    async def _watch(self, connection: MessageBus) -> None:
        reason = "it was closed"
        try:
            await connection.wait_for_disconnect()  # type: ignore[no-untyped-call]
        except (OSError, EOFError, DBusFastError) as error:
            reason = str(error) or "the other side ended it"
        if self._connection is connection:
            self._connection = self._watcher = None
            self._listener.on_lost(f"lost the bus at {self.address}: {reason}")
