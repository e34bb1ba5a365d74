"""The keep-alive recommendation: what the history supports, and why it supports no more.

Reads silver requests and the classes of keys; writes nothing. Memory is bounded by `calls.MOST_STRETCHES`, by the
number of keys, and by `AdviceRequest.most_overrides`, not by the number of requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from osrdyne_pipeline.recommendation import evidence
from osrdyne_pipeline.recommendation.calls import DAY, Calls, Tables, collect
from osrdyne_pipeline.recommendation.choices import failing
from osrdyne_pipeline.recommendation.choices.options import DELAYS, STOP_SECONDS
from osrdyne_pipeline.recommendation.evidence import CANDIDATES, CandidateComparison, Split, date
from osrdyne_pipeline.recommendation.fitting import DelaySearch, FitResult, FittingPlan
from osrdyne_pipeline.recommendation.outcome import (
    CandidateResult,
    ClassAdvice,
    Promise,
    Recommendation,
    RecommendationEvidence,
    Setting,
)
from osrdyne_pipeline.recommendation.policies import KeepAlivePolicy, of_settings
from osrdyne_pipeline.recommendation.replay import replay
from osrdyne_pipeline.recommendation.warm import WarmWindow, windows
from osrdyne_pool.settings import Delays, PoolSettings
from osrdyne_pool.windows import parse_window

#: Fewer idle gaps than this in the whole history say nothing.
LEAST_GAPS = 200
#: Fewer held-out weeks than this have no interval.
LEAST_HELD = 2
#: A change may cost this much more worker time than today, when the goal is fewer cold starts, and this much more than
#: its fit promised.
MORE_HOURS = 1.05
MORE_THAN_PROMISED = 1.03
#: ... and this much more cold starts, when the goal is fewer hours.
MORE_COLD = 1.05
#: Of the keys that were left out, so many are named.
MOST_FAILING = 20
GOALS = ("cold", "hours")


@dataclass(frozen=True)
class AdviceRequest:
    """What a person chooses. Delays are today's, in seconds."""

    unbind: float = 600.0
    stop: float = 600.0
    #: Today's settings of single keys.
    overrides: Mapping[str, Delays] = field(default_factory=dict)
    #: Keys whose settings stay as they are, and of whose calls nothing is learnt.
    left: frozenset[str] = frozenset()
    #: Why nothing may be recommended yet, whatever the history supports.
    not_yet: tuple[str, ...] = ()
    #: `cold`: the fewest cold starts at today's worker-hours. `hours`: the fewest hours at today's cold starts.
    goal: str = "cold"
    most_overrides: int = 500
    #: Each fold learns from so many weeks and is judged on the next ones.
    train_weeks: int = 4
    held_weeks: int = 1
    folds: int = 8
    seed: int = 7


def recommend(known: KnownCalls, ask: AdviceRequest, pool: str) -> Recommendation:
    """Return the recommendation. Raises ValueError for another goal."""
    if ask.goal not in GOALS:
        raise ValueError(f"{ask.goal!r} is not a goal; give {' or '.join(GOALS)}")
    others = {key: delays for key, delays in ask.overrides.items() if key not in ask.left}
    found = advise(known.calls.without(ask.left), known.classes, replace(ask, overrides=others), pool)
    return replace(found, failing=known.cannot_start[:MOST_FAILING], left_out=len(known.cannot_start))


@dataclass(frozen=True)
class KnownCalls:
    """Calls of the keys whose workers can be started, the class of each key, and the keys that were left out."""

    calls: Calls
    classes: dict[str, str]
    cannot_start: tuple[str, ...]

    @classmethod
    def of(cls, tables: Tables) -> KnownCalls:
        """Return what the tables `requests`, `starts` and `key_classes` say."""
        classes = tables.table("select key, class from key_classes")
        by_key = dict(zip(*(classes.column(name).to_pylist() for name in ("key", "class")), strict=True))
        cannot_start = tuple(tables.table(failing.KEYS).column("key").to_pylist())
        return cls(collect(tables, cannot_start), by_key, cannot_start)


