"""What policies do on days that none has seen: each week is replayed with what the weeks before it taught.

Today's delays, the two peers and ours get the same calls and are counted alike. Ours is fitted for several budgets of
worker-hours, so that it can be compared at the hours, or at the cold starts, of each other policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.policies import spes
from benchmarks.policies.histogram import hybrid_histogram
from benchmarks.policies.outcome import busy_seconds, replayed
from osrdyne_pipeline.recommendation.calls import WEEK, Calls
from osrdyne_pipeline.recommendation.evidence import pooled
from osrdyne_pipeline.recommendation.fitting import PERCENTILE, DelaySearch, FittingPlan
from osrdyne_pipeline.recommendation.policies import fixed
from osrdyne_pipeline.recommendation.replay import ReplayOutcome, replay

UNBIND, STOP = 600.0, 600.0
#: Weeks that are learnt from, at most; never more than half of a history.
TRAIN_WEEKS = 4
#: Budgets of ours, relative to today's hours.
BUDGETS = (0.12, 0.2, 0.3, 0.45, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0)
PEERS = ("histogram", "spes")

#: Measure -> its goal: at most this.
GOALS = {
    "cold starts, relative to today's, at today's hours": 0.3,
    "cold starts, relative to the histogram's, at its hours": 0.9,
    "75th percentile of cold-start rates, relative to today's": 0.5,
    "75th percentile of cold-start rates, relative to SPES's": 1.0,
    "wasted hours, relative to SPES's, at its cold starts": 1.0,
    "hours beside what was promised, off by": 0.03,
}


@dataclass(frozen=True)
class Judgement:
    """The held-out weeks of one history."""

    outcomes: Mapping[str, ReplayOutcome]
    #: Of ours by budget: what was promised, relative to today's hours.
    promised: Mapping[float, float]
    #: Hours in which calls run, or come less than a minute apart: all others are wasted.
    busy_hours: float

    def measures(self) -> dict[str, float]:
        """Return what was found, by the names of `GOALS`."""
        today, ours, peer, other = (self.outcomes[name] for name in ("today", "ours", *PEERS))
        hours = float(ours.hours.sum() / today.hours.sum())
        values = (
            _over(ours.cold.sum(), today.cold.sum()),
            _over(self._cold_at(float(peer.hours.sum())), peer.cold.sum()),
            _over(ours.percentile(PERCENTILE), today.percentile(PERCENTILE)),
            _over(ours.percentile(PERCENTILE), other.percentile(PERCENTILE)),
            _over(self._hours_at(float(other.cold.sum())) - self.busy_hours, other.hours.sum() - self.busy_hours),
            abs(hours / self.promised[0.0] - 1),
        )
        return dict(zip(GOALS, values, strict=True))

    def _curve(self) -> tuple[list[float], list[float]]:
        points = [self.outcomes[f"ours at {part:g}"] for part in BUDGETS]
        found = sorted((float(point.hours.sum()), float(point.cold.sum())) for point in points)
        return [hours for hours, _ in found], [cold for _, cold in found]

    def _cold_at(self, hours: float) -> float:
        return float(np.interp(hours, *self._curve()))

    def _hours_at(self, cold: float) -> float:
        """Hours at which ours has so many cold starts; those of its cheapest point where it has never so many."""
        hours, colds = self._curve()
        lowest = np.minimum.accumulate(colds)
        return float(np.interp(-cold, -lowest, hours))


def _over(mine: float, theirs: float) -> float:
    return float(mine) / float(theirs) if theirs else (1.0 if not mine else float("inf"))


def judge(calls: Calls, progress: Callable[[str], None] = lambda _: None) -> Judgement:
    """Return what each policy does to all weeks after the first TRAIN_WEEKS, or after the first half."""
    weeks_in_all = int((calls.until - calls.since) // WEEK)
    train = min(TRAIN_WEEKS, weeks_in_all // 2)
    today = fixed(len(calls.keys), UNBIND, STOP)
    weeks: dict[str, list[ReplayOutcome]] = {}
    promised: dict[float, list[tuple[float, float]]] = {}
    busy = 0.0
    progress("hybrid histogram")
    kept = hybrid_histogram(calls)
    for number in range(train, weeks_in_all):
        begin, since = calls.since + (number - train) * WEEK, calls.since + number * WEEK
        until = since + WEEK
        part = calls.part(since, until)
        weeks.setdefault("today", []).append(replay(part, today, since, until))
        weeks.setdefault("histogram", []).append(replayed(calls, kept, since, until))
        progress(f"week {number + 1}: SPES")
        weeks.setdefault("spes", []).append(spes.spes(calls, begin, since, until))
        busy += float(busy_seconds(part, since, until).sum()) / 3600
        progress(f"week {number + 1}: ours")
        before = replay(calls.part(begin, since), today, begin, since)
        hours, now = float(before.hours.sum()), float(weeks["today"][-1].hours.sum())
        search = DelaySearch(calls, begin, since, FittingPlan())
        for budget in (0.0, *BUDGETS):
            # 0: what is recommended, which holds most keys to a rate, too.
            found = search.fewest_cold(budget * hours) if budget else search.fit(before, "cold")
            name = f"ours at {budget:g}" if budget else "ours"
            weeks.setdefault(name, []).append(replay(part, found.policy, since, until))
            promised.setdefault(budget, []).append((found.hours / hours * now, now))
    return Judgement(
        {name: pooled(each) for name, each in weeks.items()},
        {budget: sum(saved for saved, _ in each) / sum(all_ for _, all_ in each) for budget, each in promised.items()},
        busy,
    )
