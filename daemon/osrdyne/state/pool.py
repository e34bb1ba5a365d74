"""The state that the control tasks of one pool share: facts and values, never calls.

Each value has one writer, with a few exceptions; docs/explain/architecture.md lists both. The tracker outlives a broker
connection; knowledge of queues does not. Single-threaded: only the event loop touches these values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from osrdyne.state import start_failures
from osrdyne.state.by_key import ActivityByKey, GroupsByKey, QueuesByKey
from osrdyne.state.counts import Counts
from osrdyne.state.lost_queues import LostQueues
from osrdyne.state.signs import Signs
from osrdyne.state.tracker import TargetTracker
from osrdyne.state.worker_ends import WorkerEnds
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.names import PoolNames


@dataclass(slots=True)
class DaemonTally:
    """What this daemon counts from its begin."""

    #: Requests for new keys that were refused, by what (`ErrorAnswer.refused`); written by the orphan forwarder.
    refused: Counter[str] = field(default_factory=Counter)
    #: Copies of requests without a caller that were dropped from the inventory; written by the dead-letter responder.
    dropped: int = 0
    #: When a request woke each key that has had no worker since, in monotonic seconds; the orphan forwarder adds a key,
    #: and the activity listener removes it.
    woken: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolState:
    """The actual and the wanted state of one pool. Each part has methods that change it; its writers call them."""

    #: What the pool's objects are called on the broker.
    names: PoolNames
    clock: Callable[[], float]
    tracker: TargetTracker
    queues: QueuesByKey = field(default_factory=QueuesByKey)
    groups: GroupsByKey = field(default_factory=GroupsByKey)
    ends: WorkerEnds = field(default_factory=WorkerEnds)
    activity: ActivityByKey = field(default_factory=ActivityByKey)
    counts: Counts = field(default_factory=Counts)
    lost: LostQueues = field(default_factory=LostQueues)
    tally: DaemonTally = field(default_factory=DaemonTally)

    @classmethod
    def of(cls, pool: PoolSettings, clock: Callable[[], float]) -> PoolState:
        """Return an empty state. `clock` returns monotonic seconds."""
        groups = GroupsByKey(pool.start_failures)
        return cls(PoolNames(pool.name), clock, TargetTracker(pool.delays), groups=groups)

    def require(self, key: str, *, extra_lifetime: float = 0.0, found_unbound: bool = False) -> int:
        """Make a key Active from now on; see `TargetTracker.require`."""
        return self.tracker.require(key, self.clock(), extra_lifetime=extra_lifetime, found_unbound=found_unbound)

    def make_room(self, most: int, *, idle: float, busy: Callable[[str], bool]) -> bool:
        """Return whether one more key may be wanted; idle keys give way to it. See `TargetTracker.make_room`.

        A key with messages by the last counts is busy, too: its workers may need longer than `idle` to start.
        """

        def waits(key: str) -> bool:
            totals = self.counts.totals.get(key)
            return busy(key) or (totals is not None and totals.ready + totals.unacknowledged > 0)

        self.tracker.make_room(most, self.clock(), idle=idle, busy=waits)
        return len(self.tracker.wanted) < most

    def refused_until(self, key: str) -> float | None:
        """Return until when requests of a key are refused; see `start_failures.refused_until`."""
        groups, totals = self.groups, self.counts.totals.get(key)
        return start_failures.refused_until(
            groups.attempt(key),
            groups.get(key),
            most=groups.start_failures,
            now=self.clock(),
            trying=key in groups.trying,
            served=totals is not None and totals.consumers > 0,
        )

    def last_life(self, key: str) -> float | None:
        """Return when a worker of a key last showed a sign of life (monotonic seconds); now where one consumes."""
        totals = self.counts.totals.get(key)
        if totals is not None and totals.consumers:
            return self.clock()
        activity = self.activity.get(key)
        return activity.last_event if activity is not None else None

    def signs(self, key: str) -> Signs:
        """Return what is known of the consumers of a key's queue."""
        activity, counts = self.activity.get(key), self.counts
        totals = counts.totals.get(key)
        return Signs(
            started_at=self.groups.attempt(key).started_at,
            consuming_at=activity.consuming_at if activity else None,
            stopping_at=activity.stopping_at if activity else None,
            last_event=activity.last_event if activity else None,
            consumers=totals.consumers if totals else None,
            counted_at=counts.counted_at,
            counted_since=counts.counted_since.get(key),
            served_at=counts.served_at.get(key),
        )
