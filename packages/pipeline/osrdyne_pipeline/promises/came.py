"""What came in some days, and what replays of the same calls say: for each key, and in total."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from osrdyne_pipeline.promises.changes import AppliedChange, ReplayCorrection
from osrdyne_pipeline.recommendation.calls import DAY, Calls, Floats, Integers, Tables
from osrdyne_pipeline.recommendation.policies import of_settings
from osrdyne_pipeline.recommendation.replay import ReplayOutcome, replay
from osrdyne_pool.settings import PoolSettings

#: Days that are compared.
MOST_DAYS = 7
#: What is usual is counted on at most so many days before a change.
USUAL_DAYS = 28
#: Fewer cold starts than this do not say what is usual.
LEAST_COLD = 50
#: A replay that differs by more than this from what came is of other settings, or of calls that no pool served.
LIKELY = (0.5, 2.0)
#: A start takes at most so long, and a group that is no longer used goes in that time.
LONGEST_START = 3600.0


@dataclass(frozen=True)
class DaysSince:
    """The newest whole days since a change, by number of the key."""

    days: int
    keys: tuple[str, ...]
    #: Idle times that a call ended.
    idle: Integers
    #: What the settings before the change would have done to these calls, and what those after it do.
    former: ReplayOutcome
    promised: ReplayOutcome
    #: What came: requests that found no queue, and hours of groups; None where no event reports these.
    cold: Integers
    hours: Floats | None


def since(tables: Tables, calls: Calls, change: AppliedChange) -> DaysSince:
    """Return the newest whole days after a change, from the tables `cold_starts` and `worker_hours`.

    These are at most MOST_DAYS: a bad week is not lost among many good ones.
    """
    begin, end = max(-(-change.at // DAY) * DAY, calls.until - MOST_DAYS * DAY), calls.until
    if begin >= end:
        nothing = np.zeros(len(calls.keys), np.int64)
        none = ReplayOutcome(nothing, nothing, nothing, nothing.astype(np.float64))
        return DaysSince(0, calls.keys, nothing, none, none, nothing, None)
    part = calls.part(begin, end)
    idle = (part.begin >= begin) & np.isfinite(part.before)
    cold, hours = came(tables, calls.keys, begin, end)
    return DaysSince(
        int((end - begin) // DAY),
        calls.keys,
        np.bincount(part.key[idle], minlength=len(calls.keys)).astype(np.int64),
        _replayed(part, change.before, begin, end),
        _replayed(part, change.after, begin, end),
        cold,
        hours,
    )


def usual(
    tables: Tables, calls: Calls, pool: PoolSettings, begin: float, end: float, otherwise: ReplayCorrection
) -> ReplayCorrection:
    """Return what is usual while these settings are in force, from `begin` to `end`; where that says too little, what
    was so otherwise.
    """
    end = min(end, calls.until) // DAY * DAY
    begin = max(-(-begin // DAY) * DAY, end - USUAL_DAYS * DAY, calls.since)
    if begin >= end:
        return otherwise
    found = _replayed(calls.part(begin, end), pool, begin, end)
    cold, hours = came(tables, calls.keys, begin, end)
    expected, starts = int(found.cold.sum()), int(found.starts.sum())
    ratio = float(cold.sum()) / expected if expected >= LEAST_COLD else 0.0
    if not LIKELY[0] <= ratio <= LIKELY[1]:
        return otherwise
    longer = 0.0 if hours is None or not starts else 3600 * float(hours.sum() - found.hours.sum()) / starts
    return ReplayCorrection(ratio, min(max(longer, 0.0), LONGEST_START))


def _replayed(part: Calls, pool: PoolSettings, begin: float, end: float) -> ReplayOutcome:
    return replay(part, of_settings(part.keys, pool), begin, end)


def came(tables: Tables, keys: Sequence[str], begin: float, end: float) -> tuple[Integers, Floats | None]:
    """Return cold requests, and hours of groups, of each key on the whole days from `begin` to `end`.

    Hours are None where no event reports them.
    """
    first, last = (datetime.fromtimestamp(edge, UTC).date().isoformat() for edge in (begin, end))
    days = f"where day >= date '{first}' and day < date '{last}' group by key"
    cold = dict(_rows(tables, f"select key, sum(cold) as n from cold_starts {days}"))
    up_ms = dict(_rows(tables, f"select key, sum(up_ms) as n from worker_hours {days}"))
    hours = np.array([up_ms.get(key, 0) for key in keys], np.float64) / 3_600_000
    return np.array([cold.get(key, 0) for key in keys], np.int64), hours if up_ms else None


def _rows(tables: Tables, query: str) -> Sequence[tuple[str, int]]:
    return [(row["key"], int(row["n"])) for row in tables.table(query).to_pylist()]
