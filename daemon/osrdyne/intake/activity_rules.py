"""Which activity events renew their key, and for how much longer; and what stands in for events. Pure.

The activity listener and the replay both use the first rule. It accepts only events of `events.ACTIVITY`. The queue
watcher uses the second one.
"""

from __future__ import annotations

from osrdyne.intake.bursts import Bursts
from osrdyne.state.tracker import TargetTracker
from osrdyne.state.values import QueueTotals
from osrdyne_protocol import events


def extra_lifetime(tracker: TargetTracker, debounce: Bursts, key: str, event: str, now: float) -> float | None:
    """Return the seconds that an event adds to its key's unbind delay; None where it does not renew the key.

    Later events of a burst renew nothing. Of the starts of workers, only the first after a request renews the key.
    """
    if event != events.STARTED:
        tracker.note_demand(key)
    elif not tracker.start_counts(key):
        return None
    return debounce.observe(key, now)


def latest_use(before: QueueTotals | None, totals: QueueTotals, *, before_at: float, at: float) -> float | None:
    """Return a time to which workers of a key certainly had requests, by the counts of its queue; None without any.

    `before` are the counts of the previous listing. `before_at` and `at` are the earliest times that the counts of
    both listings may be about, in monotonic seconds. The latest use was then or later, so a key may be renewed as of
    that time although no event says so: its events may be lost. Where they arrive, they have renewed it for longer.
    """
    if totals.unacknowledged > 0:
        return at
    return before_at if totals.delivered_since(before) else None
