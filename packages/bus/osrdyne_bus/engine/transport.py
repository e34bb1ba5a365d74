"""Bytes between a socket and proton, and proton's time.

proton reads and writes frames, and never touches a socket. TLS is that of Python, below proton, and the login is ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import proton
from cproton import isnull, pn_collector_peek
from proton import Collector

from osrdyne_bus.engine.handshake import Handshake, NotAmqp
from osrdyne_bus.logins import CannotLogIn
from osrdyne_runtime import hosts

#: Seconds without a frame after which the peer counts as gone. proton sends empty frames in time for the peer's own.
IDLE_SECONDS = 30.0


class ProtonTransport(asyncio.Protocol):
    """The asyncio protocol of one connection."""

    def __init__(
        self,
        connection: proton.Connection,
        handle: Callable[[object], None],
        *,
        not_logged_in: Callable[[CannotLogIn | NotAmqp], None],
        disconnected: Callable[[Exception | None], None],
    ) -> None:
        """`handle` gets each of proton's events as a C pointer.

        `not_logged_in` gets why the login failed, and `disconnected` the end of the socket, once.
        """
        self.engine = proton.Transport()
        self.engine.idle_timeout = IDLE_SECONDS
        self.gone = asyncio.Event()
        self._connection = connection
        self._collector = Collector()
        connection.collect(self._collector)
        self._handle = handle
        self._not_logged_in = not_logged_in
        self._disconnected = disconnected
        #: The login, until it is done. proton is given nothing before.
        self._handshake: Handshake | None = None
        self._loop = asyncio.get_running_loop()
        self._socket: asyncio.Transport | None = None
        self._flush: asyncio.Handle | None = None
        self._tick: asyncio.TimerHandle | None = None

    def begin(self, handshake: Handshake) -> None:
        """Log in by this handshake as soon as there is a socket, and open the connection then."""
        self._handshake = handshake
        self.engine.bind(self._connection)
        self._connection.open()

    @property
    def logs_in(self) -> bool:
        """Whether the login is not done."""
        return self._handshake is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        assert self._handshake is not None
        address = transport.get_extra_info("peername")
        # The address, and not the name, which may mean another machine.
        here = isinstance(address, tuple) and hosts.is_loopback(address[0])
        transport.write(self._handshake.begin(private=here or transport.get_extra_info("ssl_object") is not None))

    def data_received(self, data: bytes) -> None:
        if self._handshake is not None:
            data = self._log_in(self._handshake, data)
        view = memoryview(data)
        while view:
            capacity = self.engine.capacity()
            if capacity <= 0:
                break  # the engine takes no more: its connection has ended
            self.engine.push(bytes(view[:capacity]))
            view = view[capacity:]
            self._events()
        self.work()

    def _log_in(self, handshake: Handshake, data: bytes) -> bytes:
        """Go on with the login, and return what came after it."""
        assert self._socket is not None
        try:
            self._socket.write(handshake.received(data))
        except (CannotLogIn, NotAmqp) as error:
            self._not_logged_in(error)
            # At once: over TLS, more would be read until the end of the connection is answered.
            self._socket.abort()
            return b""
        if not handshake.done:
            return b""
        self._handshake = None
        return handshake.rest

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        if not self.logs_in:
            with contextlib.suppress(proton.ProtonException):
                self.engine.close_tail()
                self.engine.close_head()
            self._events()
        self._disconnected(exc)
        if self._tick is not None:
            self._tick.cancel()

    def flush_soon(self) -> None:
        """Write what there is to write before the loop waits again."""
        if self._flush is None:
            self._flush = self._loop.call_soon(self.work)

    def work(self) -> None:
        """Handle all events, and write all there is to write."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._socket is None or self.gone.is_set() or self.logs_in:
            return
        self._keep_time()
        while True:
            self._events()
            pending = self.engine.pending()
            if pending <= 0:
                break
            if self._socket.is_closing():
                return  # it was cut: asyncio would log each write
            self._socket.write(self.engine.peek(pending))
            self.engine.pop(pending)
        if pending < 0 or self.engine.closed:
            self._socket.close()

    def abort(self) -> None:
        """Close the socket without a word."""
        if self._socket is not None:
            self._socket.abort()

    def _keep_time(self) -> None:
        # This may make an empty frame, which is written with the others.
        if self._tick is not None:
            self._tick.cancel()
        now = time.monotonic()
        deadline = self.engine.tick(now)
        if deadline:
            self._tick = self._loop.call_later(max(0.0, deadline - now), self.work)

    def _events(self) -> None:
        while not isnull(event := pn_collector_peek(self._collector._impl)):  # noqa: SLF001
            try:
                self._handle(event)
            finally:
                self._collector.pop()
