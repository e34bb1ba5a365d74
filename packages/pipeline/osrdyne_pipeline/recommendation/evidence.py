"""Judges our policy on weeks that it has not seen, beside today's delays and the hybrid histogram policy.

Rolling: the policy of each fold is found on the weeks before it, and replayed on the fold's own weeks. Numbers are
pooled over the folds; their intervals come from drawing weeks again (bootstrap, with a fixed seed). A short history is
judged by days.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from osrdyne_pipeline.recommendation.calls import DAY, WEEK, Calls, Floats, Integers
from osrdyne_pipeline.recommendation.choices.options import DELAYS, STOP_SECONDS
from osrdyne_pipeline.recommendation.fitting import PERCENTILE, DelaySearch, FitResult, FittingPlan
from osrdyne_pipeline.recommendation.outcome import (
    CandidateResult,
    EvidenceTarget,
    PolicyResult,
    Promise,
    PromisedEffect,
    Ratio,
    RecommendationEvidence,
    TradeoffPoint,
)
from osrdyne_pipeline.recommendation.policies import KeepAlivePolicy, fixed, histogram
from osrdyne_pipeline.recommendation.replay import ReplayOutcome, replay
from osrdyne_pipeline.recommendation.warm import Cells

#: Draws of the bootstrap.
DRAWS = 1000
#: Hours count as equal up to this.
EQUAL_HOURS = 1.02
#: Targets: for the percentile relative to today's, and for our policy relative to the histogram's.
HALF = 0.5
PEER = 1.02
#: A history of fewer weeks is judged by days, because few weeks show little. One of fewer days is not judged at all.
LEAST_WEEKS = 8
LEAST_DAYS = 7
#: Most folds of a history that is judged by days.
DAY_FOLDS = 3
#: Upper 97.5 % points of Student's t by degrees of freedom, from 1 on: few days or weeks have wide intervals.
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
NORMAL = 1.96
#: Points of our trade-off curve: worker-hours relative to today's.
BUDGETS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)

LABELS = {
    "today": "today: {unbind:g} + {stop:g} s",
    "split": "the same time, unbound late: {late:g} + {short:g} s",
    "histogram": "hybrid histogram",
    "delays": "ours, delays only, at today's hours",
    "prewarms": "ours, without windows, at today's hours",
    "ours": "ours, at today's hours",
    "cheaper_delays": "ours, delays only, at today's cold starts",
    "cheaper_prewarms": "ours, without windows, at today's cold starts",
    "cheaper": "ours, at today's cold starts",
    "ours_at_histogram": "ours, at the histogram's hours",
}


#: For each goal the candidates, the most capable first. Each may set windows, and spans after the last activity.
CANDIDATES: Mapping[str, Mapping[str, tuple[bool, bool]]] = {
    "cold": {"ours": (True, True), "prewarms": (False, True), "delays": (False, False)},
    "hours": {"cheaper": (True, True), "cheaper_prewarms": (False, True), "cheaper_delays": (False, False)},
}
#: The last candidate for fewer cold starts: today's delays in sum, unbound late.
SAME_TIME = "split"


@dataclass(frozen=True)
class Split:
    """How the history is divided, in units of so many seconds; the folds are the last ones."""

    train: int
    held: int
    folds: int
    until: float
    unit: int = WEEK

    def fold(self, number: int) -> tuple[float, float, float]:
        """Return when a fold's training and its held-out days begin, and when these end."""
        until = self.until - (self.folds - 1 - number) * self.held * self.unit
        begin = until - self.held * self.unit
        return begin - self.train * self.unit, begin, until

    @property
    def unit_name(self) -> str:
        return "weeks" if self.unit == WEEK else "days"


