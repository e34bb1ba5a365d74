"""Judges ours on weeks that it has not seen, beside today's delays and the hybrid histogram policy.

Rolling: each fold is found on the weeks before its own and replayed on its own. Numbers are pooled over the folds;
their intervals come from drawing weeks again (bootstrap, with a fixed seed).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from osrdyne_pipeline.recommendation.calls import WEEK, Calls, Floats, Integers
from osrdyne_pipeline.recommendation.fitting import DELAYS, PERCENTILE, STOP_SECONDS, DelaySearch, FittingPlan
from osrdyne_pipeline.recommendation.outcome import (
    EvidenceTarget,
    PolicyResult,
    Ratio,
    RecommendationEvidence,
    TradeoffPoint,
)
from osrdyne_pipeline.recommendation.policies import KeepAlivePolicy, fixed, histogram
from osrdyne_pipeline.recommendation.replay import ReplayOutcome, replay

DRAWS = 1000
#: Hours count as equal up to this.
EQUAL_HOURS = 1.02
#: What is asked of the percentile beside today's, and of ours beside the histogram.
HALF = 0.5
PEER = 1.02
#: A history shorter than this is not judged.
LEAST_WEEKS = 4
#: Points of our trade-off curve: worker-hours in parts of today's.
BUDGETS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)

LABELS = {
    "today": "today: {unbind:g} + {stop:g} s",
    "split": "the same time, unbound late: {late:g} + {short:g} s",
    "histogram": "hybrid histogram",
    "delays": "ours, delays only, at today's hours",
    "ours": "ours, at today's hours",
    "cheaper": "ours, at today's cold starts",
    "ours_at_histogram": "ours, at the histogram's hours",
}


@dataclass(frozen=True)
class WeekSplit:
    """How the history is divided, in weeks; the folds are the last ones."""

    train: int
    held: int
    folds: int
    until: float

    def fold(self, number: int) -> tuple[float, float, float]:
        """Return when a fold's training and its held-out weeks begin, and when these end."""
        until = self.until - (self.folds - 1 - number) * self.held * WEEK
        begin = until - self.held * WEEK
        return begin - self.train * WEEK, begin, until