def advise(calls: Calls, classes: dict[str, str], ask: AdviceRequest, pool: str) -> Recommendation:
    """Return the recommendation from calls and from the class of each key."""
    parts = evidence.split(calls, ask.train_weeks, ask.held_weeks, ask.folds)
    reasons = _too_little(calls, parts)
    if reasons or parts is None:
        return _answer(calls, ask, pool, reasons)
    pool_today = PoolSettings(pool, unbind_delay=ask.unbind, stop_delay=ask.stop, overrides=ask.overrides)
    today = of_settings(calls.keys, pool_today)
    plan = FittingPlan(most_overrides=ask.most_overrides, kept=ask.unbind + ask.stop)
    delays = (ask.unbind, ask.stop)
    judged, better = _offered(evidence.judge(calls, parts, plan, today, ask.seed, ask.goal, delays), ask.goal)
    advice, offered = _classes(calls, classes, judged, parts, ask.goal), judged.evidence.offered
    if ask.not_yet or not better:
        reasons = ask.not_yet or _none_is_better(judged.evidence)
        return _answer(calls, ask, pool, reasons, judged=judged, classes=advice)
    if offered == evidence.SAME_TIME:
        return _answer(calls, ask, pool, (), judged=judged, classes=advice, delay=ask.unbind + ask.stop)
    since = calls.until - parts.train * parts.unit
    windows_too, prewarms = CANDIDATES[ask.goal][offered]
    search = DelaySearch(calls, since, calls.until, replace(plan, windows=windows_too, prewarms=prewarms))
    before = replay(calls.part(since, calls.until), today, since, calls.until)
    fitted = search.fit(before, ask.goal)
    settings = _settings(calls, fitted, today, since, search.behaviours(), ask.overrides)
    return _answer(calls, ask, pool, (), judged=judged, classes=advice, delay=fitted.delay, settings=settings)


def _offered(judged: CandidateComparison, goal: str) -> tuple[CandidateComparison, bool]:
    """Choose the candidate to offer, and say whether it is better than today.

    That is the first which is better and keeps its promise, or the first which is better, or else the first of all.
    """
    found = judged.evidence
    better = [each.name for each in found.candidates if not _against(each, found, goal)]
    kept = [each.name for each in found.candidates if each.name in better and not _broken(each, found)]
    name = (kept or better or [found.candidates[0].name])[0]
    candidates = tuple(
        replace(each, reasons=(*_against(each, found, goal), *_broken(each, found))) for each in found.candidates
    )
    chosen = next(each for each in candidates if each.name == name)
    shown = replace(
        found, candidates=candidates, offered=name, cold=chosen.cold, rate=judged.rates[name], hours=chosen.hours
    )
    return replace(judged, evidence=shown), bool(better)


def _none_is_better(found: RecommendationEvidence) -> tuple[str, ...]:
    return tuple(f"{each.label}: {'; '.join(each.reasons)}" for each in found.candidates)