def split(calls: Calls, train: int, held: int, folds: int) -> Split | None:
    """Divide the history as asked (in weeks), or as near to it as it is long; None where LEAST_DAYS are not there.

    Fewer than LEAST_WEEKS are divided by days: up to half to learn from, and the rest in up to DAY_FOLDS folds.
    """
    weeks, days = (int((calls.until - calls.since) // unit) for unit in (WEEK, DAY))
    if weeks >= LEAST_WEEKS:
        train = min(train, weeks // 2)
        held = min(held, (weeks - train) // 2)
        return Split(train, held, min(folds, (weeks - train) // held), calls.until)
    if days < LEAST_DAYS:
        return None
    train = min(7 * train, -(-days // 2))
    folds = min(DAY_FOLDS, folds)
    return Split(train, (days - train) // folds, folds, calls.until, DAY)


@dataclass(frozen=True)
class CandidateComparison:
    """The evidence, and what else is counted on the held-out weeks."""

    evidence: RecommendationEvidence
    today: ReplayOutcome
    #: Of each candidate, the 75th percentile relative to today's.
    rates: Mapping[str, Ratio]
    #: Cold starts that an hour saves where ours stops spending, on average over the folds.
    price: float
    fixed_curve: tuple[TradeoffPoint, ...]
    our_curve: tuple[TradeoffPoint, ...]
    #: What each candidate and today's settings do, by held-out week or day.
    units: Mapping[str, list[ReplayOutcome]] = field(default_factory=dict)


def judge(
    calls: Calls,
    parts: Split,
    plan: FittingPlan,
    today: KeepAlivePolicy,
    seed: int,
    goal: str,
    delays: tuple[float, float],
) -> CandidateComparison:
    """Replay all policies on every fold's held-out days. `advice` adds the reasons against candidates.

    `delays` are today's of keys without settings of their own: until unbound, and until stopped.
    """
    units: dict[str, list[ReplayOutcome]] = {}
    prices, promised = [], dict[str, list[float]]()
    for number in range(parts.folds):
        begin, held, until = parts.fold(number)
        found, fits, hours = _policies(calls, begin, held, plan, today, goal)
        prices.append(next(iter(fits.values())).price)
        for name, fitted in fits.items():
            promised.setdefault(name, []).append(fitted.hours / hours if hours else 1.0)
        for start in np.arange(held, until, parts.unit):
            part = calls.part(start, start + parts.unit)
            for name, policy in found.items():
                units.setdefault(name, []).append(replay(part, policy, start, start + parts.unit))
    labels = _labels(*delays, own=int(np.count_nonzero(_own(today, *delays))))
    results = {name: _result(name, label, units[name]) for name, label in labels.items() if name in units}
    # It would remove today's settings of single keys.
    late = goal == "cold" and not _own(today, *delays).any()
    names = [*CANDIDATES[goal], *([SAME_TIME] if late else [])]
    ratios = {name: _ratios(units[name], units["today"], seed) for name in names}
    candidates = tuple(
        CandidateResult(name, labels[name], float(np.mean(promised.get(name, 1.0))), cold, hours, ())
        for name, (cold, _, hours) in ratios.items()
    )
    offered = candidates[0].name
    first, last = parts.fold(0)[1], parts.until
    evidence = RecommendationEvidence(
        date(first), date(last - 1), parts.train, parts.held * parts.folds, parts.folds, tuple(results.values()),
        *ratios[offered], _targets(results), candidates, offered, parts.unit_name,
    )  # fmt: skip
    fixed_hours, fixed_cold = by_delay(calls, first, last)
    curve = zip(DELAYS.tolist(), fixed_cold.sum(1).tolist(), fixed_hours.sum(1).tolist(), strict=True)
    by_hours = sorted(
        (pooled(units[f"budget {part}"]) for part in BUDGETS), key=lambda outcome: float(outcome.hours.sum())
    )
    return CandidateComparison(
        evidence,
        pooled(units["today"]),
        {name: ratio[1] for name, ratio in ratios.items()},
        float(np.mean(prices)),
        tuple(TradeoffPoint(*point) for point in curve),
        tuple(TradeoffPoint(None, float(outcome.cold.sum()), float(outcome.hours.sum())) for outcome in by_hours),
        {name: units[name] for name in ("today", *names)},
    )


def promise(judged: CandidateComparison, name: str, own: Mapping[int, str], seed: int) -> Promise:
    """Return what a candidate is to bring: in total, and to the keys `own`, by their numbers."""
    today, ours = judged.units["today"], judged.units[name]
    before, after = pooled(today), pooled(ours)
    draws = _draws(len(ours), seed)
    numbers = list(own)
    cold = _by_key([unit.cold[numbers] for unit in ours], [unit.cold[numbers] for unit in today], draws)
    hours = _by_key([unit.hours[numbers] for unit in ours], [unit.hours[numbers] for unit in today], draws)
    chosen = next(each for each in judged.evidence.candidates if each.name == name)
    total = PromisedEffect(
        int(before.requests.sum()), int(before.cold.sum()), int(after.cold.sum()),
        float(before.hours.sum()), float(after.hours.sum()), chosen.cold, chosen.hours,
    )  # fmt: skip
    keys = {
        key: PromisedEffect(
            int(before.requests[number]), int(before.cold[number]), int(after.cold[number]),
            float(before.hours[number]), float(after.hours[number]), *ratios,
        )
        for (number, key), ratios in zip(own.items(), zip(cold, hours, strict=True), strict=True)
    }  # fmt: skip
    return Promise(total, keys)


def _by_key(ours: list[Any], today: list[Any], draws: Integers) -> list[Ratio]:
    """Return the ratio of each key, a column of each unit."""
    mine, theirs = draws @ np.stack(ours), draws @ np.stack(today)
    found = _relative(mine, theirs)
    return [_ratio(found[:, column], len(ours)) for column in range(found.shape[1])]


def by_delay(calls: Calls, since: float, until: float) -> tuple[Floats, Floats]:
    """Return worker-hours and cold starts, a row each of DELAYS, a column a key, if all keys had that delay."""
    part, keys = calls.part(since, until), len(calls.keys)
    outcomes = [replay(part, fixed(keys, delay - STOP_SECONDS, STOP_SECONDS), since, until) for delay in DELAYS]
    return np.stack([outcome.hours for outcome in outcomes]), np.stack([outcome.cold for outcome in outcomes]).astype(
        np.float64
    )


def _policies(
    calls: Calls, begin: float, until: float, plan: FittingPlan, today: KeepAlivePolicy, goal: str
) -> tuple[dict[str, KeepAlivePolicy], dict[str, FitResult], float]:
    """Return what the days before `until` make of each policy, the candidates' fits, and today's hours there."""
    keys = len(calls.keys)
    part = calls.part(begin, until)
    before = replay(part, today, begin, until)
    peer = histogram(part, begin, until)
    peer_hours = float(replay(part, peer, begin, until).hours.sum())
    search = DelaySearch(calls, begin, until, plan)
    budget = float(before.hours.sum())
    fits = {
        name: search.limited(replace(plan, windows=windows, prewarms=prewarms)).fit(before, goal)
        for name, (windows, prewarms) in CANDIDATES[goal].items()
    }
    found = {
        "today": today,
        SAME_TIME: fixed(keys, plan.kept - STOP_SECONDS, STOP_SECONDS),
        "histogram": peer,
        "ours": search.fit(before, "cold").policy,
        "cheaper": search.fit(before, "hours").policy,
        "ours_at_histogram": search.fewest_cold(peer_hours).policy,
    }
    found |= {name: fitted.policy for name, fitted in fits.items()}
    found |= {f"budget {part}": search.fewest_cold(part * budget).policy for part in BUDGETS}
    return found, fits, budget


def _own(today: KeepAlivePolicy, unbind: float, stop: float) -> Cells:
    """Return which keys have settings of their own."""
    other = (today.unbind != unbind) | (today.stop != stop)
    other[[*today.warm, *today.prewarm]] = True
    return np.asarray(other)


def _labels(unbind: float, stop: float, own: int) -> dict[str, str]:
    values = {"unbind": unbind, "stop": stop, "late": unbind + stop - STOP_SECONDS, "short": STOP_SECONDS}
    labels = {name: label.format(**values) for name, label in LABELS.items()}
    return labels | ({"today": f"{labels['today']}, others for {own} keys"} if own else {})


def pooled(weeks: list[ReplayOutcome]) -> ReplayOutcome:
    return ReplayOutcome(
        np.sum([week.requests for week in weeks], axis=0),
        np.sum([week.cold for week in weeks], axis=0),
        np.sum([week.starts for week in weeks], axis=0),
        np.sum([week.hours for week in weeks], axis=0),
        np.sum([week.lives for week in weeks], axis=0),
    )


def _result(name: str, label: str, weeks: list[ReplayOutcome]) -> PolicyResult:
    whole = pooled(weeks)
    return PolicyResult(
        name,
        label,
        int(whole.requests.sum()),
        int(whole.cold.sum()),
        int(whole.starts.sum()),
        float(whole.hours.sum()),
        whole.percentile(PERCENTILE),
        replace(whole, cold=whole.starts).percentile(PERCENTILE),
        int(np.count_nonzero(whole.requests)),
    )


def _ratios(ours: list[ReplayOutcome], today: list[ReplayOutcome], seed: int) -> tuple[Ratio, Ratio, Ratio]:
    """Return ours relative to today's: cold starts, the percentile of rates, hours."""
    draws = _draws(len(ours), seed)
    found = [_measures(ours, draws), _measures(today, draws)]
    cold, rates, hours = (_ratio(_relative(mine, theirs), len(ours)) for mine, theirs in zip(*found, strict=True))
    return cold, rates, hours


def _relative(mine: Floats, theirs: Floats) -> Floats:
    """Return one relative to the other. Where both are 0 it is 1; where only the other is 0 it is more than 1."""
    return np.divide(mine, theirs, out=np.where(mine > 0, 1.0 + mine, 1.0), where=theirs > 0)


def _draws(units: int, seed: int) -> Integers:
    """Return how often each unit is in each draw; the first has each of them once."""
    rng = np.random.default_rng(seed)
    draws = [np.bincount(rng.integers(0, units, units), minlength=units) for _ in range(DRAWS)]
    return np.concatenate([np.ones((1, units), np.int64), np.stack(draws)])


def _ratio(values: Floats, units: int) -> Ratio:
    """Return the value of all units, which comes first, with the interval of the draws, which follow."""
    # A bootstrap of few units is too narrow, by the ratio of Student's t to the normal distribution.
    wider = STUDENT[units - 2] / NORMAL * np.sqrt(units / (units - 1)) if 2 <= units <= len(STUDENT) + 1 else 1.0
    low, high = (max(0.0, float(values[0] + wider * (edge - values[0]))) for edge in _edges(values[1:]))
    return Ratio(float(values[0]), low, high)


def _edges(draws: Floats) -> list[float]:
    return [float(edge) for edge in np.quantile(draws, [0.025, 0.975])]


def _measures(weeks: list[ReplayOutcome], draws: Integers) -> tuple[Floats, Floats, Floats]:
    """Return cold starts, the percentile of rates, and hours of each draw: how often each week is in it."""
    requests, cold = np.stack([week.requests for week in weeks]), np.stack([week.cold for week in weeks])
    rates = np.empty(len(draws))
    for number, draw in enumerate(draws):
        asked = draw @ requests
        rates[number] = np.quantile((draw @ cold)[asked > 0] / asked[asked > 0], PERCENTILE) if asked.any() else 0.0
    hours = np.array([week.hours.sum() for week in weeks])
    return draws @ cold.sum(1).astype(np.float64), rates, draws @ hours


def _targets(results: dict[str, PolicyResult]) -> tuple[EvidenceTarget, ...]:
    today, ours = results["today"], results["ours"]
    peer, same = results["histogram"], results["ours_at_histogram"]
    half = _over(ours.rate_p75, today.rate_p75)
    cold, rate = _over(same.cold, peer.cold), _over(same.rate_p75, peer.rate_p75)
    equal = ours.worker_hours <= EQUAL_HOURS * today.worker_hours
    equal_peer = same.worker_hours <= EQUAL_HOURS * peer.worker_hours
    return (
        EvidenceTarget(
            "75th percentile of cold-start rates, relative to today's, at equal hours",
            HALF,
            half,
            half <= HALF and equal,
        ),
        EvidenceTarget(
            "cold starts, relative to the histogram's, at equal hours", PEER, cold, cold <= PEER and equal_peer
        ),
        EvidenceTarget(
            "75th percentile, relative to the histogram's, at equal hours", PEER, rate, rate <= PEER and equal_peer
        ),
    )


def _over(ours: float, other: float) -> float:
    return ours / other if other else float(ours > 0) + 1.0 if ours else 1.0


def date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
