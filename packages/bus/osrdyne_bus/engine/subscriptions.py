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
from osrdyne_bus.engine.messages import UnreadableMessage, decoded
from osrdyne_bus.errors import LinkRefused, MessagingError
from osrdyne_bus.messages.envelopes import Envelope, words
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)

#: Most bytes of a message that a subscription takes.
LARGEST_MESSAGE = 128 * 2**20


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
        self._any_body = any_body
        self.drains = drains
        #: What was read of the message that comes, and how many bytes that is. With more than 4 MiB unread, proton 0.41
        #: ends the connection.
        self._parts: list[bytes] = []
        self._size = 0
        #: Set when the peer has sent all that it will; None while it may send.
        self._drained: asyncio.Event | None = None
        self.window = window
        self._received = received

    @property
    def address(self) -> str:
        """Where messages are sent to reach this subscription; the peer chose it if it was asked for a dynamic one."""
        return str(self._link.remote_source.address or self._link.source.address or "")

    def opened(self) -> None:
        super().opened()
        if self.ended is None:
            self._link.flow(self.window.opened())

    def delivered(self, delivery: Any) -> None:
        """A part of a message came, or the last one."""
        if not delivery.aborted and self.read(delivery.pending) > LARGEST_MESSAGE:
            self._break_off("amqp:link:message-size-exceeded", "it sent more than a message may have")
        elif delivery.aborted or not delivery.partial:
            self._arrived(delivery)

    def _arrived(self, delivery: Any) -> None:
        if self.window.credit == 0:
            self._break_off("amqp:link:transfer-limit-exceeded", "it sent more than it had credit for")
            return
        if self.window.arrived():
            log.debug("a peer has used up its credit", extra={"peer": self._owner.peer, "address": self.address})
        if delivery.aborted:
            self._forget()
            delivery.settle()  # which makes the next one the current one
            self.settled()
            return
        try:
            envelope = decoded(self._whole(), any_body=self._any_body)
        except UnreadableMessage as error:
            fields = {"address": self.address, "reason": str(error)}
            log.warning("an unreadable message is rejected", extra=fields)
            IncomingMessage(Envelope(), delivery, self).reject("amqp:decode-error", str(error))
        else:
            self._received(IncomingMessage(envelope, delivery, self))

    def _break_off(self, condition: str, said: str) -> None:
        self.end(LinkRefused(f"the link to {self.address!r} was ended: {said}"))
        self._owner.gone(self)
        self.refuse(condition, said)

    def read(self, size: int) -> int:
        """Take so many bytes of the present message out of the engine, and return how many it has so far."""
        if size and (data := self._link.recv(size)):
            self._parts.append(data)
            self._size += len(data)
        return self._size

    def _whole(self) -> bytes:
        """Return the present message, of which all has been read, and go on to the next one."""
        data = b"".join(self._parts)
        self._forget()
        self._link.advance()
        self.flowed()  # it may have been the last one of the credit
        return data

    def _forget(self) -> None:
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
