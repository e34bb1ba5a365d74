"""What came in some days, and what replays of the same calls say: for each key, and in total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import numpy as np

from osrdyne_pipeline.promises.changes import AppliedChange, ReplayCorrection
from osrdyne_pipeline.recommendation.calls import DAY, Calls, Floats, Integers, Tables
from osrdyne_pipeline.recommendation.evidence import pooled
from osrdyne_pipeline.recommendation.policies import KeepAlivePolicy, of_settings
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
    """Some whole days since a change, by number of the key."""

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


def since(tables: Tables, calls: Calls, change: AppliedChange) -> tuple[DaysSince, ...]:
    """Return each of the newest whole days after a change, the last one last, from the tables `cold_starts` and
    `worker_hours`.

    These are at most MOST_DAYS: a bad week is not lost among many good ones.
    """
    begin, end = max(-(-change.at // DAY) * DAY, calls.until - MOST_DAYS * DAY), calls.until
    if begin >= end:
        return ()
    cold, hours = came(tables, calls.keys, begin, end)
    former, promised = (of_settings(calls.keys, pool) for pool in (change.before, change.after))
    return tuple(
        _day(calls, begin + number * DAY, former, promised, cold[number], None if hours is None else hours[number])
        for number in range(len(cold))
    )


def _day(
    calls: Calls,
    begin: float,
    former: KeepAlivePolicy,
    promised: KeepAlivePolicy,
    cold: Integers,
    hours: Floats | None,
) -> DaysSince:
    part, end = calls.part(begin, begin + DAY), begin + DAY
    idle = (part.begin >= begin) & np.isfinite(part.before)
    return DaysSince(
        1,
        calls.keys,
        np.bincount(part.key[idle], minlength=len(calls.keys)).astype(np.int64),
        replay(part, former, begin, end),
        replay(part, promised, begin, end),
        cold,
        hours,
    )


def together(days: Sequence[DaysSince]) -> DaysSince:
    """Return some days, at least one, as if they were one."""
    hours = [day.hours for day in days if day.hours is not None]
    return DaysSince(
        sum(day.days for day in days),
        days[0].keys,
        np.sum([day.idle for day in days], axis=0),
        pooled([day.former for day in days]),
        pooled([day.promised for day in days]),
        np.sum([day.cold for day in days], axis=0),
        np.sum(hours, axis=0) if len(hours) == len(days) else None,
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
    found = replay(calls.part(begin, end), of_settings(calls.keys, pool), begin, end)
    cold, hours = came(tables, calls.keys, begin, end)
    expected, starts = int(found.cold.sum()), int(found.lives.sum())
    ratio = float(cold.sum()) / expected if expected >= LEAST_COLD else 0.0
    if not LIKELY[0] <= ratio <= LIKELY[1]:
        return otherwise
    longer = 0.0 if hours is None or not starts else 3600 * float(hours.sum() - found.hours.sum()) / starts
    return ReplayCorrection(ratio, min(max(longer, 0.0), LONGEST_START))


def came(tables: Tables, keys: Sequence[str], begin: float, end: float) -> tuple[Integers, Floats | None]:
    """Return cold requests, and hours of groups, on the whole days from `begin` to `end`: a row a day, a column a key.

    Hours are None where no event reports them.
    """
    first, last = (datetime.fromtimestamp(edge, UTC).date() for edge in (begin, end))
    days = f"where day >= date '{first}' and day < date '{last}' group by day, key"
    cold = _rows(tables, f"select day, key, sum(cold) as n from cold_starts {days}")
    up_ms = _rows(tables, f"select day, key, sum(up_ms) as n from worker_hours {days}")
    hours = _by_day(up_ms, keys, first, last) / 3_600_000
    return _by_day(cold, keys, first, last), hours if up_ms else None


def _rows(tables: Tables, query: str) -> dict[tuple[date, str], int]:
    return {(row["day"], row["key"]): int(row["n"]) for row in tables.table(query).to_pylist()}


def _by_day(rows: Mapping[tuple[date, str], int], keys: Sequence[str], first: date, last: date) -> Integers:
    numbers = {key: number for number, key in enumerate(keys)}
    found = np.zeros(((last - first).days, len(keys)), np.int64)
    for (day, key), value in rows.items():
        if key in numbers:
            found[(day - first).days, numbers[key]] = value
    return found
