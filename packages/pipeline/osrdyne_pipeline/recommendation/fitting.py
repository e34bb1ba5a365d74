"""Our policy: from the calls of some days, settings for each key that fit how it is called, within a budget of hours.

`choices` has what may be chosen for a key. Hours are spent where each saves the most cold starts; before that, most
keys are held to a cold-start rate. What is promised is counted on days that the settings of a key were not learnt from.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np

from osrdyne_pipeline.recommendation.calls import Calls, Floats, Integers
from osrdyne_pipeline.recommendation.choices.options import DELAYS, STOP_SECONDS, Choice, options
from osrdyne_pipeline.recommendation.policies import KeepAlivePolicy, fixed
from osrdyne_pipeline.recommendation.replay import ReplayOutcome, replay
from osrdyne_pipeline.recommendation.tradeoff import BudgetChoice, Frontier, even, frontier, spend
from osrdyne_pipeline.recommendation.warm import Cells

#: Fewer stretches of activity than this say nothing about a key.
LEAST_STRETCHES = 8
#: The share of the budget that is spent: on other days the same settings cost a little more.
SPENT = 0.99
#: The share of today's cold starts that is aimed at where hours are to be saved, for the same reason.
KEPT = 0.95
#: The percentile over keys of their cold-start rates that is to be halved.
PERCENTILE = 0.75
#: The share of keys held to a cold-start rate: a little more than 75 %, for the same reason; and that rate relative to
#: today's 75th percentile, the first that the budget allows.
SHARE = 0.78
AIMS = (0.45, 0.5, 0.6, 0.7, 0.8)
#: Holding keys to that rate may cause at most so many times the cold starts that there are without it.
HELD_COLD = 1.5


@dataclass(frozen=True)
class FittingPlan:
    """What bounds and steers the search."""

    #: Whether keys may have windows of the week, and spans after their last activity.
    windows: bool = True
    prewarms: bool = True
    most_overrides: int = 500
    #: Today's delays, whose sum a key without calls keeps.
    kept: float = 1200.0


@dataclass(frozen=True)
class FitResult:
    """The policy found, and what it is expected to do."""

    policy: KeepAlivePolicy
    #: Delay of keys without settings of their own: unbind and stop delay together.
    delay: float
    #: Numbers of the keys with settings of their own, by gain.
    overrides: Integers
    #: Cold starts that the last hour saved.
    price: float
    #: Hours, counted on days not learnt from. Relative to today's on the same days, they are what is promised.
    hours: float


class DelaySearch:
    """Finds policies for one part of the history; its options serve any budget."""

    def __init__(self, calls: Calls, since: float, until: float, plan: FittingPlan) -> None:
        self._calls = calls.part(since, until)
        self._keys = len(calls.keys)
        #: What each delay would have done if all keys had it, one column a key.
        self._fixed = [
            replay(self._calls, fixed(self._keys, d - STOP_SECONDS, STOP_SECONDS), since, until) for d in DELAYS
        ]
        self._cold = np.stack([outcome.cold for outcome in self._fixed]).astype(np.float64)
        self._hours = np.stack([outcome.hours for outcome in self._fixed])
        self.requests = self._fixed[0].requests
        now = self._calls.begin >= since
        stretches = np.bincount(self._calls.key[now], minlength=self._keys)
        likely = np.flatnonzero(stretches >= LEAST_STRETCHES)
        likely = likely[np.argsort(-self.requests[likely], kind="stable")][: 2 * plan.most_overrides]
        self._options = {int(number): options(self._calls, int(number)) for number in np.sort(likely)}
        self.follow(plan)

    def follow(self, plan: FittingPlan) -> None:
        """Choose by this plan from now on."""
        self._plan = plan
        self._frontiers = {
            number: key.frontier(windows=plan.windows, prewarms=plan.prewarms) for number, key in self._options.items()
        }

    def limited(self, plan: FittingPlan) -> DelaySearch:
        """Return the same search by another plan."""
        found = copy(self)
        found.follow(plan)
        return found

    def behaviours(self) -> Mapping[int, str]:
        """Return how each key is called of which there is enough to say."""
        return {number: key.behaviour for number, key in self._options.items()}

    def fit(self, today: ReplayOutcome, goal: str) -> FitResult:
        """Return the policy for a goal beside what today's delays do to the same days: `cold` or `hours`."""
        if goal == "cold":
            return self.fewest_cold(float(today.hours.sum()), today.percentile(PERCENTILE))
        return self.fewest_hours(float(today.cold.sum()) * KEPT)

    def fewest_cold(self, budget: float, rate: float | None = None) -> FitResult:
        """Return the policy with the fewest cold starts within the hours of a budget.

        With `rate`, today's 75th percentile of cold-start rates, most keys are first held to a part of it, where that
        has not HELD_COLD times as many cold starts.
        """
        aims = [aim * rate for aim in AIMS] if rate is not None else []
        return self._find(sorted(self._options), budget * SPENT, 0.0, aims)

    def fewest_hours(self, cold: float) -> FitResult:
        """Return the policy with the fewest hours that has at most so many cold starts."""
        return self._find(sorted(self._options), np.inf, cold, [])

    def _find(self, own: list[int], budget: float, cold: float, aims: list[float]) -> FitResult:
        rest = np.setdiff1d(np.arange(self._keys), own)
        pool = self._pool(rest)
        chosen, spending = self._spend(own, pool, budget, cold, aims)
        delay = float(DELAYS[pool.option[spending.step[-1]]]) if self.requests[rest].sum() else self._plan.kept
        rows = {
            number: int(choice.option[step]) for number, choice, step in zip(own, chosen, spending.step, strict=False)
        }
        choices = {number: self._options[number].makers[row]() for number, row in rows.items()}
        gain = self._gains(rows, delay, spending.price)
        useful = [number for number in own if not choices[number].plain(delay)]
        useful.sort(key=lambda number: -gain[number])
        if len(useful) > self._plan.most_overrides:
            return self._find(sorted(useful[: self._plan.most_overrides]), budget, cold, aims)
        policy = self._policy({number: choices[number] for number in useful}, delay)
        return FitResult(policy, delay, np.array(useful, np.int64), spending.price, spending.hours)

    def _pool(self, rest: Integers) -> Frontier:
        """Return the delays that the pool may have: none shorter than today's, for keys of which nothing is known yet.

        What is called for the first time after the history is often called, and then again; the history has none of it.
        """
        first = min(int(np.searchsorted(DELAYS, self._plan.kept)), len(DELAYS) - 1)
        found = frontier(self._hours[first:, rest].sum(1), self._cold[first:, rest].sum(1))
        return Frontier(found.hours, found.cold, found.option + first)

    def _spend(
        self, own: list[int], pool: Frontier, budget: float, cold: float, aims: list[float]
    ) -> tuple[list[Frontier], BudgetChoice]:
        free = [self._frontiers[number] for number in own]
        share = SHARE * np.count_nonzero(self.requests) / max(len(own), 1)
        best = spend([*free, pool], budget, cold)
        for aim in aims if share <= 1 else []:
            held = [*even(free, self.requests[own], share, aim), pool]
            spending = spend(held, budget, cold)
            if spending.hours <= budget and spending.cold <= HELD_COLD * best.cold:
                return held, spending
        return [*free, pool], best

    def _gains(self, rows: dict[int, int], delay: float, price: float) -> dict[int, float]:
        """Cold starts that each key's own settings save beyond the pool's delay, hours counted at their price."""
        at = int(np.abs(DELAYS - delay).argmin())
        found = {}
        for number, row in rows.items():
            front = self._frontiers[number]
            step = int(np.flatnonzero(front.option == row)[0])
            saved = self._cold[at, number] - front.cold[step]
            found[number] = float(saved + price * (self._hours[at, number] - front.hours[step]))
        return found

    def _policy(self, choices: dict[int, Choice], delay: float) -> KeepAlivePolicy:
        unbind = np.full(self._keys, delay - STOP_SECONDS)
        warm: dict[int, Cells] = {}
        prewarm: dict[int, Floats] = {}
        for number, choice in choices.items():
            unbind[number] = choice.delay - STOP_SECONDS
            if choice.cells is not None:
                warm[number] = choice.cells
            if choice.prewarm is not None:
                prewarm[number] = choice.prewarm
        return KeepAlivePolicy(unbind, np.full(self._keys, STOP_SECONDS), np.zeros(self._keys), warm, prewarm)
