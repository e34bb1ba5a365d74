"""The two ends of a message's way through a router: the sender's link into it, and the router's link on."""

from __future__ import annotations

from collections import deque
from typing import Any

from proton import Delivery

#: Credit of a client's sender and of a neighbour's at most. What one does not use, others cannot have: so three routers
#: with three senders each are served from the 100 credits of one receiver, and not many more.
MOST_CREDIT, MOST_CREDIT_OF_ROUTER = 8, 24


class Lane:
    """A way on: the router's own sender link, to a receiver or to the next router."""

    def __init__(self, link: Any) -> None:
        self.link = link
        #: Credits that are promised to senders.
        self.reserved = 0
        #: By tag: the deliveries that wait for what their receivers say.
        self.unsettled: dict[str, Any] = {}

    @property
    def free(self) -> int:
        return int(self.link.credit) - self.reserved

    def send(self, data: bytes, incoming: Any) -> None:
        """Send a message. Without an `incoming` delivery it is settled at once."""
        delivery = self.link.delivery(self.link.delivery_tag())
        tag = delivery.tag
        self.link.stream(data)
        self.link.advance()
        if incoming is None:
            delivery.settle()
        else:
            self.unsettled[tag] = incoming

    def settled(self, delivery: Any) -> None:
        incoming = self.unsettled.pop(delivery.tag, None)
        if incoming is not None:
            state = delivery.remote_state
            if state == Delivery.REJECTED:
                incoming.local.condition = delivery.remote.condition
            incoming.update(state or Delivery.MODIFIED)
            incoming.settle()
        delivery.settle()

    def lost(self) -> None:
        """The link is gone: what was on it may have been delivered."""
        for incoming in self.unsettled.values():
            incoming.local.failed = True
            incoming.update(Delivery.MODIFIED)
            incoming.settle()
        self.unsettled.clear()


class Entry:
    """A sender's link into the router, with the ways that its credit stands for."""

    def __init__(self, link: Any, address: str, destination: str | None) -> None:
        self.link = link
        self.address = address
        #: The router that the message is for; None where this router chooses.
        self.destination = destination
        self.most = MOST_CREDIT if destination is None else MOST_CREDIT_OF_ROUTER
        #: One item for each credit that was granted: the lane, or all lanes of a message to all receivers.
        self.backing: deque[list[Lane]] = deque()
