"""What can go wrong on the bus. Every text says what happened and what to do."""

from __future__ import annotations

from osrdyne_calls.waits import Wait
from osrdyne_protocol.errors import OsrdyneError


class MessagingError(OsrdyneError):
    """Something is wrong with a message on the bus."""


class InvalidTarget(MessagingError, ValueError):
    """A target has a name that no address can hold; nothing was sent."""


class ConnectFailed(MessagingError):
    """No connection to the peer could be opened: check its address, that it runs, and that it speaks AMQP 1.0."""


class LoginRefused(MessagingError):
    """The peer did not accept user, password or certificate."""


class PeerLost(MessagingError):
    """The connection to the peer ended. What was under way may have been done."""


class RepliesLost(PeerLost):
    """The replies to calls that were sent cannot be received any more. The calls may have been served."""


class Unsent(PeerLost):
    """The connection or link ended before the message left: it can be sent again without doing anything twice."""


class BusClosed(MessagingError):
    """This bus is closed; open another one."""


class LinkRefused(MessagingError):
    """The peer did not attach a link, or detached it; the text has its reason."""

    def __init__(self, message: str | None = None, *, condition: str = "") -> None:
        super().__init__(message)
        #: What AMQP calls the reason, such as `amqp:not-found`; empty where the peer gave none.
        self.condition = condition


class DeliveryFailure(MessagingError):
    """No receiver took the message."""

    def __init__(self, message: str | None = None, *, released: bool = False) -> None:
        super().__init__(message)
        #: Whether it was released: then it can be sent again without doing anything twice.
        self.released = released


class DeliveryRejected(MessagingError):
    """A receiver refused the message for good, or a broker that could not keep it."""

    def __init__(self, address: str, condition: str, description: str) -> None:
        super().__init__(
            f"the message to {address!r} was rejected: {description or condition or 'no reason was given'}"
        )
        #: The peer's own words; either may be empty.
        self.condition = condition
        self.description = description


class OutcomeUnknown(MessagingError):
    """The peer did not say whether a message was taken, or ended the link before. It may have been delivered."""

    def __init__(self, message: str | None = None, *, condition: str = "") -> None:
        super().__init__(message)
        #: What AMQP calls the reason of the link's end; empty where the link did not end.
        self.condition = condition


class SendTimedOut(MessagingError):
    """A message could not be sent, or was not acknowledged, in time."""

    def __init__(
        self, address: str, timeout: float, *, sent: bool, connected: bool = True, trouble: object = None
    ) -> None:
        what = "was not acknowledged; it may have been delivered" if sent else "had no credit; it was not sent"
        if not connected:
            what = "had no connection; it was not sent" + (f" ({trouble})" if trouble else "")
        super().__init__(f"within {timeout:g} s the message to {address!r} {what}")
        self.address = address
        self.timeout = timeout
        self.connected = connected
        #: Whether the message left: then a receiver may have it.
        self.sent = sent
        #: Why there was no connection, where there was none.
        self.trouble = trouble
        #: How far the message had come, as the text says, too.
        self.wait = Wait.SENT if sent else Wait.UNSENT if connected else Wait.CONNECTING


class MessagingTimeout(MessagingError):
    """Something had no answer in the time that it was given. For a call, the text says whether a server may have it."""

    def __init__(self, message: str | None = None, *, wait: Wait | None = None) -> None:
        super().__init__(message)
        #: How far the request had come, as the text says, too.
        self.wait = wait


class StartTimedOut(MessagingTimeout):
    """What was to receive messages did not receive them in time; nothing of it is left at the peer that answers."""

    def __init__(self, address: str, timeout: float, *, peer: str | None, trouble: object = None) -> None:
        """`peer`: the one that it was connected to, or None; `trouble` says why there was no connection."""
        what = f"{peer} did not attach a receiver to {address!r}"
        if peer is None:
            what = "there was no connection to receive over" + (f" ({trouble})" if trouble else "")
        super().__init__(f"within {timeout:g} s {what}", wait=Wait.SENT if peer else Wait.CONNECTING)
        #: Empty where there was no connection, because its peer says what addresses look like.
        self.address = address
        self.timeout = timeout
        self.peer = peer
        self.trouble = trouble


class UnsendableMessage(MessagingError, ValueError):
    """A message holds what AMQP cannot carry; it was not sent."""


class MessageTooLarge(MessagingError, ValueError):
    """A message is larger than the peer takes; it was not sent."""

    def __init__(self, address: str, size: int, limit: int) -> None:
        super().__init__(f"the message to {address!r} has {size} bytes, and its peer takes at most {limit}")
        #: bytes of the encoded message
        self.size = size
        #: most bytes that the peer takes
        self.limit = limit
