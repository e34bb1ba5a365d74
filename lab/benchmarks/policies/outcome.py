"""What peers that decide again at each call do to some days, in the same figures as a replay of ours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from osrdyne_pipeline.recommendation.calls import Calls, Floats
from osrdyne_pipeline.recommendation.replay import ReplayOutcome


@dataclass(frozen=True)
class KeepTimes:
    """For each stretch of calls, from when to when after its end the group is kept, in seconds."""

    pause: Floats
    keep: Floats


def replayed(calls: Calls, kept: KeepTimes, since: float, until: float) -> ReplayOutcome:
    """Return what that does to [since, until); `kept` belongs to all of `calls`."""
    keys = len(calls.keys)
    now = (calls.begin >= since) & (calls.begin < until)
    first = np.concatenate([[True], calls.key[1:] != calls.key[:-1]])
    idle = np.where(first, np.inf, calls.begin - np.roll(calls.end, 1))
    cold = ((idle < np.roll(kept.pause, 1)) | (idle >= np.roll(kept.keep, 1)))[now]
    again = np.clip(np.minimum(calls.end + kept.pause, calls.after), since, until)
    gone = np.clip(np.minimum(calls.end + kept.keep, calls.after), since, until)
    seconds = busy_seconds(calls, since, until) + np.bincount(calls.key, np.maximum(gone - again, 0), keys)
    counted = np.bincount(calls.key[now], cold, keys).astype(np.int64)
    requests = np.bincount(calls.key[now], calls.requests[now], keys).astype(np.int64)
    return ReplayOutcome(requests, counted, counted, seconds / 3600, counted)


def busy_seconds(calls: Calls, since: float, until: float) -> Floats:
    """Return for each key the seconds within stretches of calls."""
    begin, end = np.clip(calls.begin, since, until), np.clip(calls.end, since, until)
    return np.bincount(calls.key, end - begin, len(calls.keys)).astype(np.float64)
