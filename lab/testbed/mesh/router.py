"""One router: clients and other routers connect to it by AMQP 1.0.

A message that a client may send is a credit of one receiver, passed on: the router grants it only where it has a free
credit for the way there, its own link to a receiver or to the next router. So nothing waits in a router. What the
receiver says of a message is said to its sender. A message to all receivers is accepted by the router that it came to.

Routers tell each other what they know as messages on links to `$mesh`. A link between routers is for one destination
and one address, `$to/{router}/{address}`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from proton import Delivery

from testbed.mesh.connection import Connection
from testbed.mesh.lanes import Entry, Lane
from testbed.mesh.routing import MULTICAST, RouterState, destinations, paths, semantics

#: How addresses of a mesh are delivered, by prefix.
PREFIXES = {"osrdyne/bus/rpc/multicast": MULTICAST}
REPLIES = "$replies/"
#: Seconds between two tries to connect to a neighbour.
_PAUSE = 0.05


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
        #: By destination and address, as long as nothing changes.
        self._ways: dict[tuple[str | None, str], list[Lane]] = {}
        #: Messages that passed, by address.
        self.passed: Counter[str] = Counter()
        #: Messages that were here at once, at most.
        self.most_held = 0

    async def start(self, port: int = 0) -> None:
        loop = asyncio.get_running_loop()

        def made() -> Connection:
            connection = Connection(self, outgoing=False)
            self._connections.add(connection)
            return connection

        self._server = await loop.create_server(made, "127.0.0.1", port)

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
                await asyncio.sleep(_PAUSE)

        self._connecting.append(asyncio.create_task(keep()))

    def kill(self) -> None:
        """End at once, with all connections."""
        for task in self._connecting:
            task.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()

    @property
    def held(self) -> int:
        """Messages that came and are not settled."""
        return sum(len(lane.unsettled) for one in self._connections for lane in one.lanes.values())

    def reaches_all(self) -> bool:
        """Whether it knows a way to every router that it knows of."""
        return len(paths(self.states, self.name)) == len(self.states) - 1

    # --- what is known of the mesh ------------------------------------------------------------------------------------

    def reply_address(self) -> str:
        return f"{REPLIES}{self.name}/{next(self._numbers)}"

    def _own_state(self) -> None:
        """Say to all routers what is new here."""
        self._ways.clear()
        neighbours = frozenset(one.peer for one in self._connections if one.peer is not None)
        # An address for replies names its router.
        addresses = frozenset(one for one in self._receivers if not one.startswith(REPLIES))
        number = self.states[self.name].number + 1
        state = self.states[self.name] = RouterState(self.name, number, neighbours, addresses)
        for connection in self._neighbours().values():
            connection.say(state)
        self.grant()

    def _neighbours(self) -> dict[str, Connection]:
        return {one.peer: one for one in self._connections if one.peer is not None}

    def neighbour_found(self, connection: Connection) -> None:
        for state in self.states.values():
            if state.router != self.name:
                connection.say(state)
        self._own_state()

    def heard(self, said: Mapping[str, Any], connection: Connection) -> None:
        state = RouterState(said["router"], said["number"], frozenset(said["neighbours"]), frozenset(said["addresses"]))
        known = self.states.get(state.router)
        if state.router == self.name or (known is not None and known.number >= state.number):
            return
        self.states[state.router] = state
        self._ways.clear()
        for one in self._neighbours().values():
            if one is not connection:
                one.say(state)
        self.grant()

    def connection_lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        for link in [*connection.entries, *connection.lanes]:
            connection.forget(link)
        self._own_state()
        self.work_soon()

    def receiver_came(self, address: str, lane: Lane) -> None:
        self._receivers.setdefault(address, []).append(lane)
        self._own_state()

    def receiver_went(self, lane: Lane) -> None:
        for address, lanes in list(self._receivers.items()):
            if lane in lanes:
                lanes.remove(lane)
                if not lanes:
                    del self._receivers[address]
                self._own_state()

    def work_soon(self) -> None:
        for connection in self._connections:
            connection.work_soon()

    # --- messages -----------------------------------------------------------------------------------------------------

    def _lanes(self, entry: Entry) -> list[Lane]:
        """Return the ways of an entry, the nearest first."""
        key = (entry.destination, entry.address)
        if key not in self._ways:
            self._ways[key] = self._ways_of(entry)
        return self._ways[key]

    def _ways_of(self, entry: Entry) -> list[Lane]:
        address, reach = entry.address, paths(self.states, self.name)
        own = self._receivers.get(address, [])
        if entry.destination is not None:
            routers = [entry.destination]
        elif address.startswith(REPLIES):
            routers = [address.removeprefix(REPLIES).partition("/")[0]]
        else:
            routers = [self.name, *destinations(address, self.states, {name: at for name, (at, _) in reach.items()})]
        neighbours = self._neighbours()
        found: list[Lane] = []
        for router in routers:
            if router == self.name:
                found += own
            elif router in reach and reach[router][1] in neighbours:
                found.append(neighbours[reach[router][1]].way(router, address))
        return found

    def grant(self) -> None:
        """Pass on free credit to senders, one each in turn."""
        entries = [entry for one in self._connections for entry in one.entries.values()]
        more = True
        while more:
            more = False
            for entry in entries:
                if len(entry.backing) < entry.most and (lanes := self._choice(entry, self._lanes(entry))):
                    for lane in lanes:
                        lane.reserved += 1
                    entry.backing.append(lanes)
                    entry.link.flow(1)
                    more = True
        self.work_soon()

    def _choice(self, entry: Entry, lanes: list[Lane]) -> list[Lane]:
        """Return the lanes that one more message would take; none where credit is missing."""
        if semantics(entry.address, self._prefixes) == MULTICAST:
            return lanes if lanes and all(lane.free > 0 for lane in lanes) else []
        return next(([lane] for lane in lanes if lane.free > 0), [])

    def forward(self, entry: Entry, incoming: Any, data: bytes) -> None:
        self.passed[entry.address] += 1
        lanes = entry.backing.popleft() if entry.backing else []
        for lane in lanes:
            lane.reserved -= 1
        # A receiver may have gone since its credit was passed on.
        there = list(filter(self._has, lanes)) or self._choice(entry, self._lanes(entry))
        if semantics(entry.address, self._prefixes) == MULTICAST:
            for lane in there:
                lane.send(data, None)
            incoming.update(Delivery.ACCEPTED if there else Delivery.RELEASED)
            incoming.settle()
        elif there:
            there[0].send(data, incoming)
        else:
            incoming.update(Delivery.RELEASED)
            incoming.settle()
        self.most_held = max(self.most_held, self.held)
        self.grant()

    def _has(self, lane: Lane) -> bool:
        return any(lane in one.lanes.values() for one in self._connections)


async def mesh(names: str, links: str, made: Callable[[str], Router] = Router) -> dict[str, Router]:
    """Start routers with names of one letter, and connect them: `mesh("ABC", "AB BC")`. Returns at once."""
    routers = {name: made(name) for name in names}
    for router in routers.values():
        await router.start()
    for pair in links.split():
        routers[pair[0]].connect(routers[pair[1]])
    return routers
