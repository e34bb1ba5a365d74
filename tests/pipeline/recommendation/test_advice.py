"""The whole recommendation: on a history with a pattern, on real flights, and where nothing can be said."""

from __future__ import annotations

import pytest

from osrdyne_pipeline.recommendation.advice import AdviceRequest, advise
from osrdyne_pipeline.recommendation.calls import DAY, WEEK
from osrdyne_pipeline.recommendation.fitting import DelaySearch, FittingPlan
from osrdyne_pipeline.recommendation.policies import fixed
from osrdyne_pipeline.recommendation.replay import replay
from osrdyne_pipeline.recommendation.text import render
from tests.pipeline.recommendation.histories import MONDAY, calls, flights

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
    assert {one.key for one in found.overrides} >= {f"k{number:02}" for number in range(12)}
    first = next(one for one in found.overrides if one.key == "k00")
    assert [one.text() for one in first.warm] == ["mon,tue,wed,thu,fri,sat,sun 06:00-06:15"]
    assert "recommended: unbind delay 10 min ->" in render(found)
    # And delays alone do that for none of them
    assert found.evidence.result("delays").rate_p75 == 1.0


def test_the_same_question_has_the_same_answer() -> None:
    history = calls({f"k{number}": daily(number + 0.5, 5) for number in range(8)}, 5)
    assert advise(history, {}, AdviceRequest(), "core") == advise(history, {}, AdviceRequest(), "core")


@pytest.mark.parametrize(
    "weeks, problem", [(3, "21 whole days of history; 28 are needed"), (4, "idle gaps in it; 200")]
)
def test_a_history_too_short_is_given_as_the_reason(weeks: int, problem: str) -> None:
    found = advise(calls({"a": daily(6, weeks)}, weeks), {}, AdviceRequest(), "core")
    assert not found.recommended
    assert any(problem in one for one in found.reasons)
    assert (found.unbind_delay, found.stop_delay, found.overrides) == (600.0, 600.0, ())
    assert "no recommendation:" in render(found)


def test_no_requests_at_all_is_not_an_error() -> None:
    assert not advise(calls({}, 0), {}, AdviceRequest(), "core").recommended


def test_where_nothing_is_cold_there_is_nothing_to_recommend() -> None:
    history = calls({"a": [(at * 300.0, at * 300.0 + 5) for at in range(int(5 * WEEK / 300))]}, 5)
    found = advise(history, {}, AdviceRequest(), "core")
    assert not found.recommended
    assert any("may be chance" in one for one in found.reasons)


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
