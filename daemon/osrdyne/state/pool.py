"""The state that the control tasks of one pool share: facts and values, never calls.

Each value has one writer, with a few exceptions; docs/explain/architecture.md lists both. The tracker outlives a broker
connection; knowledge of queues does not. Single-threaded: only the event loop touches these values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from osrdyne.base.changes import Changes, Keyed
from osrdyne.drivers.base import Group
from osrdyne.state.delivery_history import DeliveryHistory
from osrdyne.state.signs import Signs
from osrdyne.state.tracker import TargetTracker
from osrdyne.state.values import Attempt, KeyActivity, Phase, QueueState, QueueTotals
from osrdyne_pool.broker.lost import Evidence
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.names import PoolNames


@dataclass(slots=True)
class PoolState:
    """The actual and the wanted state of one pool."""

    #: What the pool's objects are called on the broker.
    names: PoolNames
    tracker: TargetTracker
    clock: Callable[[], float]
    #: Keys whose wanted status or generation changed.
    target_changes: Changes = field(default_factory=Changes)
    #: What is known of queues; written by the queue loop.
    queues: Keyed[QueueState] = field(default_factory=Keyed)
    queue_changes: Changes = field(default_factory=Changes)
    #: Keys that left `queues`, because they have no queue and need none; written by the queue loop.
    forgotten: Changes = field(default_factory=Changes)
    #: Keys whose requests keep coming back although their queue is bound. The orphan forwarder adds a key; the queue
    #: loop removes it, unbinds the queue and binds it again.
    unrouted: set[str] = field(default_factory=set)
    #: Groups that the engine runs, and past attempts to start them; written by the group loop.
    groups: dict[str, Group] = field(default_factory=dict)
    group_changes: Changes = field(default_factory=Changes)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    #: What workers reported; written by the activity listener.
    activity: dict[str, KeyActivity] = field(default_factory=dict)
    activity_changes: Changes = field(default_factory=Changes)
    #: Which workers received which request; written by the activity listener.
    delivery_history: DeliveryHistory = field(default_factory=DeliveryHistory)
    #: Totals of request queues, seconds late, and since when each had ready messages; written by the queue watcher.
    totals: dict[str, QueueTotals] = field(default_factory=dict)
    ready_since: dict[str, float] = field(default_factory=dict)
    totals_changes: Changes = field(default_factory=Changes)
    #: When the queue watcher requested `totals` and `depths`, in monotonic seconds. By key: since when its counts have
    #: come without an interruption, and when it requested the last ones that showed a consumer.
    counted_at: float | None = None
    counted_since: dict[str, float] = field(default_factory=dict)
    served_at: dict[str, float] = field(default_factory=dict)
    #: The totals when the previous connection ended; written by the queue watcher.
    former_totals: dict[str, QueueTotals] = field(default_factory=dict)
    #: Keys whose queue has not confirmed a forward in time. The orphan forwarder adds a key; the queue watcher removes
    #: it and checks the queue.
    unconfirmed: set[str] = field(default_factory=set)
    #: Evidence about queues that the broker seems to have lost; written by the queue watcher. The queue loop removes
    #: the keys that it handles.
    lost: Evidence = field(default_factory=Evidence)
    lost_changes: Changes = field(default_factory=Changes)
    #: Keys whose queue was created again because the broker had lost it, and when; written by the queue loop.
    remade: dict[str, float] = field(default_factory=dict)
    #: How many requests for new keys were refused, by what (`ErrorAnswer.refused`); written by the orphan forwarder.
    refused: Counter[str] = field(default_factory=Counter)
    #: Messages in the queues of `names.counted` by name, where known, and the resources of a broker alarm;
    #: seconds late; written by the queue watcher.
    depths: dict[str, int] = field(default_factory=dict)
    alarm: str | None = None
    #: Orphan and dead-letter queue where others consume it, with what to do; written by the queue watcher.
    listeners: dict[str, str] = field(default_factory=dict)
    #: Why the management API does not answer, None while it does; written by the queue watcher.
    uncounted: str | None = None
    #: Copies of requests without a caller that were dropped from the inventory since this daemon began; written by the
    #: dead-letter responder.
    dropped: int = 0
    #: Static queues that the broker lost, and what to do about each; written by `static_queues`. Outlives a connection:
    #: such a queue does not come back by itself.
    lost_static: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pool: PoolSettings, clock: Callable[[], float]) -> PoolState:
        """Return an empty state. `clock` returns monotonic seconds."""
        return cls(PoolNames(pool.name), TargetTracker(pool.delays), clock)

    def require(self, key: str, *, extra_lifetime: float = 0.0, found_unbound: bool = False) -> int:
        """Make a key Active from now on; see `TargetTracker.require`."""
        with self._reporting(key):
            return self.tracker.require(key, self.clock(), extra_lifetime=extra_lifetime, found_unbound=found_unbound)

    def renew_on_worker_start(self, key: str, *, extra_lifetime: float) -> bool:
        """Renew a key because a worker of it started; see `TargetTracker.renew_on_worker_start`."""
        with self._reporting(key):
            return self.tracker.renew_on_worker_start(key, self.clock(), extra_lifetime=extra_lifetime)

    def keep(self, key: str, seconds: float) -> None:
        """Keep a key Active for `seconds` from now; see `TargetTracker.keep`."""
        with self._reporting(key):
            self.tracker.keep(key, self.clock() + seconds)

    def make_room(self, most: int, *, idle: float, busy: Callable[[str], bool]) -> bool:
        """Return whether one more key may be wanted; idle keys give way to it. See `TargetTracker.make_room`.

        A key with messages by the last counts is busy, too: its workers may need longer than `idle` to start.
        """

        def waits(key: str) -> bool:
            totals = self.totals.get(key)
            return busy(key) or (totals is not None and totals.ready + totals.unacknowledged > 0)

        for key in self.tracker.make_room(most, self.clock(), idle=idle, busy=waits):
            self.target_changes.add(key)
        return len(self.tracker.wanted) < most

    @contextmanager
    def _reporting(self, key: str) -> Iterator[None]:
        """Report a key to the readers of the target if it gets another status or generation meanwhile."""
        before = self.tracker.generation
        yield
        if self.tracker.generation != before:
            self.target_changes.add(key)

    def phase(self, key: str) -> Phase:
        """Return the phase of a key's queue: GONE when there is none."""
        queue = self.queues.get(key)
        return queue.phase if queue is not None else Phase.GONE

    def last_life(self, key: str) -> float | None:
        """Return when a worker of a key last showed a sign of life (monotonic seconds); now where one consumes."""
        totals = self.totals.get(key)
        if totals is not None and totals.consumers:
            return self.clock()
        activity = self.activity.get(key)
        return activity.last_event if activity is not None else None

    def signs(self, key: str) -> Signs:
        """Return what is known of the consumers of a key's queue."""
        activity, totals = self.activity.get(key), self.totals.get(key)
        return Signs(
            started_at=self.started_at(key),
            consuming_at=activity.consuming_at if activity else None,
            stopping_at=activity.stopping_at if activity else None,
            last_event=activity.last_event if activity else None,
            consumers=totals.consumers if totals else None,
            counted_at=self.counted_at,
            counted_since=self.counted_since.get(key),
            served_at=self.served_at.get(key),
        )

    def started_at(self, key: str) -> float | None:
        """Return when the engine last accepted a start of a key's group; None when this daemon started none."""
        attempt = self.attempts.get(key)
        return attempt.started_at if attempt is not None else None
