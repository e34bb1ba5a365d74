"""Cold starts against worker-hours: each key's best options, and how a budget of hours is best spent on them.

Pure. Every option of a key is a point (hours, cold starts). Only those on the lower convex hull are ever worth their
hours: going along it, each further hour saves less. So the budget is spent on the steepest next step of any key, again
and again; no other choice within the same hours has fewer cold starts (the steps of one key come in their order by
themselves, because its hull is convex).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from osrdyne_pipeline.recommendation.calls import Floats, Integers


@dataclass(frozen=True)
class Frontier:
    """One key's options on the hull, the cheapest first: each step costs hours, and saves fewer cold starts an hour."""

    hours: Floats
    cold: Floats
    #: The number by which the caller knows each option.
    option: Integers

    def within(self, cold: float) -> Frontier | None:
        """Return the options with at most so many cold starts, None where there is none."""
        kept = self.cold <= cold
        return Frontier(self.hours[kept], self.cold[kept], self.option[kept]) if kept.any() else None


def frontier(hours: Floats, cold: Floats) -> Frontier:
    """Return the lower convex hull of the options, from the cheapest to the one with the fewest cold starts."""
    order = np.lexsort((cold, hours))
    kept: list[int] = []
    for index in order:
        if kept and cold[index] >= cold[kept[-1]]:
            continue
        while len(kept) > 1 and _saved(hours, cold, kept[-2], kept[-1]) <= _saved(hours, cold, kept[-1], index):
            kept.pop()
        if len(kept) == 1 and hours[index] <= hours[kept[0]]:
            kept.pop()
        kept.append(int(index))
    chosen = np.array(kept, np.int64)
    return Frontier(hours[chosen], cold[chosen], chosen)


def _saved(hours: Floats, cold: Floats, one: int, other: int) -> float:
    """Cold starts saved by each hour between two options."""
    gap = hours[other] - hours[one]
    return float((cold[one] - cold[other]) / gap) if gap > 0 else np.inf


@dataclass(frozen=True)
class BudgetChoice:
    """What was chosen within a budget."""

    #: Of each frontier, the chosen step: 0 is its cheapest.
    step: Integers
    hours: float
    cold: float
    #: Cold starts that the last hour saved; 0 where everything was affordable.
    price: float


def spend(frontiers: Sequence[Frontier], budget: float, enough: float = 0.0) -> BudgetChoice:
    """Spend `budget` hours on the fewest cold starts, or until there are no more than `enough`.

    The cheapest options are taken, even where they cost more than the budget.
    """
    step = np.zeros(len(frontiers), np.int64)
    hours = float(sum(curve.hours[0] for curve in frontiers))
    cold = float(sum(curve.cold[0] for curve in frontiers))
    owner = np.repeat(np.arange(len(frontiers)), [len(curve.hours) - 1 for curve in frontiers])
    cost = np.concatenate([np.diff(curve.hours) for curve in frontiers])
    gain = np.concatenate([-np.diff(curve.cold) for curve in frontiers])
    slope = gain / np.maximum(cost, 1e-12)
    price = 0.0
    order = np.argsort(-slope, kind="stable")
    full: set[int] = set()
    for index in order:
        number = int(owner[index])
        if cold <= enough:
            break
        if number in full:
            continue
        if hours + cost[index] > budget:
            full.add(number)
            price = max(price, float(slope[index]))
            continue
        hours += float(cost[index])
        cold -= float(gain[index])
        step[number] += 1
        if np.isinf(budget):
            price = float(slope[index])
    return BudgetChoice(step, hours, cold, price)


def even(frontiers: Sequence[Frontier], requests: Integers, share: float, rate: float) -> list[Frontier]:
    """Hold a share of the keys, those for which it is cheapest, to a cold-start rate."""
    held = [curve.within(rate * asked) for curve, asked in zip(frontiers, requests, strict=True)]
    extra = np.array(
        [
            np.inf if limited is None else limited.hours[0] - curve.hours[0]
            for curve, limited in zip(frontiers, held, strict=True)
        ]
    )
    cheapest = np.argsort(extra, kind="stable")[: int(np.ceil(share * len(frontiers)))]
    result = list(frontiers)
    for number in cheapest:
        result[number] = held[number] or frontiers[number]
    return result
