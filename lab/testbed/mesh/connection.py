"""A connection of a router, to a client or to another router: proton's frames on an asyncio socket."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Protocol

import proton
from proton import Collector, Endpoint

from testbed.mesh.lanes import Entry, Lane
from testbed.mesh.management import destination
from testbed.mesh.routing import RouterState

#: Where routers send what they know, and how the address of a link begins that is for one destination.
MESH, TO = "$mesh", "$to/"


class Owner(Protocol):
    """What a connection needs of its router."""

    name: str

    def reply_address(self) -> str: ...
    def receiver_came(self, address: str, lane: Lane) -> None: ...
    def receiver_went(self, lane: Lane) -> None: ...
    def neighbour_found(self, connection: Connection) -> None: ...
    def heard(self, news: Mapping[str, Any], connection: Connection) -> None: ...
    def connection_lost(self, connection: Connection) -> None: ...
    def forward(self, entry: Entry, incoming: Any, data: bytes) -> None: ...
    def grant(self, *entries: Entry) -> None: ...
    def work_soon(self) -> None: ...


class Connection(asyncio.Protocol):
    """A connection of a router, to a client or another router."""

    def __init__(self, router: Owner, *, outgoing: bool) -> None:
        self.router = router
        self.proton = proton.Connection()
        self._collector = Collector()
        self.proton.collect(self._collector)
        self._engine = proton.Transport() if outgoing else proton.Transport(proton.Transport.SERVER)
        self._outgoing = outgoing
        self._socket: asyncio.Transport | None = None
        self._flush: asyncio.Handle | None = None
        self._tick: asyncio.TimerHandle | None = None
        #: The name of the other router; None for a client.
        self.peer: str | None = None
        self.lanes: dict[Any, Lane] = {}
        self.entries: dict[Any, Entry] = {}
        #: To a neighbour: links by the destination and address that they are for.
        self.ways: dict[str, Lane] = {}
        self.news: Any = None
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        self._engine.sasl().allowed_mechs("ANONYMOUS")
        self._engine.bind(self.proton)
        if self._outgoing:
            self._open()
        self.work()

    def _open(self) -> None:
        self.proton.container = self.router.name
        self.proton.properties = {proton.symbol("product"): "test-router", proton.symbol("router"): self.router.name}
        self.proton.open()

    def data_received(self, data: bytes) -> None:
        while data and (capacity := self._engine.capacity()) > 0:
            self._engine.push(data[:capacity])
            data = data[capacity:]
            self._events()
        self.work()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        if self._tick is not None:
            self._tick.cancel()
        self.router.connection_lost(self)

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    def work_soon(self) -> None:
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_soon(self.work)

    def work(self) -> None:
        """Handle all events, and write all there is to write."""
        self._flush = None
        if self._socket is None or self._socket.is_closing():
            return
        if self._tick is not None:
            self._tick.cancel()
        now = time.monotonic()
        if deadline := self._engine.tick(now):
            self._tick = asyncio.get_running_loop().call_later(max(0.0, deadline - now), self.work)
        while True:
            self._events()
            number = self._engine.pending()
            if number <= 0:
                break
            self._socket.write(self._engine.peek(number))
            self._engine.pop(number)
        if number < 0 or self._engine.closed:
            self._socket.close()

    def _events(self) -> None:
        while (event := self._collector.peek()) is not None:
            if (handle := getattr(self, event.type.method, None)) is not None:
                handle(event)
            self._collector.pop()

    def on_connection_remote_open(self, event: Any) -> None:
        if not self._outgoing:
            self._open()
        properties = {str(name): value for name, value in (self.proton.remote_properties or {}).items()}
        if "router" in properties:
            self.peer = str(properties["router"])
            session = self.proton.session()
            session.open()
            self.news = session.sender(MESH)
            self.news.target.address = MESH
            self.news.open()
            self.router.neighbour_found(self)

    def on_connection_remote_close(self, event: Any) -> None:
        self.proton.close()

    def on_session_remote_open(self, event: Any) -> None:
        if event.session.state & Endpoint.LOCAL_UNINIT:
            event.session.open()

    def on_session_remote_close(self, event: Any) -> None:
        event.session.close()

    def on_link_remote_open(self, event: Any) -> None:
        link = event.link
        if not link.state & Endpoint.LOCAL_UNINIT:
            return
        if link.is_sender:
            address = self.router.reply_address() if link.remote_source.dynamic else link.remote_source.address
            link.source.address = address
            link.open()
            lane = self.lanes[link] = Lane(link)
            self.router.receiver_came(address, lane)
            return
        address = link.target.address = link.remote_target.address or ""
        link.open()
        if address == MESH:
            link.flow(1000)
            return
        router, at = destination(address)
        if address.startswith(TO):
            router, _, at = address.removeprefix(TO).partition("/")
        entry = self.entries[link] = Entry(link, at, router)
        self.router.grant(entry)

    def on_link_remote_close(self, event: Any) -> None:
        link = event.link
        self.forget(link)
        link.close()

    def forget(self, link: Any) -> None:
        """A link is gone."""
        self.entries.pop(link, None)
        way: Lane | None = self.lanes.pop(link, None)
        if way is not None:
            way.lost()
            self.router.receiver_went(way)

    def on_link_flow(self, event: Any) -> None:
        if event.link in self.lanes:
            self.lanes[event.link].pump()
            if event.link.drain_mode:
                event.link.drained()
                self.work_soon()

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if link.is_receiver:
            if delivery.readable and not delivery.partial:
                data = link.recv(delivery.pending) or b""
                link.advance()
                self._took(link, delivery, data)
        elif delivery.updated and link in self.lanes:
            self.lanes[link].settled(delivery)
            self.router.work_soon()

    def _took(self, link: Any, delivery: Any, data: bytes) -> None:
        if link in self.entries:
            self.router.forward(self.entries[link], delivery, data)
        else:
            message = proton.Message()
            message.decode(data)
            delivery.settle()
            link.flow(1)
            self.router.heard(json.loads(message.body), self)

    def way(self, destination: str, address: str) -> Lane:
        """Return the link to this neighbour for one destination and address."""
        name = f"{TO}{destination}/{address}"
        if name not in self.ways:
            session = self.proton.session()
            session.open()
            link = session.sender(name)
            link.target.address = name
            link.open()
            self.ways[name] = self.lanes[link] = Lane(link)
            self.work_soon()
        return self.ways[name]

    def say(self, state: RouterState) -> None:
        """Send what is known of a router."""
        body = {
            "router": state.router,
            "number": state.number,
            "neighbours": sorted(state.neighbours),
            "addresses": sorted(state.addresses),
        }
        delivery = self.news.delivery(self.news.delivery_tag())
        self.news.stream(proton.Message(body=json.dumps(body)).encode())
        self.news.advance()
        delivery.settle()
        self.work_soon()
