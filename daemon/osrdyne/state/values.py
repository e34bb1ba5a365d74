"""What is known of one key's queue, group and workers, as values. Times are monotonic seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Phase(Enum):
    """How far a queue is on its way out."""

    #: Never asserted by this session: it may or may not exist.
    UNKNOWN = "unknown"
    BOUND = "bound"
    UNBOUND = "unbound"
    #: Unwanted, unbound, and nothing in it: the group may be stopped.
    DRAINED = "drained"
    #: A foreign queue with the name of ours: never changed, never deleted.
    FOREIGN = "foreign"
    #: Does not exist.
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class QueueState:
    """What is known of one key's queue. Times are monotonic seconds."""

    phase: Phase
    #: Generation for which declare and bind were last asserted; -1 for never in this session.
    asserted: int = -1
    #: When a passive declare last showed nothing ready (in DRAINED: no consumer either).
    looked_at: float | None = None
    #: When the first sample after that look showed no unacknowledged message.
    sampled_at: float | None = None
    #: What waited in it was taken back since it was bound: no worker of its key can be started.
    emptied: bool = False
    #: When a request was found then that workers had taken: they start, whatever they say; None where there was none.
    taken_at: float | None = None
    #: When to look again at an unwanted queue that others use or bind; other steps do not wait for it.
    recheck_at: float = 0.0
    #: Failures in a row of this queue's actions, the earliest time of the next try, and the last reason.
    failures: int = 0
    not_before: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class QueueTotals:
    """Counts of a queue from the management API, seconds late."""

    ready: int
    unacknowledged: int
    consumers: int
    #: Bindings other than that to the default exchange.
    bindings: int
    #: False for a foreign queue: its type or its key is not what we declare.
    ours: bool = True
    #: Messages on their way to the dead-letter exchange: no longer ready, and lost if the queue is deleted.
    dead_lettering: int = 0
    #: Deliveries since the broker began to count, where it counts them.
    delivered: int = 0

    def delivered_since(self, before: QueueTotals | None) -> bool:
        """Return whether the queue has delivered messages since these earlier counts."""
        return before is not None and self.delivered > before.delivered

    def holds_the_same_as(self, before: QueueTotals | None) -> bool:
        """Return whether workers hold the same messages as at these earlier counts.

        False where the broker counts no deliveries: nothing shows it then.
        """
        same = before is not None and (self.unacknowledged, self.delivered) == (before.unacknowledged, before.delivered)
        return same and self.unacknowledged > 0 and self.delivered > 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is remembered of the starts of one key's group. Times are monotonic seconds."""

    failures: int = 0
    not_before: float = 0.0
    error: str | None = None
    #: When the engine last accepted a start, or when it first turned out that the engine had restarted a failed worker
    #: by itself; None when neither happened since the last failure, if any.
    started_at: float | None = None
    #: A worker of the group has shown a sign of life since.
    alive: bool = False
    #: When it last failed; None when it never did, or has run long enough since.
    failed_at: float | None = None
    #: Starts in a row that ended before a worker said `started`.
    unstarted: int = 0
    #: Since the last failure more requests without a caller came than the daemon holds: all wait in their queue then.
    queued: bool = False


@dataclass(slots=True)
class KeyActivity:
    """When workers of one key last reported, in monotonic seconds."""

    last_event: float
    last_taken: float | None = None
    #: When one last said that it is about to consume, or that it got a request; and when one last said that it stops,
    #: None where one said that it consumes since.
    consuming_at: float | None = None
    stopping_at: float | None = None
    #: When each worker last said that it is about to consume, by its identity, empty where it named none: those last.
    started_at: dict[str, float] = field(default_factory=dict)
