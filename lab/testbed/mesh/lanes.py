"""The two ends of a message's way through a router: the sender's link into it, and the router's links on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from proton import Delivery

#: What routers call `linkCapacity`: messages that a sender's link may have in a router, and most that a way on is
#: given in preference to another. It is theirs, and so the credit of a sender says nothing of that of a receiver.
CAPACITY = 250
#: Outcomes, by how much they count where several receivers have one message: skupper-router's and qpid-dispatch's rule.
_RANK = {Delivery.RELEASED: 0, Delivery.MODIFIED: 1, Delivery.ACCEPTED: 2, Delivery.REJECTED: 3}


class Route(Protocol):
    """Where a router sends messages."""

    @property
    def held(self) -> int: ...
    def take(self, message: UnsettledMessage) -> None: ...


class UnsettledMessage:
    """A message in a router, until all its receivers have settled it."""

    def __init__(self, data: bytes, incoming: Any = None, done: Callable[[], None] = lambda: None) -> None:
        """Without an `incoming` delivery it came settled, and nothing is said of it."""
        self.data = data
        self.incoming = incoming
        self._done = done
        self._copies = 0
        self._state: int | None = None

    def send(self, ways: Sequence[Route]) -> None:
        """Send it over all of these."""
        self._copies = len(ways)
        for way in ways:
            way.take(self)

    def settled(self, state: int, condition: Any = None) -> None:
        """A receiver has settled it, or has gone; or there was none."""
        self._copies -= 1
        if self._state is None or _RANK[state] > _RANK[self._state]:
            self._state = state
            if self.incoming is not None and state == Delivery.REJECTED:
                self.incoming.local.condition = condition
        if self._copies <= 0 and self.incoming is not None:
            if self._state == Delivery.MODIFIED:
                self.incoming.local.failed = True
            self.incoming.update(self._state)
            self.incoming.settle()
            self.incoming = None
            self._done()


class Lane:
    """A way on: the router's own sender link, to a receiver or to the next router."""

    def __init__(self, link: Any) -> None:
        self.link = link
        #: What the receiver has no credit for yet.
        self.waiting: deque[UnsettledMessage] = deque()
        #: By tag: what was sent, and is not settled.
        self.unsettled: dict[str, UnsettledMessage] = {}

    @property
    def held(self) -> int:
        """Messages that are on this way."""
        return len(self.waiting) + len(self.unsettled)

    def take(self, message: UnsettledMessage) -> None:
        """Send a message as soon as there is credit for it. If too many wait, what came settled is dropped."""
        if message.incoming is None and len(self.waiting) >= CAPACITY:
            self.waiting = deque(lane for lane in self.waiting if lane.incoming is not None)
        self.waiting.append(message)
        self.pump()

    def pump(self) -> None:
        while self.waiting and self.link.credit > 0:
            message = self.waiting.popleft()
            delivery = self.link.delivery(self.link.delivery_tag())
            tag = delivery.tag
            self.link.stream(message.data)
            self.link.advance()
            if message.incoming is None:
                delivery.settle()
            else:
                self.unsettled[tag] = message

    def settled(self, delivery: Any) -> None:
        message = self.unsettled.pop(delivery.tag, None)
        if message is not None:
            message.settled(delivery.remote_state or Delivery.MODIFIED, delivery.remote.condition)
        delivery.settle()

    def lost(self) -> None:
        """The link is gone. What was sent may have been begun; what was not goes back as it came."""
        sent, waiting = [*self.unsettled.values()], [*self.waiting]
        self.unsettled.clear()
        self.waiting.clear()
        for message in sent:
            message.settled(Delivery.MODIFIED)
        for message in waiting:
            message.settled(Delivery.RELEASED)


class Entry:
    """A sender's link into the router."""

    def __init__(self, link: Any, address: str, destination: str | None) -> None:
        self.link = link
        self.address = address
        #: The router that the message is for; None where this router chooses.
        self.destination = destination
        #: Messages that came and are not settled.
        self.held = 0

    def grant(self, *, reachable: bool) -> None:
        """Give the credit that is due: all of it where there is a receiver, none where there is not."""
        if reachable:
            if (room := CAPACITY - self.held - self.link.credit) > 0:
                self.link.flow(room)
        elif self.link.credit > 0 and not self.link.draining():
            self.link.drain(0)
