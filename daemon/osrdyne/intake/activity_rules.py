"""Which activity events renew their key, and for how much longer. Pure; time is an argument.

The activity listener and the replay both go by this. Takes only events of `events.ACTIVITY`.
"""

from __future__ import annotations

from osrdyne.intake.bursts import Bursts
from osrdyne.target.tracker import TargetTracker
from osrdyne_protocol import events


def extra_lifetime(tracker: TargetTracker, debounce: Bursts, key: str, event: str, now: float) -> float | None:
    """Return what an event adds to its key's unbind delay; None where it does not renew the key.

    The rest of a burst renews nothing, and of workers' starts only the first after somebody asked for the key does.
    """
    if event != events.STARTED:
        tracker.note_demand(key)
    elif not tracker.start_counts(key):
        return None
    return debounce.observe(key, now)
