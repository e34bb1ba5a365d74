"""What lies in a queue, and what its consumers hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulation.model.message import Message

if TYPE_CHECKING:
    from simulation.model.queue import Queue
    from simulation.model.server_channel import ServerChannel

#: Why a message comes back.
REJECT: Final = "reject"
NACK: Final = "nack"
CHANNEL: Final = "channel closed"
TIMEOUT: Final = "consumer timeout"


class Entry:
    """One message in one queue."""

    __slots__ = ("acquired", "expires_at", "failures", "message", "order", "redelivered")

    def __init__(self, message: Message, order: int, expires_at: float | None) -> None:
        self.message = message
        #: how many came to the queue before it
        self.order = order
        self.expires_at = expires_at
        #: failed deliveries
        self.failures = message.failures
        #: how often it was handed out by this queue
        self.acquired = 0
        self.redelivered = message.failures > 0


class Consumer:
    """A consumer of a queue, on a channel."""

    __slots__ = ("cancelled", "channel", "held", "no_ack", "prefetch", "queue", "suspended", "tag")

    def __init__(self, tag: str, channel: ServerChannel, queue: Queue, no_ack: bool, prefetch: int) -> None:
        self.tag = tag
        self.channel = channel
        self.queue = queue
        self.no_ack = no_ack
        self.prefetch = prefetch
        #: deliveries that it has not settled
        self.held = 0
        #: it was cancelled; a quorum queue counts it while it holds something
        self.cancelled = False
        #: the broker reported its cancel, because it held a message for too long
        self.suspended = False


class UnsettledDelivery:
    """A delivery that is not settled yet."""

    __slots__ = ("acquired_at", "consumer", "entry", "overlooked", "queue", "tag", "taken_back")

    def __init__(self, entry: Entry, queue: Queue, consumer: Consumer, tag: int, acquired_at: float) -> None:
        self.entry = entry
        self.queue = queue
        self.consumer = consumer
        self.tag = tag
        self.acquired_at = acquired_at
        #: however long it is held, the broker does not notice
        self.overlooked = False
        #: it was held for too long, and is its queue's again; what its consumer says of it comes too late
        self.taken_back = False
