"""What to write where a promise was broken: the settings before, of all keys or of some. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from osrdyne_pipeline.promises.changes import AppliedChange, own
from osrdyne_pipeline.promises.verdict import Review
from osrdyne_pipeline.recommendation.edit.wanted import WantedOverride, WantedSettings


def going_back(change: AppliedChange, review: Review) -> WantedSettings | None:
    """Return the settings to write; None where nothing is to be taken back."""
    if not (review.back or review.back_keys):
        return None
    gone = set(change.keys) if review.back else set(review.back_keys)
    pool = change.before if review.back else change.after
    kept = own(change.after, [key for key in change.keys if key not in gone])
    if review.back:
        # What had settings before and has them still is not ours, unless the change replaced it.
        again = {
            key: delays
            for key, delays in change.before.overrides.items()
            if key in gone or key not in change.after.overrides
        }
    else:
        again = {key: change.before.delays(key) for key in sorted(gone)}
    when = datetime.fromtimestamp(change.at, UTC).isoformat(timespec="minutes")
    why = f"as before the change of {when}, which did not bring what it promised"
    notes = dict.fromkeys(kept, "as the change before") | dict.fromkeys(again, why)
    theirs = set(again) & set(change.theirs)
    overrides = tuple(WantedOverride(key, delays, notes[key], key in theirs) for key, delays in (kept | again).items())
    return WantedSettings(change.after.name, pool.unbind_delay, pool.stop_delay, (why,), overrides)
