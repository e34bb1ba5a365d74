"""Subscriptions: receiver links with their credit, and the messages that come over them.

Use everything here only in the loop of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import proton
from proton import Delivery

from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine.links import BusLink, LinkOwner
from osrdyne_bus.errors import MessagingError
from osrdyne_bus.messages.envelopes import Envelope, words


class IncomingMessage:
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

    def give_back(self) -> None:
        """Release it where that is right for a receiver that goes. Elsewhere it goes back with its link."""
        if self.subscription.drains:
            self.release()

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
Received = Callable[[IncomingMessage], None]


class Subscription(BusLink):
    """A receiver, with its credit."""

    def __init__(
        self,
        owner: LinkOwner,
        link: Any,
        window: CreditWindow,
        received: Received,
        *,
        any_body: bool = False,
        drains: bool = False,
    ) -> None:
        """`any_body`: a body that is neither bytes nor text is the `value`; otherwise it is rejected."""
        super().__init__(owner, link)
        self.any_body = any_body
        self.drains = drains
        #: What was read of the message that comes, and how many bytes that is. With more than 4 MiB unread, proton 0.41
        #: ends the connection.
        self._parts: list[bytes] = []
        self._size = 0
        #: Set when the peer has sent all that it will; None while it may send.
        self._drained: asyncio.Event | None = None
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

    def read(self, size: int) -> int:
        """Take so many bytes of the present message out of the engine, and return how many it has so far."""
        if size and (data := self._link.recv(size)):
            self._parts.append(data)
            self._size += len(data)
        return self._size

    def whole(self) -> bytes:
        """Return the present message, of which all has been read, and go on to the next one."""
        data = b"".join(self._parts)
        self.left_out()
        self._link.advance()
        self.flowed()  # it may have been the last one of the credit
        return data

    def left_out(self) -> None:
        """Forget what was read of the present message."""
        self._parts.clear()
        self._size = 0

    async def drain(self, within: float) -> None:
        """Take the credit back, and return when nothing more comes: after `within` seconds at most.

        What comes meanwhile is received as before.
        """
        if not self.is_open:
            return
        if self._drained is None:
            self._drained = asyncio.Event()
            self._link.drain(0)
            self.flowed()
            self._owner.flush_soon()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._drained.wait()

    def flowed(self) -> None:
        if self._drained is not None and not self._link.draining():
            self._drained.set()

    def end(self, why: MessagingError) -> None:
        super().end(why)
        if self._drained is not None:
            self._drained.set()

    def settled(self) -> None:
        """A message was settled: grant credit where that is due."""
        if (room := self.window.acknowledged()) and self._drained is None:
            self._link.flow(room)
        self._owner.flush_soon()
