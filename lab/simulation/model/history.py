"""The record of a run: small tuples in the order in which things happened, with the loop's time.

The broker appends what happens in it; clients, workers, drivers and daemons of a simulation append their own
kinds with `add`. The kinds below are the broker's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from simulation.model.message import Message

# --- connections and channels; `actor` is the connection's name ---
CONNECTED: Final = "connected"
DISCONNECTED: Final = "disconnected"  # the broker's side has ended; detail: why
CHANNEL_CLOSED: Final = "channel closed"  # by the broker; detail: (code, text)
BROKER_STOPPED: Final = "broker stopped"  # detail: KILLED when it had no time to say so
BROKER_STARTED: Final = "broker started"
FAULT: Final = "fault"  # a fault control was called; detail: which, with what
STALLED: Final = "stalled"  # a channel waits for a lost queue; place: queue; detail: (channel number, seconds at most)
WENT_ON: Final = "went on"  # it does no longer; detail: channel number

BLOCKED: Final = "blocked"  # the client has heard of an alarm: what it publishes is not read
UNBLOCKED: Final = "unblocked"

# --- publishes; `actor` is the publishing connection's name, `message` what was published ---
PUBLISHED: Final = "published"  # arrived at the broker; place: exchange
ROUTED: Final = "routed"  # put into a queue; place: queue
UNROUTED: Final = "unrouted"  # no queue took it; place: exchange
CONFIRMED: Final = "confirmed"  # the confirm leaves the broker
NACKED: Final = "nacked"
RETURNED: Final = "returned"

# --- messages in queues; place: queue ---
DELIVERED: Final = "delivered"  # actor: consumer's connection; detail: redelivered
ACKED: Final = "acked"  # arrived at the broker
REJECTED: Final = "rejected"  # without requeue
REQUEUED: Final = "requeued"  # detail: reject, nack, channel closed, consumer timeout, ...
DEAD_LETTERED: Final = "dead lettered"  # detail: reason; place: the queue that it left
EXPIRED: Final = "expired"  # with a dead-letter exchange, DEAD_LETTERED follows
DROPPED: Final = "dropped"  # gone, as the queue's rules say; detail: maxlen, expired, rejected, delivery_limit, ...
LOST: Final = "lost"  # gone with its queue; detail: ready, unacknowledged or dead lettering
#: The broker itself lost a quorum queue, or a message that was in one. Without message: the queue; detail: FOR_GOOD
#: (it has to be deleted and created again) or EMPTY (it works). With one: where it was, as in LOST.
LOST_BY_BROKER: Final = "lost by the broker"

# --- objects; place: queue ---
DECLARED: Final = "declared"  # made, not found
BOUND: Final = "bound"  # detail: (exchange, routing key)
UNBOUND: Final = "unbound"  # detail: (exchange, routing key)
DELETED: Final = "deleted"  # detail: QueueAtDeletion
CONSUMING: Final = "consuming"
CONSUMER_CANCELLED: Final = "consumer cancelled"  # detail: its reason

# --- details ---
KILLED: Final = "killed"
FOR_GOOD: Final = "for good"
EMPTY: Final = "empty"


class Event(NamedTuple):
    """One thing that happened."""

    at: float
    kind: str
    #: Who did it: a connection's name, or what a simulation calls its actors; empty: the broker itself.
    actor: str = ""
    #: Queue or exchange.
    place: str = ""
    message: Message | None = None
    detail: Any = None


class QueueAtDeletion(NamedTuple):
    """What a queue held when it was deleted."""

    ready: int
    unacknowledged: int
    #: Dead letters that had not arrived yet.
    dead_lettering: int
    consumers: int
    #: (exchange, routing key) of each.
    bindings: tuple[tuple[str, str], ...]
    #: It was a queue that the broker had lost.
    lost: bool = False


class History:
    """Append-only."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(
        self, at: float, kind: str, actor: str = "", place: str = "", message: Message | None = None, detail: Any = None
    ) -> None:
        self.events.append(Event(at, kind, actor, place, message, detail))

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def lines(self) -> Iterator[str]:
        """Return one line an event, the same text for the same run."""
        for event in self.events:
            message = "" if event.message is None else f" {event.message}"
            detail = "" if event.detail is None else f" {event.detail}"
            yield f"{event.at:12.6f} {event.kind:<18} {event.actor or '-'} {event.place!r}{message}{detail}"
