"""Ours: for each key a delay, and warm windows, out of the calls of some days, within a budget of worker-hours.

Within a window a group is up anyway, so windows add up: a cell of the week costs the hours in which the delay alone
would not have kept the group, and saves the cold starts that fell into it. For each delay the cells are therefore taken
in the order of cold starts saved by an hour, and every beginning of that order is an option of the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from osrdyne_pipeline.recommendation.calls import Calls, Floats, Integers
from osrdyne_pipeline.recommendation.policies import KeepAlivePolicy, fixed
from osrdyne_pipeline.recommendation.replay import ReplayOutcome, coverage, replay
from osrdyne_pipeline.recommendation.tradeoff import Frontier, Spending, even, frontier, spend
from osrdyne_pipeline.recommendation.warm import CELL_SECONDS, GROUP, GROUPS, Cells, cells_between, cells_of, few_runs

#: Of what is kept, the part after the queue was unbound. Short: in it requests go the way of orphans though a worker
#: runs. Not zero: messages on their way when the queue is unbound still find the worker.
STOP_SECONDS = 60.0
#: How long a group may be kept: the candidates, unbind and stop delay together, in seconds.
DELAYS = np.array(
    [120, 180, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10800, 14400, 21600, 28800, 43200, 86400, 172800],
    np.float64,
)
#: Fewer stretches of activity than this say nothing about a key.
LEAST_STRETCHES = 8
#: Of the budget, what is spent: on days not seen it becomes a little more.
SPENT = 0.97
#: Of today's cold starts, what is aimed at where hours are to be saved, for the same reason.
KEPT = 0.95
#: The percentile over keys of their cold-start rates that is to be halved.
PERCENTILE = 0.75
#: The share of keys held to a cold-start rate: a little more than 75 %, for the same reason; and that rate in parts of
#: today's 75th percentile, the first that the budget allows.
SHARE = 0.78
AIMS = (0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True)
class FittingPlan:
    """What bounds and steers the search."""

    windows: bool = True
    most_overrides: int = 200
    #: Today's delays, which a key that nobody has called keeps in sum.
    kept: float = 1200.0


@dataclass(frozen=True)
class KeyOptions:
    """What may be chosen for one key; `option` of the frontier is a row of these."""

    frontier: Frontier
    delay: Floats
    #: Cells taken for each row, and the order in which that delay takes them; None without windows.
    taken: Integers
    order: Sequence[Integers | None]

    def cells(self, row: int) -> Cells | None:
        """Return the warm cells of a row, None where there are none."""
        order = self.order[int(np.searchsorted(DELAYS, self.delay[row]))]
        if order is None or not self.taken[row]:
            return None
        on = np.zeros(GROUPS, bool)
        on[order[: self.taken[row]]] = True
        return np.concatenate([few_runs(day) for day in on.reshape(3, -1)])[GROUP]


@dataclass(frozen=True)
class Fitted:
    """The policy found, and what it does to the days it was found on."""

    policy: KeepAlivePolicy
    #: Delay of keys without settings of their own: unbind and stop delay together.
    delay: float
    #: Numbers of the keys with settings of their own, by gain.
    overrides: Integers
    #: Cold starts that the last hour saved.
    price: float


def options(calls: Calls, number: int, plan: FittingPlan) -> KeyOptions:
    """Return what may be chosen for one key, from all of `calls`."""
    low, high = np.searchsorted(calls.key, [number, number + 1])
    begin, end, before, after = (values[low:high] for values in (calls.begin, calls.end, calls.before, calls.after))
    now = (begin >= calls.since) & (begin < calls.until)
    idle, cell = (begin - before)[now], GROUP[cells_of(begin[now])]
    _, all_cells = cells_between(calls.since, calls.until)
    length = np.bincount(GROUP[all_cells], minlength=GROUPS) * float(CELL_SECONDS)
    hours, cold, delays, taken, orders = [], [], [], [], []
    for delay in DELAYS:
        missed = idle >= delay - STOP_SECONDS
        gone = np.clip(np.maximum(np.minimum(end + delay, after), end), calls.since, calls.until)
        up = np.stack([np.clip(begin, calls.since, calls.until), gone], 1)
        up = up[up[:, 1] > up[:, 0]]
        base = (up[:, 1] - up[:, 0]).sum() / 3600
        order, extra, saved = None, np.zeros(0), np.zeros(0)
        if plan.windows and missed.any():
            free = (length - np.bincount(GROUP, coverage(up, calls.since, calls.until), GROUPS)) / 3600
            # A window of one cell lasts a stop delay longer; one of several costs less than this.
            free = free * (1 + STOP_SECONDS / CELL_SECONDS)
            hit = np.bincount(cell[missed], minlength=GROUPS)
            order = np.flatnonzero(hit)
            order = order[np.argsort(-hit[order] / np.maximum(free[order], 1e-9), kind="stable")]
            extra, saved = np.cumsum(free[order]), np.cumsum(hit[order])
        orders.append(order)
        hours.append(base + np.concatenate([[0.0], extra]))
        cold.append(missed.sum() - np.concatenate([[0.0], saved]))
        delays.append(np.full(len(extra) + 1, delay))
        taken.append(np.arange(len(extra) + 1))
    return KeyOptions(
        frontier(np.concatenate(hours), np.concatenate(cold)), np.concatenate(delays), np.concatenate(taken), orders
    )


class DelaySearch:
    """Finds policies for one part of the history; its options serve any budget."""

    def __init__(self, calls: Calls, since: float, until: float, plan: FittingPlan) -> None:
        self._calls, self._plan = calls.part(since, until), plan
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
        self._options = {int(number): options(self._calls, int(number), plan) for number in np.sort(likely)}

    def fit(self, today: ReplayOutcome, goal: str) -> Fitted:
        """Return the policy for a goal beside what today's delays do to the same days: `cold` or `hours`."""
        if goal == "cold":
            return self.fewest_cold(float(today.hours.sum()), today.percentile(PERCENTILE))
        return self.fewest_hours(float(today.cold.sum()) * KEPT)

    def fewest_cold(self, budget: float, rate: float | None = None) -> Fitted:
        """Return the policy with the fewest cold starts within the hours of a budget.

        With `rate`, today's 75th percentile of cold-start rates, most keys are first held to a part of it.
        """
        aims = [aim * rate for aim in AIMS] if rate is not None else []
        return self._find(sorted(self._options), budget * SPENT, 0.0, aims)

    def fewest_hours(self, cold: float) -> Fitted:
        """Return the policy with the fewest hours that has at most so many cold starts."""
        return self._find(sorted(self._options), np.inf, cold, [])

    def _find(self, own: list[int], budget: float, cold: float, aims: list[float]) -> Fitted:
        rest = np.setdiff1d(np.arange(self._keys), own)
        pool = frontier(self._hours[:, rest].sum(1), self._cold[:, rest].sum(1))
        chosen, spending = self._spend(own, pool, budget, cold, aims)
        delay = float(DELAYS[pool.option[spending.step[-1]]]) if self.requests[rest].sum() else self._plan.kept
        rows = {
            number: int(choice.option[step]) for number, choice, step in zip(own, chosen, spending.step, strict=False)
        }
        gain = self._gains(rows, delay, spending.price)
        useful = [number for number in own if self._differs(number, rows[number], delay)]
        if len(useful) > self._plan.most_overrides:
            useful.sort(key=lambda number: -gain[number])
            return self._find(sorted(useful[: self._plan.most_overrides]), budget, cold, aims)
        useful.sort(key=lambda number: -gain[number])
        policy = self._policy({number: rows[number] for number in useful}, delay)
        return Fitted(policy, delay, np.array(useful, np.int64), spending.price)

    def _spend(
        self, own: list[int], pool: Frontier, budget: float, cold: float, aims: list[float]
    ) -> tuple[list[Frontier], Spending]:
        free = [self._options[number].frontier for number in own]
        share = SHARE * np.count_nonzero(self.requests) / max(len(own), 1)
        for aim in aims if share <= 1 else []:
            held = [*even(free, self.requests[own], share, aim), pool]
            if sum(chosen.hours[0] for chosen in held) <= budget:
                return held, spend(held, budget, cold)
        return [*free, pool], spend([*free, pool], budget, cold)

    def _gains(self, rows: dict[int, int], delay: float, price: float) -> dict[int, float]:
        """Cold starts that each key's own settings save beyond the pool's delay, hours counted at their price."""
        at = int(np.abs(DELAYS - delay).argmin())
        found = {}
        for number, row in rows.items():
            front = self._options[number].frontier
            step = int(np.flatnonzero(front.option == row)[0])
            saved = self._cold[at, number] - front.cold[step]
            found[number] = float(saved + price * (self._hours[at, number] - front.hours[step]))
        return found

    def _differs(self, number: int, row: int, delay: float) -> bool:
        one = self._options[number]
        return bool(one.delay[row] != delay or one.cells(row) is not None)

    def _policy(self, rows: dict[int, int], delay: float) -> KeepAlivePolicy:
        unbind = np.full(self._keys, delay - STOP_SECONDS)
        warm: dict[int, Cells] = {}
        for number, row in rows.items():
            unbind[number] = self._options[number].delay[row] - STOP_SECONDS
            cells = self._options[number].cells(row)
            if cells is not None:
                warm[number] = cells
        return KeepAlivePolicy(unbind, np.full(self._keys, STOP_SECONDS), np.zeros(self._keys), warm)

    def without_windows(self) -> DelaySearch:
        """Return the same search for delays alone."""
        return DelaySearch(self._calls, self._calls.since, self._calls.until, replace(self._plan, windows=False))
