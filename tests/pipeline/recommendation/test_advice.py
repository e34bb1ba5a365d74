"""The whole recommendation: on a history with a pattern, on real flights, and where nothing can be said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from osrdyne_pipeline.recommendation.advice import AdviceRequest, _broken, _offered, advise
from osrdyne_pipeline.recommendation.calls import DAY, WEEK
from osrdyne_pipeline.recommendation.evidence import CANDIDATES, CandidateComparison, _ratios
from osrdyne_pipeline.recommendation.fitting import DelaySearch, FittingPlan
from osrdyne_pipeline.recommendation.outcome import Ratio
from osrdyne_pipeline.recommendation.policies import fixed
from osrdyne_pipeline.recommendation.replay import ReplayOutcome, replay
from osrdyne_pipeline.recommendation.text import render
from tests.pipeline.recommendation.histories import MONDAY, by_chance, calls, flights

HOUR = 3600.0


def daily(hour: float, weeks: int) -> list[tuple[float, float]]:
    """A request each day at this hour."""
    return [(day * DAY + hour * HOUR, day * DAY + hour * HOUR + 5) for day in range(weeks * 7)]


def test_keys_called_at_the_same_time_each_day_get_windows_and_are_cold_no_more() -> None:
    # Given twelve keys that are called once a day, and one that is called every 50 minutes
    history = {f"k{number:02}": daily(number + 6.1, 6) for number in range(12)}
    history["often"] = [(at, at + 5) for number in range(6 * 7 * 28) if (at := number * 3000.0) < 6 * WEEK]
    found = advise(calls(history, 6), dict.fromkeys(history, "steady"), AdviceRequest(), "core")
    assert found.recommended
    assert found.evidence is not None
    today, ours = found.evidence.result("today"), found.evidence.result("ours")
    # Then on days that it has not seen, none of the twelve is cold, and it takes no more hours
    assert today.rate_p75 == 1.0
    assert ours.rate_p75 == 0.0
    assert ours.worker_hours <= today.worker_hours
    assert {override.key for override in found.overrides} >= {f"k{number:02}" for number in range(12)}
    # And they are let go soon after their call, and started again shortly before the next one
    first = next(override for override in found.overrides if override.key == "k00")
    assert (first.behaviour, first.unbind_delay) == ("regular", 60.0)
    (begin, end) = first.prewarm[0]
    assert begin < DAY - 5 < end < begin + 600
    assert "recommended: unbind delay 10 min ->" in render(found)
    assert "'k00' (regular): keep 1.25 min, again" in render(found)
    # And delays alone do that for none of them
    assert found.evidence.result("delays").rate_p75 == 1.0


@pytest.mark.parametrize("goal", ["cold", "hours"])
def test_one_delay_is_named_for_no_class_that_it_makes_worse(goal: str) -> None:
    named = 0
    for seed in range(4):
        history = calls(by_chance(seed, keys=9, days=56), 8)
        classes = {key: ("heavy", "steady", "rare")[number % 3] for number, key in enumerate(history.keys)}
        for advice in advise(history, classes, AdviceRequest(goal=goal), "core").classes:
            named += 1
            cold, hours = advice.cold_after / advice.cold_before, advice.hours_after / advice.hours_before
            less, more = (cold, hours) if goal == "cold" else (hours, cold)
            assert less < 1, advice
            assert more <= 1.05, advice
    assert named


def test_the_same_question_has_the_same_answer() -> None:
    history = calls({f"k{number}": daily(number + 0.5, 5) for number in range(8)}, 5)
    assert advise(history, {}, AdviceRequest(), "core") == advise(history, {}, AdviceRequest(), "core")


def by_day_of_the_week(weeks: int, keys: int = 12) -> dict[str, list[tuple[float, float]]]:
    """Keys that people call at some hours of working days, a few minutes early or late, and one all the time."""
    rng = np.random.default_rng(3)
    history = {}
    for number in range(keys):
        days = [day for day in range(weeks * 7) if day % 7 < 5]
        times = [day * DAY + (6 + number % 12) * HOUR + float(rng.normal(0, 200)) for day in days for _ in range(3)]
        history[f"k{number:02}"] = [(time, time + 5) for time in sorted(times)]
    history["often"] = [(at, at + 5) for number in range(weeks * 7 * 28) if (at := number * 3000.0) < weeks * WEEK]
    return history


@pytest.mark.parametrize("days", [7, 21])
def test_a_history_of_some_days_is_judged_by_days(days: int) -> None:
    whole = calls(by_day_of_the_week(4), 4)
    found = advise(whole.part(whole.since, whole.since + days * DAY), {}, AdviceRequest(), "core")
    assert found.evidence is not None
    assert found.evidence.unit == "days"
    assert found.evidence.weeks >= 3
    assert f"{found.evidence.weeks} days not learnt from" in render(found)


def test_more_history_has_narrower_intervals() -> None:
    whole = calls(by_day_of_the_week(8, keys=6), 8)
    widths = []
    for days in (7, 21, 56):
        found = advise(whole.part(whole.since, whole.since + days * DAY), {}, AdviceRequest(), "core")
        assert found.evidence is not None
        assert found.evidence.cold.low <= found.evidence.cold.value <= found.evidence.cold.high
        widths.append(found.evidence.cold.high - found.evidence.cold.low)
    assert widths == sorted(widths, reverse=True)


def test_where_one_candidate_breaks_its_promise_the_next_is_offered() -> None:
    # Given timers whose periods grow longer all the time: spans of the past never meet the next call
    history = {}
    for number in range(12):
        gaps = 3000.0 * 1.004 ** np.arange(600) * (1 + number / 40)
        begins = np.cumsum(gaps)
        history[f"k{number:02}"] = [(begin, begin + 5) for begin in begins.tolist() if begin < 6 * WEEK - 10]
    history["often"] = [(at, at + 5) for number in range(6 * 7 * 90) if (at := number * 960.0) < 6 * WEEK]
    found = advise(calls(history, 6), {}, AdviceRequest(), "core")
    assert found.evidence is not None
    failed = [candidate for candidate in found.evidence.candidates if candidate.reasons]
    assert "ours" in [policy.name for policy in failed]
    # Then what is offered failed nothing, and is as late in the list as needed
    assert found.recommended
    assert failed[0].reasons[0] in render(found)
    names = [candidate.name for candidate in found.evidence.candidates]
    assert names.index(found.evidence.offered) == len(failed)


def test_where_all_candidates_fail_each_says_by_how_much() -> None:
    history = calls({"a": [(at * 300.0, at * 300.0 + 5) for at in range(int(5 * WEEK / 300))]}, 5)
    found = advise(history, {}, AdviceRequest(), "core")
    assert len(found.reasons) == 4
    assert all("of today's, with 95 % confidence" in reason for reason in found.reasons)


@pytest.mark.parametrize("days, problem", [(6, "6 whole days of history; 7 are needed"), (28, "idle gaps in it; 200")])
def test_a_history_too_short_is_given_as_the_reason(days: int, problem: str) -> None:
    found = advise(calls({"a": daily(6, 4)}, days / 7), {}, AdviceRequest(), "core")
    assert not found.recommended
    assert any(problem in reason for reason in found.reasons)
    assert (found.unbind_delay, found.stop_delay, found.overrides) == (600.0, 600.0, ())
    assert "no recommendation:" in render(found)


def test_no_requests_at_all_is_not_an_error() -> None:
    assert not advise(calls({}, 0), {}, AdviceRequest(), "core").recommended


def test_where_nothing_is_cold_there_is_nothing_to_recommend() -> None:
    history = calls({"a": [(at * 300.0, at * 300.0 + 5) for at in range(int(5 * WEEK / 300))]}, 5)
    found = advise(history, {}, AdviceRequest(), "core")
    assert not found.recommended
    assert any("may be chance" in reason for reason in found.reasons)


def test_most_keys_are_not_spared_cold_starts_at_the_cost_of_many_more_of_the_others() -> None:
    # Given keys called a few times a day by chance, and as many that are called all the time
    history = {}
    for number in range(28):
        gaps = np.random.default_rng(number).exponential(6 * HOUR if number < 16 else 500.0, 5000)
        history[f"k{number:02}"] = [(at, at + 5) for at in np.cumsum(gaps).tolist() if at < 2 * WEEK - 10]
    known = calls(history, 2)
    search = DelaySearch(known, known.since, known.until, FittingPlan())
    today = replay(known, fixed(28, 600, 600), known.since, known.until)
    cold = [
        replay(known, fitted.policy, known.since, known.until).cold.sum()
        for fitted in (search.fit(today, "cold"), search.fewest_cold(float(today.hours.sum())))
    ]
    # Then those that are held to a rate do not take the hours of all others
    assert cold[0] <= 1.7 * cold[1]


def test_a_key_of_which_nothing_is_known_is_kept_as_long_as_today() -> None:
    # Given a key with few calls, for which no hours are left
    known = calls({"a": daily(6, 4), "once": [(DAY, DAY + 5), (9 * DAY, 9 * DAY + 5)]}, 4)
    search = DelaySearch(known, known.since, known.until, FittingPlan())
    assert search.fewest_cold(0.1).delay == 1200.0


def test_a_candidate_that_keeps_its_promise_is_offered_before_one_that_breaks_it() -> None:
    found = advise(calls({f"k{number}": daily(number + 0.5, 5) for number in range(8)}, 5), {}, AdviceRequest(), "core")
    assert found.evidence is not None
    one = replace(found.evidence.candidates[0], hours=Ratio(1.0, 0.9, 1.1), cold=Ratio(0.5, 0.4, 0.6))
    assert _broken(replace(one, promised=0.98), found.evidence) == ()
    (reason,) = _broken(replace(one, promised=0.96), found.evidence)
    assert "it takes 1.00 times today's worker-hours, not 0.96" in reason
    # Given one that is better and breaks its promise, one that is better and keeps it, and one that is worse
    broken, kept = replace(one, name="ours", promised=0.9), replace(one, name="prewarms", promised=1.0)
    worse = replace(one, name="delays", cold=Ratio(1.2, 1.1, 1.3))
    ratio = Ratio(1.0, 1.0, 1.0)
    judged = CandidateComparison(
        found.evidence,
        ReplayOutcome(np.array([9]), np.array([1]), np.array([1]), np.array([1.0]), np.array([1])),
        dict.fromkeys(CANDIDATES["cold"], ratio),
        1.0,
        (),
        (),
    )
    for candidates, name, better in (
        ((broken, kept, worse), "prewarms", True),
        ((broken, worse), "ours", True),
        ((worse,), "delays", False),
    ):
        shown, found_better = _offered(replace(judged, evidence=replace(found.evidence, candidates=candidates)), "cold")
        assert (shown.evidence.offered, found_better) == (name, better)


def test_the_interval_of_three_days_is_much_wider_than_that_of_twelve() -> None:
    days = [
        ReplayOutcome(np.array([100]), np.array([cold]), np.array([cold]), np.array([10.0]), np.array([cold]))
        for cold in (20, 30, 40)
    ]
    today = [replace(day, cold=np.array([90])) for day in days]
    few, many = _ratios(days, today, 1)[0], _ratios(4 * days, 4 * today, 1)[0]
    assert few.value == pytest.approx(many.value) == pytest.approx(1 / 3)
    assert few.high - few.low > 3 * (many.high - many.low)


def test_single_keys_with_settings_are_as_many_as_asked_for() -> None:
    history = calls({f"k{number}": daily(number + 0.5, 4) for number in range(12)}, 4)
    search = DelaySearch(history, history.since, history.until, FittingPlan(most_overrides=3))
    today = replay(history, fixed(12, 600, 600), history.since, history.until)
    assert len(search.fit(today, "cold").overrides) == 3


def test_on_real_flights_ours_has_fewer_cold_starts_at_todays_hours() -> None:
    # Given four weeks of flights to every fifth destination, of which the last two are judged
    found = advise(flights(MONDAY, 4, every=5), {}, AdviceRequest(folds=1), "airports")
    assert found.evidence is not None
    today, ours = found.evidence.result("today"), found.evidence.result("ours")
    assert found.evidence.cold.high < 1
    assert ours.cold < 0.8 * today.cold
    assert ours.worker_hours <= 1.05 * today.worker_hours
