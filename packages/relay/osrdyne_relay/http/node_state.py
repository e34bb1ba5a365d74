"""What the clients of a node have open, the requests in hand, and the endpoints that are polled. Pure.

Times are arguments, in seconds of one monotonic clock.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from osrdyne_relay.errors import RelayError, TooMany, UnknownRequest
from osrdyne_relay.serving import Collected

Clock = Callable[[], float]
#: Ended requests whose reason is remembered.
MOST_ENDED = 1024


@dataclass(slots=True, eq=False)
class HeldRequest:
    """A request that a worker of this node has, or is about to get."""

    collected: Collected
    client: str
    #: When its worker was last there.
    last_seen: float
    #: Connections of its worker that are about it now.
    connections: int = 0
    #: Whether its answer is being written.
    settling: bool = False
    #: Called when it has been answered, failed or put back.
    settled: Callable[[], None] | None = None


@dataclass(slots=True)
class _PolledEndpoint:
    client: str
    polls: int = 0
    last: float = 0.0


@dataclass(slots=True)
class NodeState:
    """What is open, polled and in hand on one node. Clients are given by their names."""

    in_hand: dict[str, HeldRequest] = field(default_factory=dict)
    _open: Counter[str] = field(default_factory=Counter)
    _streams: Counter[str] = field(default_factory=Counter)
    _endpoints: dict[str, _PolledEndpoint] = field(default_factory=dict)
    _endpoints_of: Counter[str] = field(default_factory=Counter)
    _ended: OrderedDict[str, tuple[str, RelayError]] = field(default_factory=OrderedDict)

    # --- what is open ---------------------------------------------------------------------------------------------

    def open(self, client: str, most: int) -> None:
        """Note one more poll, call or request. Raises TooMany."""
        if self._open[client] >= most:
            raise TooMany
        self._open[client] += 1

    def close(self, client: str) -> None:
        """Note one less."""
        self._open[client] -= 1
        if self._open[client] <= 0:
            del self._open[client]

    def opened(self) -> int:
        """Return how much is open."""
        return self._open.total()

    @contextmanager
    def streaming(self, client: str, most: int) -> Iterator[None]:
        """Note a data stream that is sent or read within the block. Raises TooMany."""
        if self._streams[client] >= most:
            raise TooMany("this client sends and reads as many data streams as it may: end some, or raise `most`")
        self._streams[client] += 1
        try:
            yield
        finally:
            self._streams[client] -= 1
            if self._streams[client] <= 0:
                del self._streams[client]

    def streams(self) -> int:
        """Return how many data streams are sent or read."""
        return self._streams.total()

    # --- endpoints ------------------------------------------------------------------------------------------------

    @contextmanager
    def polled(self, client: str, endpoint: str, most: int, clock: Clock) -> Iterator[None]:
        """Note a poll of an endpoint within the block. Raises TooMany where it is one endpoint too many."""
        polled = self._endpoints.get(endpoint)
        if polled is None:
            if self._endpoints_of[client] >= most:
                raise TooMany("this client polls as many endpoints as it may: end some polls, or raise `most`")
            polled = self._endpoints[endpoint] = _PolledEndpoint(client)
            self._endpoints_of[client] += 1
        polled.polls += 1
        try:
            yield
        finally:
            polled.polls -= 1
            polled.last = clock()

    def unpolled(self, since: float) -> list[str]:
        """Remove the endpoints that had their last poll before; return them."""
        found = [name for name, polled in self._endpoints.items() if not polled.polls and polled.last < since]
        for name in found:
            client = self._endpoints.pop(name).client
            self._endpoints_of[client] -= 1
            if self._endpoints_of[client] <= 0:
                del self._endpoints_of[client]
        return found

    def endpoints(self) -> tuple[int, int]:
        """Return the number of endpoints, and of polls."""
        return len(self._endpoints), sum(polled.polls for polled in self._endpoints.values())

    # --- requests in hand -----------------------------------------------------------------------------------------

    def take(self, collected: Collected, client: str, now: float) -> HeldRequest:
        """Note a request for a client."""
        held = self.in_hand[collected.id] = HeldRequest(collected, client, now)
        return held

    def find(self, client: str, request: str) -> HeldRequest:
        """Return a request that this client has.

        Raises why it has ended where that is known. Raises UnknownRequest for those of others as for those that never
        were.
        """
        held = self.in_hand.get(request)
        if held is not None and held.client == client and not held.settling:
            return held
        whose, why = self._ended.get(request, (None, None))
        if why is not None and whose == client:
            raise why.with_traceback(None)
        raise UnknownRequest

    def end(self, held: HeldRequest, why: RelayError | None = None) -> bool:
        """Note that a request has ended, and why it was not answered. Returns whether it was still in hand."""
        if self.in_hand.get(held.collected.id) is not held:
            return False
        del self.in_hand[held.collected.id]
        self.close(held.client)
        if why is not None:
            self._ended[held.collected.id] = held.client, why
            while len(self._ended) > MOST_ENDED:
                self._ended.popitem(last=False)
        return True

    def silent(self, since: float) -> list[HeldRequest]:
        """Return the requests whose workers were last there before."""
        return [
            held
            for held in self.in_hand.values()
            if not held.connections
            and not held.settling
            and held.last_seen < since
            and held.collected.abandoned is None
        ]

    def abandoned(self) -> list[HeldRequest]:
        """Return the requests that are no longer wanted."""
        return [held for held in self.in_hand.values() if held.collected.abandoned is not None and not held.settling]
