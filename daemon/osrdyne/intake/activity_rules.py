"""Which activity events renew their key, and for how much longer. Pure; time is an argument.

The activity listener and the replay both use these rules. Only events of `events.ACTIVITY` are accepted.
"""

from __future__ import annotations

from osrdyne.intake.bursts import Bursts
from osrdyne.target.tracker import TargetTracker
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
