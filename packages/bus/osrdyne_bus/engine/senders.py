"""Sender links: messages leave when there is credit for them, and each has an outcome.

Use everything here only in the loop of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

from proton import Delivery

from osrdyne_bus.engine.links import BusLink, LinkOwner, said_by
from osrdyne_bus.engine.messages import Value, encoded
from osrdyne_bus.errors import (
    DeliveryFailure,
    DeliveryRejected,
    LinkRefused,
    MessageTooLarge,
    MessagingError,
    OutcomeUnknown,
    SendTimedOut,
    UnsendableMessage,
    Unsent,
)
from osrdyne_bus.messages.envelopes import Envelope
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)


#: Bytes of a message that the engine is given at once. With each window of the peer's, proton moves all that it has: it
#: would cost the square of a large message's size where the peer is slow.
PIECE = 256 * 1024


def expire(waiting: asyncio.Future[Any]) -> None:
    """End a wait with TimeoutError. A timer that calls this costs half of `asyncio.timeout`."""
    if not waiting.done():
        waiting.set_exception(TimeoutError())


@dataclass(slots=True, eq=False)
class _OutgoingMessage:
    """A message that waits for credit, or for its outcome."""

    encoded: bytes
    outcome: asyncio.Future[None]
    #: Until when it may leave, in seconds of the loop's clock.
    until: float
    #: Names its delivery once it has left.
    tag: str | None = None


class SendLink(BusLink):
    """A sender to one address. Messages leave in the order of `send`, each as soon as there is credit for it."""

    def __init__(self, owner: LinkOwner, link: Any, *, settled: bool = False) -> None:
        """`settled`: a message counts as taken as soon as it leaves."""
        super().__init__(owner, link)
        self._settled = settled
        self._waiting: deque[_OutgoingMessage] = deque()
        # By tag, and not in proton's objects: what these refer to lives as long as they do, and no collector sees it.
        self._unsettled: dict[str, _OutgoingMessage] = {}
        #: The message that the engine has a part of, its delivery, and how many of its bytes the engine was given.
        self._begun: tuple[_OutgoingMessage, Delivery] | None = None
        self._handed = 0
        #: Since when messages wait for credit, in seconds of the loop's clock; None while none does.
        self._without_credit: float | None = None
        #: When something was last sent, in seconds of the loop's clock.
        self.last_used = owner.loop.time()

    @property
    def address(self) -> str:
        return str(self._link.target.address or "")

    @property
    def credit(self) -> int:
        """Messages that the peer takes now."""
        return int(self._link.credit)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is unsettled."""
        return not self._waiting and not self._unsettled and self._begun is None

    async def send(self, envelope: Envelope, timeout: float, *, value: Value | EllipsisType = ...) -> None:
        """Send a message and wait for its outcome, `timeout` seconds at most. A `value` takes the place of its body.

        Raises SendTimedOut, DeliveryFailure (the peer released or modified it), DeliveryRejected, OutcomeUnknown,
        MessageTooLarge, UnsendableMessage, Unsent where link or connection ended before the message left, and PeerLost
        where they ended after that.
        """
        if self.ended is not None:
            raise Unsent(str(self.ended)) from self.ended
        try:
            message = encoded(envelope, value)
        except Exception as error:  # proton raises what it meets: OverflowError, UnicodeEncodeError, ...
            raise UnsendableMessage(f"the message to {self.address!r} cannot be sent: {error!r}") from error
        outgoing = _OutgoingMessage(message, self._owner.loop.create_future(), self._owner.loop.time() + timeout)
        most = int(self._link.remote_max_message_size or 0)
        if most and len(outgoing.encoded) > most:
            raise MessageTooLarge(self.address, len(outgoing.encoded), most)
        timer = self._owner.loop.call_at(outgoing.until, expire, outgoing.outcome)
        try:
            self._waiting.append(outgoing)
            self.pump()
            if outgoing.tag is None and self._without_credit is None:
                self._without_credit = self._owner.loop.time()
                log.debug("messages wait for credit", extra={"peer": self._owner.peer, "address": self.address})
            await outgoing.outcome
        except TimeoutError:
            raise SendTimedOut(self.address, timeout, sent=outgoing.tag is not None) from None
        finally:
            timer.cancel()
            self._forget(outgoing)

    def pump(self) -> None:
        """Send what waits, as far as there is credit."""
        while self._begun is not None or (self._waiting and self._link.credit > 0):
            if self._begun is None and not self._begin(self._waiting.popleft()):
                continue
            if not self._go_on():
                break
        self._owner.flush_soon()

    def _begin(self, outgoing: _OutgoingMessage) -> bool:
        """Begin a message, and return whether it is still wanted."""
        if self._owner.loop.time() >= outgoing.until:
            expire(outgoing.outcome)  # credit came before the timer of a process that stood still
        if outgoing.outcome.done():
            return False
        delivery = self._link.delivery(self._link.delivery_tag())
        outgoing.tag = tag = delivery.tag
        if not self._settled:
            self._unsettled[tag] = outgoing
        self._begun = (outgoing, delivery)
        self._handed = 0
        return True

    def _go_on(self) -> bool:
        """Hand the engine what it has room for of the message that is begun, and return whether that was its end.

        `flowed` is called when the peer has taken some.
        """
        assert self._begun is not None
        outgoing, delivery = self._begun
        while self._handed < len(outgoing.encoded):
            if self._handed and self._link.session.outgoing_bytes >= PIECE:
                return False
            self._link.stream(outgoing.encoded[self._handed : self._handed + PIECE])
            self._handed += PIECE
        self._link.advance()
        self._begun = None
        if outgoing.tag not in self._unsettled:  # or the peer has refused it already
            delivery.settle()
            if not outgoing.outcome.done():
                outgoing.outcome.set_result(None)
        self.last_used = self._owner.loop.time()
        return True

    def flowed(self) -> None:
        """The peer gave credit, or takes it back."""
        if self._without_credit is not None and self._link.credit > 0:
            waited = self._owner.loop.time() - self._without_credit
            self._without_credit = None
            fields = {"peer": self._owner.peer, "address": self.address, "seconds": round(waited, 3)}
            log.debug("credit has come", extra=fields)
        self.pump()
        if self._link.drain_mode and self._begun is None:
            # What is left of it counts as used then, which the peer may wait for.
            self._link.drained()

    def updated(self, delivery: Delivery) -> None:
        """The peer said what became of a message."""
        if not (delivery.remote_state in _OUTCOMES or delivery.settled):
            return
        outgoing = self._unsettled.pop(delivery.tag, None)
        if outgoing is not None and not outgoing.outcome.done():
            if (failure := _failure(delivery, self.address)) is None:
                outgoing.outcome.set_result(None)
            else:
                outgoing.outcome.set_exception(failure)
        if self._begun is None or self._begun[0] is not outgoing:
            delivery.settle()

    def end(self, why: MessagingError) -> None:
        super().end(why)
        unknown = why
        if isinstance(why, LinkRefused):
            unknown = OutcomeUnknown(f"{why}; it may have been delivered", condition=why.condition)
        # A message that the peer has a part of may be what it ended the link for: it is not sent again.
        begun = [] if self._begun is None else [self._begun[0]]
        for outgoing in (*self._waiting, *self._unsettled.values(), *begun):
            if not outgoing.outcome.done():
                outgoing.outcome.set_exception(Unsent(str(why)) if outgoing.tag is None else unknown)
        self._begun = None
        self._waiting.clear()
        self._unsettled.clear()

    def _forget(self, outgoing: _OutgoingMessage) -> None:
        # One that has left stays unsettled until its outcome comes: proton would send it as settled where it still
        # waits for the peer.
        if outgoing.tag is None:
            with contextlib.suppress(ValueError):
                self._waiting.remove(outgoing)


_OUTCOMES = {Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED}


def _failure(delivery: Delivery, address: str) -> MessagingError | None:
    """What an outcome means to the sender; None where the message was taken."""
    state = delivery.remote_state
    if state == Delivery.ACCEPTED:
        return None
    if state == Delivery.RELEASED:
        return DeliveryFailure(f"the message to {address!r} was released: no receiver took it", released=True)
    if state == Delivery.MODIFIED:
        return DeliveryFailure(f"the message to {address!r} was modified: a receiver gave it back, and may have begun")
    if state == Delivery.REJECTED:
        return DeliveryRejected(address, *said_by(delivery.remote.condition))
    return OutcomeUnknown(f"the peer settled the message to {address!r} and did not say whether it was taken")
