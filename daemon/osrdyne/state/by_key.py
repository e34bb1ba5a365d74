"""What is known of each key's queue, group and workers. One task writes each of these; the others read."""

from __future__ import annotations

from collections import UserDict
from dataclasses import replace

from osrdyne.base.changes import Changes, KeyedValues
from osrdyne.drivers.base import Group, GroupState
from osrdyne.state.delivery_history import DeliveryHistory
from osrdyne.state.values import Attempt, KeyActivity, Phase, QueueState
from osrdyne_protocol import events

#: Workers of one key whose start is remembered.
_MOST_WORKERS = 100


class QueuesByKey(KeyedValues[QueueState]):
    """What is known of request queues; the queue loop writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = Changes()
        #: Keys that left, because they have no queue and need none.
        self.forgotten = Changes()
        #: Keys whose requests keep coming back although their queue is bound. The orphan forwarder adds a key; the
        #: queue loop removes it, unbinds the queue and binds it again.
        self.unrouted: set[str] = set()
        #: When the daemon itself last ended to consume a key's queue, in monotonic seconds; infinity while it does.
        self.consumed_until: dict[str, float] = {}

    def phase(self, key: str) -> Phase:
        """Return the phase of a key's queue: GONE when there is none."""
        queue = self.get(key)
        return queue.phase if queue is not None else Phase.GONE

    def may_exist(self, key: str) -> QueueState:
        """Note that from here on a key's queue may exist, and return what is known of it."""
        self[key] = queue = replace(self.get(key) or QueueState(Phase.GONE), phase=Phase.UNKNOWN)
        return queue

    def note(self, key: str, queue: QueueState) -> None:
        """Note the result of an action."""
        self[key] = queue
        self.changes.add(key)

    def forget(self, key: str) -> None:
        """Forget a key that has no queue and needs none."""
        self.pop(key, None)
        self.forgotten.add(key)
        self.unrouted.discard(key)
        self.consumed_until.pop(key, None)


class GroupsByKey(UserDict[str, Group]):
    """Groups that the engine runs, and past attempts to start them; the group loop writes both.

    The orphan forwarder only calls `let_wait`.
    """

    def __init__(self, start_failures: int = 0) -> None:
        super().__init__()
        #: The setting of the pool.
        self.start_failures = start_failures
        self.changes = Changes()
        self.attempts: dict[str, Attempt] = {}
        #: Keys for which the engine is asked for a start just now.
        self.trying: set[str] = set()
        #: How many groups have a template of before, and wait for their turn to be exchanged.
        self.outdated = 0

    def attempt(self, key: str) -> Attempt:
        """Return what is remembered of the starts of a key's group."""
        return self.attempts.get(key) or Attempt()

    def let_wait(self, key: str) -> None:
        """Let requests of a key wait in its queue until a start fails again: many came that cannot be refused."""
        self.attempts[key] = replace(self.attempt(key), queued=True)
        self.changes.add(key)

    def note(self, key: str, group: Group | None) -> None:
        """Note that the engine runs this group of a key, None: that it runs none."""
        if group is None:
            self.pop(key, None)
        else:
            self[key] = group
        self.changes.add(key)

    def note_stopping(self, key: str) -> None:
        """Note that the engine was asked to stop a key's group, if it is still there."""
        if key in self:
            self[key] = replace(self[key], state=GroupState.STOPPING)


class ActivityByKey(UserDict[str, KeyActivity]):
    """What workers reported; the activity listener writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = Changes()
        #: Which workers received which request.
        self.delivery_history = DeliveryHistory()

    def note(self, key: str, event: str, now: float, worker_id: str = "") -> bool:
        """Note an event of a worker of a key, and return whether it is the first."""
        first = key not in self
        activity = self.setdefault(key, KeyActivity(last_event=now))
        activity.last_event = now
        if event == events.REQUEST_RECEIVED:
            activity.last_taken = now
        if event == events.STARTED:
            activity.started_at.pop(worker_id, None)
            activity.started_at[worker_id] = now
            if len(activity.started_at) > _MOST_WORKERS:
                del activity.started_at[next(iter(activity.started_at))]
        if event in (events.STARTED, events.REQUEST_RECEIVED):
            activity.consuming_at, activity.stopping_at = now, None
        return first

    def note_stopping(self, key: str, now: float) -> None:
        """Note that a worker of a key stops, where any has reported before."""
        if key in self:
            self[key].stopping_at = now
