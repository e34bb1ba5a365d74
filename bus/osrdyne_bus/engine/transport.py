"""Bytes between a socket and proton, and proton's time.

proton reads and writes frames and never touches a socket. TLS is that of Python, below proton.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import proton
from cproton import isnull, pn_collector_peek
from proton import Collector

#: Seconds without a frame after which the peer counts as gone. proton sends empty frames in time for the peer's own.
IDLE = 30.0


class ProtonTransport(asyncio.Protocol):
    """The asyncio protocol of one connection."""

    def __init__(
        self,
        connection: proton.Connection,
        handle: Callable[[object], None],
        disconnected: Callable[[Exception | None], None],
    ) -> None:
        """`handle` gets each of proton's events as a C pointer, and `disconnected` the end of the socket, once."""
        self.engine = proton.Transport()
        self.engine.idle_timeout = IDLE
        self.gone = asyncio.Event()
        self._connection = connection
        self._collector = Collector()
        connection.collect(self._collector)
        self._handle = handle
        self._disconnected = disconnected
        self._loop = asyncio.get_running_loop()
        self._socket: asyncio.Transport | None = None
        self._flush: asyncio.Handle | None = None
        self._tick: asyncio.TimerHandle | None = None

    def bind(self) -> None:
        """Begin, once the login is set up."""
        self.engine.bind(self._connection)
        self._connection.open()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        self.work()

    def data_received(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            capacity = self.engine.capacity()
            if capacity <= 0:
                break  # the engine takes no more: its connection has ended
            self.engine.push(bytes(view[:capacity]))
            view = view[capacity:]
            self._events()
        self.work()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
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
        if self._socket is None or self.gone.is_set():
            return
        self._keep_time()
        while True:
            self._events()
            pending = self.engine.pending()
            if pending <= 0:
                break
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
