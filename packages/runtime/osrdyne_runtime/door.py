"""Bounds what strangers have of a server: how many connections, and how long until they have shown who they are.

A connection whose first request does not come in time is closed. Where too many wait, the oldest goes: a client sends
its request soon, so those that go send nothing, or not all. That holds only while clients that come all at once, as
after a restart, have room to wait together: half of all connections, where nothing else is said.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

#: Seconds that a connection may wait to be let in.
PATIENCE_SECONDS = 10.0
#: A loop that runs a timer this much later has stood still.
_LATE_SECONDS = 0.1


class Door:
    """Stands before the protocols of a server. Use it from one event loop."""

    def __init__(
        self,
        *,
        most: int,
        tls: ssl.SSLContext | None = None,
        most_waiting: int | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """`most`: connections in all; one too many is closed at once where none waits.

        `most_waiting`: of those that wait; half of all by default. With `tls`, the handshake is part of the wait.
        """
        self._most, self._most_waiting, self._patience = most, most_waiting or (most + 1) // 2, patience
        self._tls = tls
        #: By the address of the other side, oldest first.
        self._waiting: dict[object, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}
        #: How many are open now.
        self.connections = 0

    def around(self, protocols: Callable[..., asyncio.Protocol]) -> Callable[..., asyncio.Protocol]:
        """Return what `create_server` is given in place of `protocols`."""
        return lambda *given, **named: _Visitor(self, protocols(*given, **named), self._tls)

    def let_in(self, address: object) -> None:
        """The connection from this address, a pair of host and port, has sent a request of a client that is known."""
        waiting = self._waiting.pop(address, None)
        if waiting is not None:
            waiting[1].cancel()

    async def emptied(self, within: float) -> None:
        """Wait until no connection is open, for so many seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self.connections:  # noqa: ASYNC110 - once in a life
                    await asyncio.sleep(0.02)

    def close(self) -> None:
        """Close what waits."""
        for transport, _ in list(self._waiting.values()):
            transport.abort()

    def admit(self, address: object, transport: asyncio.Transport) -> bool:
        """Let a new connection wait, in place of the oldest that waits where there are too many of them or in all."""
        full = self.connections >= self._most
        if full and not self._waiting:
            return False
        self.connections += 1
        if full or len(self._waiting) >= self._most_waiting:
            oldest = next(iter(self._waiting))
            self._waiting[oldest][0].abort()
            self.let_in(oldest)
        self._wait(address, transport, self._patience)
        return True

    def _wait(self, address: object, transport: asyncio.Transport, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        self._waiting[address] = transport, loop.call_at(until, self._waited, address, transport, until)

    def _waited(self, address: object, transport: asyncio.Transport, until: float) -> None:
        late = asyncio.get_running_loop().time() - until
        if late > _LATE_SECONDS:
            # Our own loop stood still, so what came in time may be unread.
            self._wait(address, transport, late)
        else:
            transport.abort()

    def left(self, address: object) -> None:
        """Take note of the end of a connection that was admitted."""
        self.connections -= 1
        self.let_in(address)


class _Visitor(asyncio.Protocol):
    """Hands one connection on to the server's protocol, from the end of the handshake of TLS on."""

    def __init__(self, door: Door, inner: asyncio.Protocol, tls: ssl.SSLContext | None) -> None:
        self._door, self._inner, self._tls = door, inner, tls
        self._address: object = None
        self._admitted = self._begun = False
        #: What came before the handshake was known to be over.
        self._early: list[bytes] = []
        self._securing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._address = address_of(transport)
        self._admitted = self._door.admit(self._address, transport)
        if not self._admitted:
            transport.abort()
        elif self._tls is None:
            self._begin(transport)
        else:
            # Or its first bytes would come to us, before the task begins.
            transport.pause_reading()
            self._securing = asyncio.create_task(self._secure(transport, self._tls))

    async def _secure(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(transport, self, tls, server_side=True)
        except OSError:  # of a handshake that failed, or of a connection that ended meanwhile, as the door's do
            secured = None
        if secured is None:
            self._leave()
        else:
            self._begin(secured)

    def _begin(self, transport: asyncio.BaseTransport) -> None:
        self._begun = True
        self._inner.connection_made(transport)
        for data in self._early:
            self._inner.data_received(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self._begun:
            self._inner.data_received(data)
        else:
            self._early.append(data)

    def eof_received(self) -> Any:
        return self._inner.eof_received() if self._begun else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        if self._begun:
            self._inner.connection_lost(exc)

    def _leave(self) -> None:
        if self._admitted:
            self._admitted = False
            self._door.left(self._address)


def address_of(transport: asyncio.BaseTransport | None) -> object:
    """Return the other side's address, as `let_in` takes it."""
    found = None if transport is None else transport.get_extra_info("peername")
    return tuple(found[:2]) if isinstance(found, tuple) else found
