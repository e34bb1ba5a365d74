"""One router: clients and other routers connect to it by AMQP 1.0.

It behaves as skupper-router and qpid-dispatch do, also where that is unkind. A sender has `lanes.CAPACITY` credits as
long as its address has a receiver anywhere, whatever that one's own credit is: up to as many of its messages wait in
the router. The receiver's outcome of a message is passed on to its sender. A message to all receivers is settled when
each of them has settled it. Other routers know a receiver `KNOWN_AFTER_SECONDS` after it has come or gone.

Routers send each other what they know as messages on links to `$mesh`. A link between routers is for one destination
and one address, `$to/{router}/{address}`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

from proton import Delivery

from testbed.mesh import management
from testbed.mesh.connection import Connection
from testbed.mesh.lanes import Entry, Lane, Route, UnsettledMessage
from testbed.mesh.management import Management
from testbed.mesh.routing import MULTICAST, RouterState, chosen, destinations, paths, semantics

#: How addresses of a mesh are delivered, by prefix.
PREFIXES = {"osrdyne/bus/rpc/multicast": MULTICAST}
#: How addresses for replies begin; the name of their router follows.
REPLIES = "$replies/"
#: Seconds between two tries to connect to a neighbour.
_PAUSE_SECONDS = 0.05
#: Seconds until other routers hear of a receiver. skupper-router and qpid-dispatch take 0.7 to 0.9.
KNOWN_AFTER_SECONDS = 0.5


class Router:
    """A router of a mesh. `await start()`, then `connect` it to others."""

    def __init__(self, name: str, *, prefixes: Mapping[str, str] = PREFIXES) -> None:
        self.name = name
        self._prefixes = prefixes
        self.states: dict[str, RouterState] = {name: RouterState(name, 0, frozenset(), frozenset())}
        self._connections: set[Connection] = set()
        #: Receivers of this router's own clients, by address.
        self._receivers: dict[str, list[Lane]] = {}
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._connecting: list[asyncio.Task[None]] = []
        #: The distance and the route of each way, by destination and address. Emptied when the mesh changes.
        self._ways: dict[tuple[str | None, str], list[tuple[int, Route]]] = {}
        self._management = Management(self)
        #: Addresses of own receivers that the other routers know of, or will in a moment.
        self._announced: frozenset[str] = frozenset()
        self._announcing: asyncio.TimerHandle | None = None
        #: Messages that passed, by address.
        self.passed: Counter[str] = Counter()
        #: Messages that were here at once, at most.
        self.most_held = 0

    async def start(self, port: int = 0) -> None:
        loop = asyncio.get_running_loop()

        def accepted() -> Connection:
            connection = Connection(self, outgoing=False)
            self._connections.add(connection)
            return connection

        self._server = await loop.create_server(accepted, "127.0.0.1", port)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def connect(self, other: Router) -> None:
        """Keep a connection to another router."""
        port = other.port

        async def keep() -> None:
            loop = asyncio.get_running_loop()
            while True:
                try:
                    _, connection = await loop.create_connection(
                        lambda: Connection(self, outgoing=True), "127.0.0.1", port
                    )
                    self._connections.add(connection)
                    await connection.gone.wait()
                except OSError:
                    pass
                await asyncio.sleep(_PAUSE_SECONDS)

        self._connecting.append(asyncio.create_task(keep()))

    def kill(self) -> None:
        """End at once, with all connections."""
        for task in self._connecting:
            task.cancel()
        if self._announcing is not None:
            self._announcing.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()

    @property
    def held(self) -> int:
        """Messages that came and are not settled."""
        return sum(lane.held for connection in self._connections for lane in connection.lanes.values())

    def reaches_all(self) -> bool:
        """Whether it knows a way to every router that it knows of."""
        return len(paths(self.states, self.name)) == len(self.states) - 1

    # --- the state of the mesh ----------------------------------------------------------------------------------------

    def reply_address(self) -> str:
        return f"{REPLIES}{self.name}/{next(self._numbers)}"

    def _publish_state(self) -> None:
        """Send this router's new state to its neighbours, which pass it on."""
        self._ways.clear()
        neighbours = frozenset(connection.peer for connection in self._connections if connection.peer is not None)
        number = self.states[self.name].number + 1
        state = self.states[self.name] = RouterState(self.name, number, neighbours, self._announced)
        for connection in self._neighbours().values():
            connection.say(state)
        self.grant()

    def _announce(self) -> None:
        self._announcing = None
        # An address for replies names its router.
        self._announced = frozenset(address for address in self._receivers if not address.startswith(REPLIES))
        self._publish_state()

    def _receivers_changed(self) -> None:
        self._ways.clear()
        self.grant()
        if self._announcing is None and self._server is not None and self._server.is_serving():
            self._announcing = asyncio.get_running_loop().call_later(KNOWN_AFTER_SECONDS, self._announce)

    def _neighbours(self) -> dict[str, Connection]:
        return {connection.peer: connection for connection in self._connections if connection.peer is not None}

    def neighbour_found(self, connection: Connection) -> None:
        for state in self.states.values():
            if state.router != self.name:
                connection.say(state)
        self._publish_state()

    def heard(self, news: Mapping[str, Any], connection: Connection) -> None:
        state = RouterState(news["router"], news["number"], frozenset(news["neighbours"]), frozenset(news["addresses"]))
        known = self.states.get(state.router)
        if state.router == self.name or (known is not None and known.number >= state.number):
            return
        self.states[state.router] = state
        self._ways.clear()
        for neighbour in self._neighbours().values():
            if neighbour is not connection:
                neighbour.say(state)
        self.grant()

    def connection_lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        for link in [*connection.entries, *connection.lanes]:
            connection.forget(link)
        self._publish_state()
        self.work_soon()

    def receiver_came(self, address: str, lane: Lane) -> None:
        self._receivers.setdefault(address, []).append(lane)
        self._receivers_changed()

    def receiver_went(self, lane: Lane) -> None:
        for address, lanes in list(self._receivers.items()):
            if lane in lanes:
                lanes.remove(lane)
                if not lanes:
                    del self._receivers[address]
                self._receivers_changed()

    def work_soon(self) -> None:
        for connection in self._connections:
            connection.work_soon()

    # --- messages -----------------------------------------------------------------------------------------------------

    def _ways_to(self, address: str, destination: str | None) -> list[tuple[int, Route]]:
        """Return the ways to an address, the nearest first, with their distances."""
        key = (destination, address)
        if key not in self._ways:
            self._ways[key] = self._found_ways(address, destination)
        return self._ways[key]

    def _found_ways(self, address: str, destination: str | None) -> list[tuple[int, Route]]:
        reach = paths(self.states, self.name)
        own: list[Route] = [*self._receivers.get(address, [])]
        if address == management.ADDRESS:
            own, destination = [self._management], destination or self.name
        if destination is not None:
            routers = [destination]
        elif address.startswith(REPLIES):
            routers = [address.removeprefix(REPLIES).partition("/")[0]]
        else:
            distances = {name: distance for name, (distance, _) in reach.items()}
            routers = [self.name, *destinations(address, self.states, distances)]
        neighbours = self._neighbours()
        found: list[tuple[int, Route]] = []
        for router in routers:
            if router == self.name:
                found += [(0, way) for way in own]
            elif router in reach and reach[router][1] in neighbours:
                distance, neighbour = reach[router]
                found.append((distance, neighbours[neighbour].way(router, address)))
        return found

    def grant(self, *entries: Entry) -> None:
        """Give senders the credit that is due, all of them where none is named."""
        for entry in entries or [entry for connection in self._connections for entry in connection.entries.values()]:
            # Another router has credit always: what comes too late goes back.
            ways = entry.destination is not None or self._ways_to(entry.address, None)
            entry.grant(reachable=bool(ways))
        self.work_soon()

    def forward(self, entry: Entry, incoming: Any, data: bytes) -> None:
        self.passed[entry.address] += 1
        if incoming.settled:
            incoming.settle()
            self._forward(entry.address, entry.destination, UnsettledMessage(data))
        else:
            entry.held += 1

            def done() -> None:
                entry.held -= 1
                self.grant(entry)

            self._forward(entry.address, entry.destination, UnsettledMessage(data, incoming, done))
        self.most_held = max(self.most_held, self.held)
        self.grant(entry)

    def _forward(self, address: str, destination: str | None, message: UnsettledMessage) -> None:
        ways = self._ways_to(address, destination)
        if not ways:
            message.settled(Delivery.RELEASED)
        elif semantics(address, self._prefixes) == MULTICAST:
            message.send([way for _, way in ways])
        else:
            _, way = ways[chosen((distance, way.held) for distance, way in ways)]
            message.send([way])

    # --- for its management -------------------------------------------------------------------------------------------

    def send(self, address: str, data: bytes) -> None:
        """Send a message of the router itself."""
        self._forward(address, None, UnsettledMessage(data))
        self.work_soon()

    def subscribers(self, address: str) -> int:
        return len(self._receivers.get(address, []))

    def distribution(self, address: str) -> str | None:
        """Return how an address is delivered; None for one that no link and no other router has."""
        links = any(
            entry.address == address for connection in self._connections for entry in connection.entries.values()
        )
        known = links or address in self._receivers or any(address in state.addresses for state in self.states.values())
        return semantics(address, self._prefixes) if known else None


async def mesh(names: str, links: str, *, prefixes: Mapping[str, str] = PREFIXES) -> dict[str, Router]:
    """Start routers with names of one letter, and begin to connect them: `mesh("ABC", "AB BC")`."""
    routers = {name: Router(name, prefixes=prefixes) for name in names}
    for router in routers.values():
        await router.start()
    for pair in links.split():
        routers[pair[0]].connect(routers[pair[1]])
    return routers
