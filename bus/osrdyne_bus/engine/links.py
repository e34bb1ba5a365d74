"""Links of a connection: senders and subscriptions, how they are attached, and how they end.

Use everything here only in the loop of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Protocol, Self

import proton
from proton import Delivery

from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine.messages import Value, encoded
from osrdyne_bus.envelopes import Envelope, words
from osrdyne_bus.errors import (
    DeliveryFailure,
    DeliveryRejected,
    LinkRefused,
    MessageTooLarge,
    MessagingError,
    OutcomeUnknown,
    PeerLost,
    SendTimedOut,
    UnsendableMessage,
    Unsent,
)

#: Seconds for the peer to attach a link.
PATIENCE = 10.0


class Owner(Protocol):
    """What a link needs of its connection."""

    loop: asyncio.AbstractEventLoop
    peer: str

    def flush_soon(self) -> None:
        """Write what there is to write before the loop waits again."""

    def gone(self, end: End) -> None:
        """Forget a link."""

    def given_up(self, link: Any) -> None:
        """A link is closed before the peer has answered it."""


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


class End(ABC):
    """What both kinds of links share: how they are attached, and how they end."""

    def __init__(self, owner: Owner, link: Any) -> None:
        self._owner = owner
        self._link = link
        self._attached: asyncio.Future[None] = owner.loop.create_future()
        #: Why the link ended; None while it is there.
        self.ended: MessagingError | None = None
        #: Called once when an attached link ends without `close`.
        self.on_end: Callable[[MessagingError], None] | None = None

    @property
    def key(self) -> int:
        """What a connection knows the link by."""
        return hash(self._link)

    @property
    def session(self) -> Any:
        return self._link.session

    @property
    def is_open(self) -> bool:
        return self.ended is None and self._attached.done()

    async def attached(self) -> Self:
        """Wait until the peer has taken the link. Raises LinkRefused and PeerLost."""
        self._link.open()
        self._owner.flush_soon()
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(self._attached)
        except TimeoutError:
            self.close()
            raise LinkRefused(f"{self._owner.peer} did not attach {self.address!r} within {PATIENCE:g} s") from None
        except BaseException:
            self.close()
            raise
        return self

    @property
    @abstractmethod
    def address(self) -> str:
        """What the link is attached to."""

    def opened(self) -> None:
        """The peer attached the link."""
        if self.ended is None and not self._attached.done():
            self._attached.set_result(None)

    def end(self, why: MessagingError) -> None:
        """The link is no longer there."""
        if self.ended is not None:
            return
        self.ended = why
        if not self._attached.done():
            self._attached.set_exception(why)
            self._attached.exception()  # a wait may have ended before
        elif self.on_end is not None:
            self.on_end(why)

    def free(self) -> None:
        """Leave nothing of the link in the engine."""
        self._link.close()
        self._link.free()

    def refuse(self, condition: str, description: str) -> None:
        """Detach the link with an error."""
        refuse(self._link, condition, description)

    def close(self) -> None:
        """Detach the link."""
        self.on_end = None
        if self.ended is None:
            if not self._attached.done():
                self._owner.given_up(self._link)
            self.end(PeerLost(f"the link to {self.address!r} was closed here"))
            self._link.close()
            self._owner.gone(self)
            self._owner.flush_soon()


class Subscription(End):
    """A receiver, with its credit."""

    def __init__(
        self, owner: Owner, link: Any, window: CreditWindow, received: Received, *, any_body: bool = False
    ) -> None:
        """`any_body`: a body that is neither bytes nor text is taken for an empty one; otherwise it is rejected."""
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


def expire(waiting: asyncio.Future[Any]) -> None:
    """End a wait with TimeoutError. A timer that calls this costs half of `asyncio.timeout`."""
    if not waiting.done():
        waiting.set_exception(TimeoutError())


@dataclass(slots=True, eq=False)
class _Outgoing:
    """A message that waits for credit, or for its outcome."""

    encoded: bytes
    outcome: asyncio.Future[None]
    #: Names its delivery once it has left.
    tag: str | None = None


class SendLink(End):
    """A sender to one address. Messages leave in the order of `send`, each as soon as there is credit for it."""

    def __init__(self, owner: Owner, link: Any, *, settled: bool = False) -> None:
        """`settled`: a message counts as taken as soon as it leaves."""
        super().__init__(owner, link)
        self._settled = settled
        self._waiting: deque[_Outgoing] = deque()
        # By tag, and not in proton's objects: what these refer to lives as long as they do, and no collector sees it.
        self._unsettled: dict[str, _Outgoing] = {}
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
        return not self._waiting and not self._unsettled

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
        one = _Outgoing(message, self._owner.loop.create_future())
        most = int(self._link.remote_max_message_size or 0)
        if most and len(one.encoded) > most:
            raise MessageTooLarge(self.address, len(one.encoded), most)
        self._waiting.append(one)
        self.pump()
        timer = self._owner.loop.call_later(timeout, expire, one.outcome)
        try:
            await one.outcome
        except TimeoutError:
            raise SendTimedOut(self.address, timeout, sent=one.tag is not None) from None
        finally:
            timer.cancel()
            self._forget(one)

    def pump(self) -> None:
        """Send what waits, as far as there is credit."""
        while self._waiting and self._link.credit > 0:
            one = self._waiting.popleft()
            if one.outcome.done():
                continue
            delivery = self._link.delivery(self._link.delivery_tag())
            one.tag = tag = delivery.tag
            self._link.stream(one.encoded)
            self._link.advance()
            if self._settled:
                delivery.settle()
                one.outcome.set_result(None)
            else:
                self._unsettled[tag] = one
            self.last_used = self._owner.loop.time()
        self._owner.flush_soon()

    def flowed(self) -> None:
        """The peer gave credit, or takes it back."""
        self.pump()
        if self._link.drain_mode:
            # What is left of it counts as used then, which the peer may wait for.
            self._link.drained()

    def updated(self, delivery: Delivery) -> None:
        """The peer said what became of a message."""
        if not (delivery.remote_state in _OUTCOMES or delivery.settled):
            return
        one = self._unsettled.pop(delivery.tag, None)
        if one is not None and not one.outcome.done():
            if (failure := _failure(delivery, self.address)) is None:
                one.outcome.set_result(None)
            else:
                one.outcome.set_exception(failure)
        delivery.settle()

    def end(self, why: MessagingError) -> None:
        super().end(why)
        unknown = why
        if isinstance(why, LinkRefused):
            unknown = OutcomeUnknown(f"{why}; it may have been delivered", condition=why.condition)
        for one in (*self._waiting, *self._unsettled.values()):
            if not one.outcome.done():
                one.outcome.set_exception(Unsent(str(why)) if one.tag is None else unknown)
        self._waiting.clear()
        self._unsettled.clear()

    def _forget(self, one: _Outgoing) -> None:
        # One that has left stays unsettled until its outcome comes: proton would send it as settled where it still
        # waits for the peer.
        if one.tag is None:
            with contextlib.suppress(ValueError):
                self._waiting.remove(one)


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


def refuse(link: Any, condition: str, description: str) -> None:
    """Detach a link with an error, also one that was not attached yet."""
    link.open()
    link.condition = proton.Condition(condition, description)
    link.close()


def said_by(condition: Any) -> tuple[str, str]:
    """Return name and description of an AMQP error; both empty where there is none."""
    return (str(condition.name or ""), str(condition.description or "")) if condition else ("", "")
