"""Subscriptions: receiver links with their credit, and the messages that come over them.

Use everything here only in the loop of the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import proton
from proton import Delivery

from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine.links import End, Owner
from osrdyne_bus.messages.envelopes import Envelope, words


class Incoming:
    """A message that came over a subscription. Settle it by one of its methods; the first one counts."""

    __slots__ = ("_delivery", "_settled", "envelope", "subscription")

    def __init__(self, envelope: Envelope, delivery: Delivery, subscription: Subscription) -> None:
        self.envelope = envelope
        self._delivery = delivery
        self.subscription = subscription
        self._settled = False

    @property
    def is_here(self) -> bool:
        """Whether it can still be settled. Otherwise it went with its link, and comes again where the peer keeps it."""
        return self.subscription.is_open

    def accept(self) -> None:
        """Acknowledge it."""
        self._settle(Delivery.ACCEPTED)

    def release(self) -> None:
        """Give it back as if it had never come: another receiver may get it. One that came settled is lost."""
        self._settle(Delivery.RELEASED)

    def reject(self, condition: str, description: str) -> None:
        """Refuse it for good; the sender sees both texts."""
        if self.is_here and not self._settled:
            self._delivery.local.condition = proton.Condition(condition, words(description))
        self._settle(Delivery.REJECTED)

    def _settle(self, state: int) -> None:
        if self._settled or not self.is_here:
            return
        self._settled = True
        self._delivery.update(state)
        self._delivery.settle()
        self.subscription.settled()


#: Called in the loop with each message of a subscription, also before `subscribe` has returned. It must not raise.
Received = Callable[[Incoming], None]


class Subscription(End):
    """A receiver, with its credit."""

    def __init__(
        self, owner: Owner, link: Any, window: CreditWindow, received: Received, *, any_body: bool = False
    ) -> None:
        """`any_body`: a body that is neither bytes nor text is the `value`; otherwise it is rejected."""
        super().__init__(owner, link)
        self.any_body = any_body
        self.window = window
        self.received = received

    @property
    def address(self) -> str:
        """Where messages are sent to reach this subscription; the peer chose it if it was asked for a dynamic one."""
        return str(self._link.remote_source.address or self._link.source.address or "")

    def opened(self) -> None:
        super().opened()
        if self.ended is None:
            self._link.flow(self.window.opened())

    def read(self, size: int) -> bytes:
        """Return the present message, of this size, and go on to the next one."""
        data: bytes | None = self._link.recv(size)
        self._link.advance()
        return data or b""

    def settled(self) -> None:
        """A message was settled: grant credit where that is due."""
        if room := self.window.acknowledged():
            self._link.flow(room)
        self._owner.flush_soon()
