"""Over random histories, each advice improves what it says it improves, by a replay in plain Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from osrdyne_pipeline.recommendation import evidence
from osrdyne_pipeline.recommendation.advice import MORE_COLD, MORE_HOURS, AdviceRequest, advise
from osrdyne_pipeline.recommendation.calls import DAY, Calls
from osrdyne_pipeline.recommendation.choices.options import STOP_SECONDS
from osrdyne_pipeline.recommendation.fitting import FittingPlan
from osrdyne_pipeline.recommendation.outcome import Recommendation
from osrdyne_pipeline.recommendation.policies import KeepAlivePolicy, fixed, of_settings
from osrdyne_pipeline.recommendation.warm import CELL_SECONDS, cells_of
from osrdyne_pipeline.report import advice as reported
from osrdyne_pipeline.report.evidence import evidence as reported_evidence
from osrdyne_pool.settings import Delays, PoolSettings
from testbed.suite import examples
from tests.pipeline.recommendation.histories import calls
from tests.pipeline.report import samples

MINUTE, HOUR = 60.0, 3600.0
#: How a key is called: by a timer, by chance, in bursts, at an hour of the day; or by a timer that changes its period.
KINDS = ("timer", "chance", "bursts", "daily", "changing")
Requests = list[tuple[float, float]]


def called(kind: str, gap: float, seed: int, days: int) -> Requests:
    """The requests of one key, with about `gap` seconds between them, or between bursts."""
    rng, end = np.random.default_rng(seed), days * DAY - HOUR
    many = int(end / gap) + 2
    if kind == "timer":
        times = np.cumsum(np.full(many, gap)) + rng.uniform(0, 0.05 * gap, many)
    elif kind == "chance":
        times = np.cumsum(rng.exponential(gap, many))
    elif kind == "bursts":
        times = np.concatenate(
            [at + np.cumsum(rng.exponential(90, 6)) for at in np.cumsum(rng.exponential(8 * gap, many // 8 + 1))]
        )
    elif kind == "daily":
        times = np.concatenate([day * DAY + 8 * HOUR + rng.normal(0, gap / 4, 3) for day in range(days)])
    else:
        times = np.cumsum(np.where(np.arange(many) < many // 2, gap, 0.6 * gap))
    return [(float(time), float(time) + 5) for time in np.unique(np.round(times)) if 0 <= time < end]


def replayed(found: Calls, number: int, policy: KeepAlivePolicy, since: float, until: float) -> tuple[int, float]:
    """Cold starts and hours of one key, stretch by stretch."""
    unbind, stop = float(policy.unbind[number]), float(policy.stop[number])
    spans = policy.prewarm.get(number, np.empty((0, 2))).tolist()
    cells, cold = policy.warm.get(number), 0
    up: list[tuple[float, float]] = []
    part = found.part(since, until)
    columns = [column[part.key == number].tolist() for column in (part.begin, part.end, part.before, part.after)]
    for begin, end, before, after in zip(*columns, strict=True):
        idle = begin - before
        if since <= begin < until:
            bound = idle < unbind or any(low <= idle < high for low, high in spans)
            cold += not (bound or (cells is not None and bool(cells[cells_of(np.array([begin]))[0]])))
        up += [(begin, end), (end, min(end + unbind + stop, after))]
        up += [(min(end + low, after), min(end + high + stop, after)) for low, high in spans]
    if cells is not None:
        starts = np.arange((since - stop) // CELL_SECONDS, until // CELL_SECONDS + 1) * CELL_SECONDS
        on = starts[cells[cells_of(starts)]]
        # The first may have begun before, and its stop delay still counts.
        up += [(max(float(at), since - stop), min(float(at) + CELL_SECONDS, until) + stop) for at in on]
    seconds, reach = 0.0, since
    for low, high in sorted((max(low, since), min(high, until)) for low, high in up):
        seconds += max(0.0, high - max(low, reach))
        reach = max(reach, high)
    return cold, seconds / HOUR


def whole(found: Calls, policy: KeepAlivePolicy, since: float, until: float) -> tuple[int, float]:
    each = [replayed(found, number, policy, since, until) for number in range(len(found.keys))]
    return sum(cold for cold, _ in each), sum(hours for _, hours in each)


def todays(found: Calls, ask: AdviceRequest) -> KeepAlivePolicy:
    return of_settings(found.keys, PoolSettings("core", overrides=ask.overrides))


def held_out(found: Calls, ask: AdviceRequest, name: str) -> tuple[int, float]:
    """Cold starts and hours of a policy on the held-out days, each found on the days before."""
    parts = evidence.split(found, ask.train_weeks, ask.held_weeks, ask.folds)
    assert parts is not None
    today, cold, hours = todays(found, ask), 0, 0.0
    for number in range(parts.folds):
        begin, held, until = parts.fold(number)
        policy = evidence._policies(found, begin, held, FittingPlan(), today, ask.goal)[0][name]
        one = whole(found, policy, held, until)
        cold, hours = cold + one[0], hours + one[1]
    return cold, hours


def check_offer(found: Calls, ask: AdviceRequest, said: Recommendation) -> None:
    """What is offered does better on days that it was not found on, and as its numbers say."""
    assert said.evidence is not None
    before, after = said.evidence.result("today"), said.evidence.result(said.evidence.offered)
    cold, hours = held_out(found, ask, said.evidence.offered)
    assert cold == after.cold
    assert hours == pytest.approx(after.worker_hours)
    if ask.goal == "cold":
        assert cold < before.cold
        assert hours <= MORE_HOURS * before.worker_hours
    else:
        assert hours < before.worker_hours
        assert cold <= MORE_COLD * before.cold


def check_keys(found: Calls, ask: AdviceRequest, said: Recommendation) -> None:
    """Settings of a key have fewer cold starts or fewer hours than today's, as their numbers say; or are today's."""
    assert said.evidence is not None
    unit = DAY if said.evidence.unit == "days" else 7 * DAY
    since = found.until - said.evidence.train_weeks * unit
    overrides = {
        said_of.key: Delays(
            said_of.unbind_delay, said_of.stop_delay, tuple(window.text() for window in said_of.warm), said_of.prewarm
        )
        for said_of in said.overrides
    }
    policy = of_settings(found.keys, PoolSettings("core", overrides=overrides))
    today = todays(found, ask)
    for said_of in said.overrides:
        number = found.keys.index(said_of.key)
        before, after = (replayed(found, number, each, since, found.until) for each in (today, policy))
        assert (before[0], after[0]) == (said_of.cold_before, said_of.cold_after)
        assert [before[1], after[1]] == pytest.approx([said_of.hours_before, said_of.hours_after])
        if overrides[said_of.key] != ask.overrides.get(said_of.key):
            assert said_of.cold_after < said_of.cold_before or said_of.hours_after < said_of.hours_before, said_of


def check_classes(found: Calls, ask: AdviceRequest, said: Recommendation, classes: dict[str, str]) -> None:
    """One delay for a class does better on the held-out days, as its numbers say."""
    parts = evidence.split(found, ask.train_weeks, ask.held_weeks, ask.folds)
    assert parts is not None
    for said_of in said.classes:
        numbers = [number for number, key in enumerate(found.keys) if classes[key] == said_of.name]
        policy = fixed(len(found.keys), said_of.delay - STOP_SECONDS, STOP_SECONDS)
        each = [replayed(found, number, policy, parts.fold(0)[1], parts.until) for number in numbers]
        cold, hours = sum(cold for cold, _ in each), sum(hours for _, hours in each)
        assert cold == said_of.cold_after
        assert hours == pytest.approx(said_of.hours_after)
        less = (cold, said_of.cold_before) if ask.goal == "cold" else (hours, said_of.hours_before)
        assert less[0] < less[1]


def check_report(said: Recommendation) -> None:
    """The first step of the report says what changes, and whether that saves or takes worker time."""
    shown = replace(samples.full(), evidence=reported_evidence(said.to_json()), review=None)
    steps = [step for step in reported.next_steps(shown) if step.what.startswith(("Review", "Keep"))]
    assert [step.what.startswith("Review") for step in steps] == [said.recommended]
    if said.recommended and said.evidence is not None:
        before, after = said.evidence.result("today"), said.evidence.result(said.evidence.offered)
        saved = before.worker_hours - after.worker_hours
        assert ("That saves" in steps[0].why) == (saved >= 0.01)
        assert ("That takes" in steps[0].why) == (saved <= -0.01)


#: Settings that some keys have today: short and long delays, spans, and windows.
OWN = (
    Delays(120.0, 60.0),
    Delays(4 * HOUR, 600.0),
    Delays(60.0, 15.0, prewarm=((2700.0, 3900.0), (5400.0, 7500.0))),
    Delays(180.0, 15.0, warm=("mon,tue,wed,thu,fri,sat,sun 07:30-09:00",)),
)
KEY = st.tuples(st.sampled_from(KINDS), st.floats(8 * MINUTE, 6 * HOUR), st.integers(0, 2**16))


# Examples take long to shrink, so one that fails is shown as it was found.
@settings(max_examples=examples(40), phases=[Phase.generate])
@given(
    st.lists(KEY, min_size=2, max_size=6),
    st.integers(7, 12),
    st.sampled_from(["cold", "hours"]),
    st.dictionaries(st.sampled_from(["k0", "k1", "k2", "k3"]), st.sampled_from(OWN), max_size=3),
)
def test_each_advice_improves_what_it_says(
    keys: list[tuple[str, float, int]], days: int, goal: str, own: dict[str, Delays]
) -> None:
    history = {f"k{number}": called(*key, days) for number, key in enumerate(keys)}
    found = calls(history, days / 7)
    classes = {key: ("heavy", "steady", "rare")[number % 3] for number, key in enumerate(found.keys)}
    ask = AdviceRequest(goal=goal, overrides=own)
    with pytest.MonkeyPatch.context() as patched:
        # What is drawn decides how wide the intervals are, and nothing else here.
        patched.setattr(evidence, "DRAWS", 60)
        said = advise(found, classes, ask, "core")
        if said.recommended:
            check_offer(found, ask, said)
            check_keys(found, ask, said)
            assert said.promise is not None
            assert set(said.promise.keys) == {said_of.key for said_of in said.overrides}
        if said.classes:
            check_classes(found, ask, said, classes)
        if said.evidence is not None:
            check_report(said)
