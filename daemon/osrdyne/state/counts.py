"""What the management API last counted, and what these counts show. Times are monotonic seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from osrdyne.base.changes import Changes
from osrdyne.state.values import QueueTotals


@dataclass(slots=True)
class Counts:
    """The counts of one pool, seconds late; the queue watcher writes them."""

    #: Totals of request queues by key, and since when each had ready messages.
    totals: dict[str, QueueTotals] = field(default_factory=dict)
    ready_since: dict[str, float] = field(default_factory=dict)
    #: By key: since when its workers have had the same requests, and no other.
    held_since: dict[str, float] = field(default_factory=dict)
    #: Keys whose totals matter to the group loop.
    changes: Changes = field(default_factory=Changes)
    #: When the present `totals` and `depths` were requested; None before the first.
    counted_at: float | None = None
    #: By key: since when counts have come without an interruption.
    counted_since: dict[str, float] = field(default_factory=dict)
    #: By key: when the last counts with a consumer were requested.
    served_at: dict[str, float] = field(default_factory=dict)
    #: Messages in the queues of `PoolNames.counted` by name, where known.
    depths: dict[str, int] = field(default_factory=dict)
    #: The resources of a broker alarm.
    alarm: str | None = None
    #: Why the management API does not answer, None while it does.
    uncounted: str | None = None
    #: Orphan and dead-letter queue where others consume it, with what to do.
    listeners: dict[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin a session. Counts from before an outage prove nothing: the workers had no broker meanwhile."""
        self.totals, self.counted_at = {}, None
        self.forget_waits()

    def end(self) -> None:
        """End a session, after which these values would look current."""
        self.depths, self.listeners, self.alarm, self.uncounted = {}, {}, None, None

    def forget_waits(self) -> None:
        """Forget since when anything lasts: nothing shows that a group is stuck, or that it consumes nothing."""
        self.ready_since.clear()
        self.held_since.clear()
        self.counted_since.clear()

    def note_failure(self, reason: str) -> None:
        """Note that the management API does not answer, and why."""
        self.uncounted, self.depths = reason, {}
        self.forget_waits()

    def note(self, depths: dict[str, int], totals: dict[str, QueueTotals], *, at: float, now: float) -> None:
        """Take over counts. `at`: when they were requested. `now`: the present time."""
        before, self.totals = self.totals, totals
        self.depths, self.counted_at = depths, at
        for times in (self.ready_since, self.held_since, self.counted_since, self.served_at):
            for key in times.keys() - totals.keys():
                del times[key]
        for key, found in totals.items():
            # A queue that was made again is a new one: its workers have the whole grace to find it.
            self.counted_since.setdefault(key, at)
            if found.ready == 0 or found.delivered_since(before.get(key)):
                self.ready_since.pop(key, None)
            if found.ready > 0:
                self.ready_since.setdefault(key, now)
            if not found.holds_the_same_as(before.get(key)):
                self.held_since.pop(key, None)
            if found.unacknowledged > 0:
                self.held_since.setdefault(key, now)
            if found.consumers > 0:
                self.served_at[key] = at
            if found.ready > 0 or found.consumers == 0 or found.holds_the_same_as(before.get(key)):
                self.changes.add(key)
