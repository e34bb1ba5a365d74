"""What a policy would have done with the calls of some days: exactly, for all keys at once.

Calls are taken as they were: a policy does not change when a request comes or how long it runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from osrdyne_pipeline.recommendation.calls import Calls, Floats, Integers
from osrdyne_pipeline.recommendation.choices.spans import within
from osrdyne_pipeline.recommendation.policies import KeepAlivePolicy
from osrdyne_pipeline.recommendation.warm import CELL_SECONDS, Cells, cells_between, cells_of


@dataclass(frozen=True)
class ReplayOutcome:
    """Arrays with a value for each key, over the days replayed. Hours are those of groups, running or idle."""

    requests: Integers
    #: Requests that found no bound queue.
    cold: Integers
    #: Requests whose group had been stopped.
    starts: Integers
    hours: Floats
    #: How often a group was started, by a request or ahead of one.
    lives: Integers

    def rates(self) -> Floats:
        """Cold-start rate of each key that was asked for."""
        asked = self.requests > 0
        return np.asarray(self.cold[asked] / self.requests[asked])

    def percentile(self, share: float) -> float:
        """Return the percentile over keys of these rates; 0 where there were no calls."""
        rates = self.rates()
        return float(np.quantile(rates, share)) if len(rates) else 0.0


def replay(calls: Calls, policy: KeepAlivePolicy, since: float, until: float) -> ReplayOutcome:
    """Replay the calls from `since` to before `until`; earlier calls decide which groups are up at the beginning."""
    keys = len(calls.keys)
    counted = (calls.begin >= since) & (calls.begin < until)
    cold, starts = _cold_and_starts(calls, policy, counted)
    started = np.bincount(calls.key[counted], starts, keys).astype(np.int64)
    hours, ahead = _hours(calls, policy, since, until)
    return ReplayOutcome(
        np.bincount(calls.key[counted], calls.requests[counted], keys).astype(np.int64),
        np.bincount(calls.key[counted], cold, keys).astype(np.int64),
        started,
        hours,
        np.where(ahead < 0, started, ahead),
    )


def _cold_and_starts(calls: Calls, policy: KeepAlivePolicy, counted: Cells) -> tuple[Cells, Cells]:
    key, begin = calls.key[counted], calls.begin[counted]
    idle = begin - calls.before[counted]
    early = idle < policy.pause[key]
    cold = (idle >= policy.unbind[key]) | early
    stopped = (idle >= policy.unbind[key] + policy.stop[key]) | early
    for number, spans in policy.prewarm.items():
        mine = np.flatnonzero(key == number)
        cold[mine] &= ~within(spans, idle[mine])
        stopped[mine] &= ~within(spans, idle[mine]) & ~within(spans, idle[mine] - policy.stop[number])
    for number, cells in policy.warm.items():
        mine = np.flatnonzero(key == number)
        bound = cells[cells_of(begin[mine])]
        cold[mine] &= ~bound
        # A window's group outlasts it by the stop delay, which is shorter than the pause between two windows.
        stopped[mine] &= ~(bound | cells[cells_of(begin[mine] - policy.stop[number])])
    return cold, stopped


def _hours(calls: Calls, policy: KeepAlivePolicy, since: float, until: float) -> tuple[Floats, Integers]:
    """Return hours of each key; and how often a group was started, or -1 where only requests start groups."""
    keys = len(calls.keys)
    lives = np.full(keys, -1, np.int64)
    keep = policy.unbind + policy.stop
    kept_from = np.minimum(calls.end + policy.pause[calls.key], calls.after)
    kept_until = np.minimum(calls.end + keep[calls.key], calls.after)
    begin, end = np.clip(calls.begin, since, until), np.clip(calls.end, since, until)
    kept_from, kept_until = np.clip(kept_from, since, until), np.clip(kept_until, since, until)
    seconds = np.bincount(calls.key, (end - begin) + np.maximum(kept_until - kept_from, 0.0), keys)
    for number in sorted({*policy.warm, *policy.prewarm}):
        low, high = np.searchsorted(calls.key, [number, number + 1])
        up = [np.stack([begin[low:high], end[low:high]], 1), np.stack([kept_from[low:high], kept_until[low:high]], 1)]
        # A group outlives each span by the stop delay.
        after = np.array([0.0, policy.stop[number]])
        for span in policy.prewarm.get(number, ()):
            kept = calls.end[low:high, None] + span + after
            up.append(np.clip(np.minimum(kept, calls.after[low:high, None]), since, until))
        if number in policy.warm:
            warm = warm_stretches(policy.warm[number], since - policy.stop[number], until)
            up.append(np.clip(warm + after, since, until))
        whole = union(np.concatenate(up))
        seconds[number] = np.diff(whole, axis=1).sum()
        # What begins at the edge began before it.
        lives[number] = np.count_nonzero(whole[:, 0] > since)
    return seconds / 3600.0, lives


def warm_stretches(cells: Cells, since: float, until: float) -> Floats:
    """Return when groups are kept warm, as rows of begin and end; windows that touch are one row."""
    starts, cell = cells_between(since, until)
    on = starts[cells[cell]]
    return union(np.clip(np.stack([on, on + CELL_SECONDS], 1), since, until))


def union(intervals: Floats) -> Floats:
    """Return intervals that do not overlap and cover the same."""
    intervals = intervals[intervals[:, 1] > intervals[:, 0]]
    if not len(intervals):
        return np.empty((0, 2))
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reach = np.maximum.accumulate(intervals[:, 1])
    fresh = np.flatnonzero(np.concatenate([[True], intervals[1:, 0] > reach[:-1]]))
    return np.stack([intervals[fresh, 0], reach[np.concatenate([fresh[1:] - 1, [len(reach) - 1]])]], 1)


def covered(intervals: Floats, starts: Floats, until: float) -> Floats:
    """Return how many seconds intervals that do not overlap cover from each start to the next, the last to `until`."""
    edges = np.append(starts, until)
    if not len(intervals):
        return np.zeros(len(starts))
    lengths = np.concatenate([[0.0], np.cumsum(intervals[:, 1] - intervals[:, 0])])
    at = np.searchsorted(intervals[:, 0], edges, side="right")
    last = np.maximum(at - 1, 0)
    inside = np.minimum(edges, intervals[last, 1]) - intervals[last, 0]
    return np.asarray(np.diff(np.where(at > 0, lengths[last] + inside, 0.0)))