def _too_little(calls: Calls, parts: Split | None) -> tuple[str, ...]:
    found = []
    days = int((calls.until - calls.since) // DAY)
    if parts is None:
        found.append(
            f"there are {days} whole days of history; {evidence.LEAST_DAYS} are needed, to learn from the first half "
            "and judge on the second"
        )
    gaps = int(np.count_nonzero(np.isfinite(calls.before)))
    if gaps < LEAST_GAPS:
        found.append(f"there are {gaps} idle gaps in it; {LEAST_GAPS} are needed to distinguish a delay from chance")
    return tuple(found)


def _against(one: CandidateResult, found: RecommendationEvidence, goal: str) -> tuple[str, ...]:
    """Why the replay on held-out weeks or days does not support a candidate."""
    reasons, held = [], f"on {found.weeks} held-out {found.unit}"
    goal_ratio, goal_name = (one.cold, "cold starts") if goal == "cold" else (one.hours, "worker-hours")
    cost, cost_name, most = (
        (one.hours, "worker-hours", MORE_HOURS) if goal == "cold" else (one.cold, "cold starts", MORE_COLD)
    )
    if found.weeks < LEAST_HELD:
        reasons.append(f"{held} there is no spread; {LEAST_HELD} are needed to distinguish a change from chance")
    if goal_ratio.high >= 1:
        reasons.append(
            f"{held} {goal_name} are {goal_ratio.value:.2f} of today's, with 95 % confidence "
            f"{goal_ratio.low:.2f} to {goal_ratio.high:.2f}: "
            + ("that may be chance" if goal_ratio.value <= 1 else "that is worse")
        )
    if cost.value > most:
        reasons.append(f"{held} it takes {cost.value:.2f} times today's {cost_name}")
    return tuple(reasons)


def _broken(one: CandidateResult, found: RecommendationEvidence) -> tuple[str, ...]:
    """What a candidate promised and did not keep."""
    if one.hours.value <= MORE_THAN_PROMISED * one.promised:
        return ()
    held = f"on {found.weeks} held-out {found.unit}"
    return (f"{held} it takes {one.hours.value:.2f} times today's worker-hours, not {one.promised:.2f}",)


def _settings(
    calls: Calls,
    fitted: FitResult,
    today: KeepAlivePolicy,
    since: float,
    behaviours: Mapping[int, str],
    own: Mapping[str, Delays],
) -> tuple[Setting, ...]:
    """Settings of single keys, those that gain most first; numbers are of the weeks that they were found on.

    They are chosen by what they do on days that they were not learnt from. Where they improve nothing here, a key keeps
    the settings that it has today, or gets none.
    """
    part = calls.part(since, calls.until)
    before = replay(part, today, since, calls.until)
    after = replay(part, fitted.policy, since, calls.until)
    found = (
        Setting(
            calls.keys[number],
            float(fitted.policy.unbind[number]),
            float(fitted.policy.stop[number]),
            windows(fitted.policy.warm[number]) if number in fitted.policy.warm else (),
            int(before.requests[number]),
            int(before.cold[number]),
            int(after.cold[number]),
            float(before.hours[number]),
            float(after.hours[number]),
            tuple((float(begin), float(end)) for begin, end in fitted.policy.prewarm.get(number, ())),
            behaviours[number],
        )
        for number in fitted.overrides.tolist()
    )
    return tuple(
        each if _improves(each) else _as_today(each, own[each.key])
        for each in found
        if _improves(each) or each.key in own
    )


def _improves(one: Setting) -> bool:
    return one.cold_after < one.cold_before or one.hours_after < one.hours_before


def _as_today(one: Setting, today: Delays) -> Setting:
    return replace(
        one,
        unbind_delay=today.unbind_delay,
        stop_delay=today.stop_delay,
        warm=tuple(WarmWindow(each.days, each.begin, each.end) for each in map(parse_window, today.warm)),
        prewarm=today.prewarm,
        cold_after=one.cold_before,
        hours_after=one.hours_before,
    )


def _classes(
    calls: Calls, classes: dict[str, str], judged: CandidateComparison, parts: Split, goal: str
) -> tuple[ClassAdvice, ...]:
    """One delay a class: the one that is best at the price of a cold start that ours pays, found before the held-out
    weeks and counted on them. A class that is not better so on them is left out.
    """
    names = np.array([classes.get(key, "rare") for key in calls.keys])
    begin, held, _ = parts.fold(0)
    search_hours, search_cold = evidence.by_delay(calls, begin, held)
    hours, cold = evidence.by_delay(calls, held, parts.until)
    found = []
    for name in sorted(set(names.tolist())):
        mine = names == name
        cost = search_cold[:, mine].sum(1) + judged.price * search_hours[:, mine].sum(1)
        best = int(cost.argmin())
        found.append(
            ClassAdvice(
                name,
                int(np.count_nonzero(judged.today.requests[mine])),
                int(judged.today.requests[mine].sum()),
                float(DELAYS[best]),
                int(judged.today.cold[mine].sum()),
                int(cold[best, mine].sum()),
                float(judged.today.hours[mine].sum()),
                float(hours[best, mine].sum()),
            )
        )
    return tuple(advice for advice in found if _helps(advice, goal))


def _helps(advice: ClassAdvice, goal: str) -> bool:
    """Whether a class has less of what was to get less, and not much more of the other."""
    cold, cold_before = advice.cold_after, advice.cold_before
    hours, hours_before = advice.hours_after, advice.hours_before
    if goal == "cold":
        return cold < cold_before and hours <= MORE_HOURS * hours_before
    return hours < hours_before and cold <= MORE_COLD * cold_before


def _answer(
    calls: Calls,
    ask: AdviceRequest,
    pool: str,
    reasons: tuple[str, ...],
    *,
    judged: CandidateComparison | None = None,
    classes: tuple[ClassAdvice, ...] = (),
    delay: float | None = None,
    settings: tuple[Setting, ...] = (),
) -> Recommendation:
    return Recommendation(
        pool=pool,
        recommended=not reasons,
        reasons=reasons,
        goal=ask.goal,
        since=date(calls.since),
        until=date(max(calls.since, calls.until - 1)),
        days=int((calls.until - calls.since) // DAY),
        keys=len(calls.keys),
        requests=int(calls.requests.sum()),
        shortened=calls.shortened,
        unbind_before=ask.unbind,
        stop_before=ask.stop,
        unbind_delay=ask.unbind if delay is None else delay - STOP_SECONDS,
        stop_delay=ask.stop if delay is None else STOP_SECONDS,
        overrides=settings,
        classes=classes,
        fixed_curve=judged.fixed_curve if judged else (),
        our_curve=judged.our_curve if judged else (),
        evidence=judged.evidence if judged else None,
        promise=_promised(calls, judged, settings, ask.seed) if judged and not reasons else None,
    )


def _promised(calls: Calls, judged: CandidateComparison, settings: tuple[Setting, ...], seed: int) -> Promise:
    own = {each.key for each in settings}
    return evidence.promise(
        judged, judged.evidence.offered, {number: key for number, key in enumerate(calls.keys) if key in own}, seed
    )
