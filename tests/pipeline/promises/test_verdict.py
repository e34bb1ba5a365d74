"""Whether a promise was kept: the rule, beside what came and what a replay of the same calls says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from osrdyne_pipeline.promises.came import DaysSince
from osrdyne_pipeline.promises.changes import ReplayCorrection
from osrdyne_pipeline.promises.verdict import BROKEN, KEPT, NOT_ENOUGH, NOT_MADE, Review, review
from osrdyne_pipeline.recommendation.outcome import Promise, PromisedEffect, Ratio
from osrdyne_pipeline.recommendation.replay import ReplayOutcome

#: Half of the cold starts at the same hours, for two keys of which the second has settings of its own.
HALF = PromisedEffect(1000, 800, 400, 500.0, 500.0, Ratio(0.5, 0.45, 0.55), Ratio(1.0, 0.97, 1.03))
PROMISE = Promise(HALF, {"LAX": HALF})


def replayed(*cold: int, hours: float = 50.0, starts: int = 50) -> ReplayOutcome:
    each = np.array(cold)
    begun = np.full(len(cold), starts)
    return ReplayOutcome(10 * each, each, begun, np.full(len(cold), hours), begun)


def days(
    former: ReplayOutcome, promised: ReplayOutcome, *cold: float, hours: float = 50.0, number: int = 3
) -> DaysSince:
    idle = np.full(len(cold), 500)
    return DaysSince(
        number, ("BOS", "LAX"), idle, former, promised, np.array(cold, np.int64), np.full(len(cold), hours)
    )


AS_PROMISED = days(replayed(200, 200), replayed(100, 100), 100, 100)


def test_what_a_replay_of_the_promise_says_is_kept() -> None:
    found = review(PROMISE, [AS_PROMISED], ReplayCorrection())
    assert (found.verdict, found.back, found.back_keys) == (KEPT, False, ())
    assert found.total is not None
    assert found.total.cold.low < 200 < found.total.cold.high
    assert not found.total.cold.other_calls


@pytest.mark.parametrize("cold, verdict", [(100, KEPT), (130, KEPT), (190, BROKEN), (20, KEPT)])
def test_more_than_the_interval_around_it_is_broken_and_less_is_not(cold: int, verdict: str) -> None:
    promise = replace(PROMISE, keys={})
    found = review(
        promise, [replace(AS_PROMISED, cold=np.array([cold, 130 if cold == 190 else 100]))], ReplayCorrection()
    )
    assert found.verdict == verdict
    assert found.back == (verdict == BROKEN)


def test_hours_break_a_promise_too() -> None:
    found = review(PROMISE, [replace(AS_PROMISED, hours=np.array([60.0, 60.0]))], ReplayCorrection())
    assert found.verdict == BROKEN


@pytest.mark.parametrize("days", [[], [replace(AS_PROMISED, cold=np.array([999, 999]), idle=np.array([20, 20]))]])
def test_too_few_days_or_calls_are_not_enough_yet_whatever_came(days: list[DaysSince]) -> None:
    found = review(PROMISE, days, ReplayCorrection())
    assert (found.verdict, found.back, found.back_keys) == (NOT_ENOUGH, False, ())


def test_ten_times_the_calls_break_no_promise() -> None:
    found = review(PROMISE, [days(replayed(2000, 2000), replayed(1000, 1000), 1000, 1000)], ReplayCorrection())
    assert found.verdict == KEPT


def test_other_calls_that_bring_more_cold_starts_break_no_promise_and_are_reported() -> None:
    # Given calls with which the settings bring 0.9 of the cold starts of before, and not half
    found = review(PROMISE, [days(replayed(200, 200), replayed(180, 180), 185, 180)], ReplayCorrection())
    assert found.verdict == KEPT
    assert found.total is not None
    assert found.total.cold.other_calls
    assert not found.worse_than_before


def test_other_calls_with_which_the_settings_before_do_better_are_a_reason_to_go_back() -> None:
    found = review(PROMISE, [days(replayed(200, 200), replayed(300, 300), 300, 300)], ReplayCorrection())
    assert (found.verdict, found.worse_than_before, found.back) == (KEPT, True, True)


def test_settings_that_were_never_deployed_differ_from_a_broken_promise() -> None:
    found = review(PROMISE, [replace(AS_PROMISED, cold=np.array([200, 200]))], ReplayCorrection())
    assert (found.verdict, found.back, found.back_keys) == (NOT_MADE, False, ())


def test_one_key_that_breaks_its_promise_goes_back_alone() -> None:
    found = review(PROMISE, [replace(AS_PROMISED, cold=np.array([100, 290]))], ReplayCorrection())
    assert (found.verdict, found.back, found.back_keys) == (BROKEN, False, ("LAX",))


def test_many_keys_that_break_their_promise_take_all_back() -> None:
    names = tuple(f"k{number}" for number in range(9))
    # Given nine keys with settings of their own, of which some have more cold starts than promised
    for broken, back in ((2, False), (4, False), (5, True)):
        cold = np.full(9, 100)
        cold[:broken] = 290
        each = days(replayed(*[200] * 9), replayed(*[100] * 9), *cold)
        found = review(Promise(HALF, dict.fromkeys(names, HALF)), [replace(each, keys=names)], ReplayCorrection())
        assert (found.verdict, found.back, len(found.back_keys)) == (BROKEN, back, 0 if back else broken)


def test_what_was_usual_before_is_expected_after() -> None:
    # Given callers that come two at a time, and groups that live 72 s longer for each of 100 starts
    two = replace(AS_PROMISED, cold=np.array([200, 200]), hours=np.array([51.0, 51.0]))
    assert review(PROMISE, [two], ReplayCorrection(cold=2.0, start_seconds=72.0)).verdict == KEPT
    assert review(PROMISE, [replace(two, hours=np.array([60.0, 60.0]))], ReplayCorrection(2.0, 72.0)).verdict == BROKEN


def test_where_no_event_reports_groups_cold_starts_alone_are_compared() -> None:
    found = review(PROMISE, [replace(AS_PROMISED, hours=None)], ReplayCorrection())
    assert found.verdict == KEPT
    assert (
        review(PROMISE, [replace(AS_PROMISED, hours=None, cold=np.array([290, 290]))], ReplayCorrection()).verdict
        == BROKEN
    )


def test_going_back_is_compared_too_and_is_never_taken_back() -> None:
    assert review(None, [AS_PROMISED], ReplayCorrection()).verdict == KEPT
    found: Review = review(None, [replace(AS_PROMISED, cold=np.array([300, 300]))], ReplayCorrection())
    assert (found.verdict, found.back, found.back_keys) == (BROKEN, False, ())
