"""A peer on proton that does what a test wants: it opens and takes everything, unless changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import proton
from proton import Collector, Delivery, Endpoint


class ScriptedPeer(asyncio.Protocol):
    """One connection of a client. Subclasses change what it does; `links` are those that the client attached."""

    def __init__(self) -> None:
        self.links: list[Any] = []
        #: Outcomes of what this peer sent.
        self.outcomes: list[int] = []
        self.connection = proton.Connection()
        self._collector = Collector()
        self._engine = proton.Transport(proton.Transport.SERVER)
        #: Whether the client is gone.
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.socket = transport
        self.connection.collect(self._collector)
        self._engine.sasl().allowed_mechs("ANONYMOUS")
        self._engine.bind(self.connection)

    def data_received(self, data: bytes) -> None:
        while data and (capacity := self._engine.capacity()) > 0:
            self._engine.push(data[:capacity])
            data = data[capacity:]
            self._events()
        self.write(self.pending())

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()

    def pending(self) -> bytes:
        """Handle all events, and take out what is to be written."""
        found = b""
        while True:
            self._events()
            number = self._engine.pending()
            if number <= 0:
                return found
            found += self._engine.peek(number)
            self._engine.pop(number)

    def write(self, data: bytes) -> None:
        if not self.socket.is_closing():
            self.socket.write(data)

    def flush(self) -> None:
        self.write(self.pending())

    def _events(self) -> None:
        while (event := self._collector.peek()) is not None:
            if (handle := getattr(self, event.type.method, None)) is not None:
                handle(event)
            self._collector.pop()

    def on_connection_remote_open(self, event: Any) -> None:
        self.connection.container = "peer"
        self.connection.open()

    def on_connection_remote_close(self, event: Any) -> None:
        self.connection.close()

    def on_session_remote_open(self, event: Any) -> None:
        if event.session.state & Endpoint.LOCAL_UNINIT:
            event.session.open()

    def on_link_remote_open(self, event: Any) -> None:
        link = event.link
        if not link.state & Endpoint.LOCAL_UNINIT:
            return
        if link.is_sender:
            link.source.address = link.remote_source.address or "replies"
        else:
            link.target.address = link.remote_target.address
        link.open()
        if link.is_receiver:
            link.flow(1000)
        self.links.append(link)

    def on_link_remote_close(self, event: Any) -> None:
        event.link.close()

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if link.is_receiver and delivery.readable and not delivery.partial:
            link.recv(delivery.pending)
            link.advance()
            self.took(delivery)
        elif link.is_sender and delivery.updated:
            self.outcomes.append(delivery.remote_state)
            delivery.settle()

    def took(self, delivery: Any) -> None:
        """Say what became of a message."""
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()

    def send(self, link: Any, encoded: bytes) -> None:
        """Send one message over a link that the client reads from; `flush` writes it."""
        link.delivery(link.delivery_tag())
        link.stream(encoded)
        link.advance()


@asynccontextmanager
async def serving(peer: ScriptedPeer) -> AsyncIterator[int]:
    """The port at which a peer waits for its one client."""
    server = await asyncio.get_running_loop().create_server(lambda: peer, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        peer.socket.abort()
