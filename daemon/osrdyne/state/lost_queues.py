"""What is known of queues that RabbitMQ 4.0 lost when it was killed; docs/reference/rabbitmq-lost-queues.md.

All of it goes when 4.0 does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from osrdyne.base.changes import Changes
from osrdyne.state.values import QueueTotals
from osrdyne_pool.broker.lost import Evidence


@dataclass(slots=True)
class LostQueues:
    """Evidence of losses, and what came of them. Times are monotonic seconds."""

    #: Evidence about request queues that the broker seems to have lost. The queue watcher adds some; the queue loop
    #: removes that of the keys which it handles.
    evidence: Evidence = field(default_factory=Evidence)
    changes: Changes = field(default_factory=Changes)
    #: Keys whose queue has not confirmed a forward in time. The orphan forwarder adds a key; the queue watcher takes it
    #: and checks the queue.
    unconfirmed: set[str] = field(default_factory=set)
    #: The totals when the previous connection ended; written by the queue watcher.
    former_totals: dict[str, QueueTotals] = field(default_factory=dict)
    #: Keys whose queue was created again because the broker had lost it, and when; written by the queue loop.
    remade: dict[str, float] = field(default_factory=dict)
    #: Static queues that the broker lost, and what to do about each; written by `static_queues`. Outlives a connection:
    #: such a queue does not come back by itself.
    static: Mapping[str, str] = field(default_factory=dict)

    def begin(self, totals: dict[str, QueueTotals]) -> None:
        """Begin a session; these totals are the last ones of the former one."""
        self.former_totals = totals or self.former_totals

    def end(self) -> None:
        """End a session, after which evidence would look current."""
        self.evidence = Evidence()

    def take_unconfirmed(self) -> list[str]:
        """Return the keys whose queue has not confirmed a forward, and forget them."""
        found = sorted(self.unconfirmed)
        self.unconfirmed.clear()
        return found

    def note_looks(self, before: Evidence, looks: Mapping[str, bool], now: float) -> None:
        """Add what looks found that began at this time, with this evidence."""
        # The queue loop may have handled some meanwhile, which makes what was seen of them out of date.
        taken = {key: False for key in before.seen if key not in self.evidence.seen}
        self.evidence = self.evidence.after({**looks, **taken}, now)
        for key in dict.fromkeys([*before.seen, *self.evidence.seen]):
            self.changes.add(key)

    def take(self, key: str, now: float) -> None:
        """Remove the evidence of a key: later losses need evidence of their own."""
        self.evidence = self.evidence.after({key: False}, now)

    def held(self, key: str) -> int | None:
        """Return how many messages a key's queue held when the previous connection ended, None where not known."""
        totals = self.former_totals.get(key)
        return totals.ready + totals.unacknowledged if totals is not None else None