def split(calls: Calls, train: int, held: int, folds: int) -> WeekSplit | None:
    """Divide the history as asked, or as near to it as it is long; None where LEAST_WEEKS are not there."""
    weeks = int((calls.until - calls.since) // WEEK)
    if weeks < LEAST_WEEKS:
        return None
    train = min(train, weeks // 2)
    held = min(held, (weeks - train) // 2)
    return WeekSplit(train, held, min(folds, (weeks - train) // held), calls.until)


@dataclass(frozen=True)
class Judged:
    """The evidence, and what else is counted on the held-out weeks."""

    evidence: RecommendationEvidence
    today: ReplayOutcome
    #: Cold starts that an hour saves where ours stops spending, on average over the folds.
    price: float
    fixed_curve: tuple[TradeoffPoint, ...]
    our_curve: tuple[TradeoffPoint, ...]


def judge(calls: Calls, parts: WeekSplit, plan: FittingPlan, today: KeepAlivePolicy, seed: int) -> Judged:
    """Replay all policies on every fold's held-out weeks."""
    weeks: dict[str, list[ReplayOutcome]] = {}
    prices = []
    for number in range(parts.folds):
        begin, held, until = parts.fold(number)
        found, price = _policies(calls, begin, held, plan, today)
        prices.append(price)
        for start in np.arange(held, until, WEEK):
            part = calls.part(start, start + WEEK)
            for name, policy in found.items():
                weeks.setdefault(name, []).append(replay(part, policy, start, start + WEEK))
    labels = _labels(today)
    results = {name: _result(name, label, weeks[name]) for name, label in labels.items() if name in weeks}
    cold, rate, hours = _ratios(weeks["ours"], weeks["today"], seed)
    first, last = parts.fold(0)[1], parts.until
    evidence = RecommendationEvidence(
        date(first), date(last - 1), parts.train, parts.held * parts.folds, parts.folds, tuple(results.values()),
        cold, rate, hours, _targets(results),
    )  # fmt: skip
    fixed_hours, fixed_cold = by_delay(calls, first, last)
    curve = zip(DELAYS.tolist(), fixed_cold.sum(1).tolist(), fixed_hours.sum(1).tolist(), strict=True)
    along = sorted(
        (pooled(weeks[f"budget {part}"]) for part in BUDGETS), key=lambda outcome: float(outcome.hours.sum())
    )
    return Judged(
        evidence,
        pooled(weeks["today"]),
        float(np.mean(prices)),
        tuple(TradeoffPoint(*point) for point in curve),
        tuple(TradeoffPoint(None, float(outcome.cold.sum()), float(outcome.hours.sum())) for outcome in along),
    )


def by_delay(calls: Calls, since: float, until: float) -> tuple[Floats, Floats]:
    """Return worker-hours and cold starts, a row each of DELAYS, a column a key, if all keys had that delay."""
    part, keys = calls.part(since, until), len(calls.keys)
    outcomes = [replay(part, fixed(keys, delay - STOP_SECONDS, STOP_SECONDS), since, until) for delay in DELAYS]
    return np.stack([outcome.hours for outcome in outcomes]), np.stack([outcome.cold for outcome in outcomes]).astype(
        np.float64
    )


def _policies(
    calls: Calls, begin: float, until: float, plan: FittingPlan, today: KeepAlivePolicy
) -> tuple[dict[str, KeepAlivePolicy], float]:
    """Return what the weeks before `until` make of each policy, and what an hour saves ours."""
    keys = len(calls.keys)
    kept = float(today.unbind[0] + today.stop[0])
    part = calls.part(begin, until)
    before = replay(part, today, begin, until)
    peer = histogram(part, begin, until)
    peer_hours = float(replay(part, peer, begin, until).hours.sum())
    search = DelaySearch(calls, begin, until, plan)
    ours = search.fit(before, "cold")
    budget = float(before.hours.sum())
    found = {
        "today": today,
        "split": fixed(keys, kept - STOP_SECONDS, STOP_SECONDS),
        "histogram": peer,
        "ours": ours.policy,
        "cheaper": search.fit(before, "hours").policy,
        "ours_at_histogram": search.fewest_cold(peer_hours).policy,
    }
    if plan.windows:
        found["delays"] = search.without_windows().fit(before, "cold").policy
    found |= {f"budget {part}": search.fewest_cold(part * budget).policy for part in BUDGETS}
    return found, ours.price


def _labels(today: KeepAlivePolicy) -> dict[str, str]:
    unbind, stop = float(today.unbind[0]), float(today.stop[0])
    values = {"unbind": unbind, "stop": stop, "late": unbind + stop - STOP_SECONDS, "short": STOP_SECONDS}
    return {name: label.format(**values) for name, label in LABELS.items()}


def pooled(weeks: list[ReplayOutcome]) -> ReplayOutcome:
    return ReplayOutcome(
        np.sum([week.requests for week in weeks], axis=0),
        np.sum([week.cold for week in weeks], axis=0),
        np.sum([week.starts for week in weeks], axis=0),
        np.sum([week.hours for week in weeks], axis=0),
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
    """Return ours in parts of today's: cold starts, the percentile of rates, hours."""
    rng = np.random.default_rng(seed)
    weeks = len(ours)
    draws = np.stack([np.bincount(rng.integers(0, weeks, weeks), minlength=weeks) for _ in range(DRAWS)])
    draws = np.concatenate([np.ones((1, weeks), np.int64), draws])
    found = [_measures(ours, draws), _measures(today, draws)]
    return tuple(  # type: ignore[return-value]
        Ratio(float(line[0]), *(float(edge) for edge in np.quantile(line[1:], [0.025, 0.975])))
        for line in (
            np.divide(mine, theirs, out=np.ones_like(mine), where=theirs > 0)
            for mine, theirs in zip(*found, strict=True)
        )
    )


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
            "75th percentile of cold-start rates, in parts of today's, at equal hours",
            HALF,
            half,
            half <= HALF and equal,
        ),
        EvidenceTarget(
            "cold starts, in parts of the histogram's, at equal hours", PEER, cold, cold <= PEER and equal_peer
        ),
        EvidenceTarget(
            "75th percentile, in parts of the histogram's, at equal hours", PEER, rate, rate <= PEER and equal_peer
        ),
    )


def _over(ours: float, other: float) -> float:
    return ours / other if other else float(ours > 0) + 1.0 if ours else 1.0


def date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
