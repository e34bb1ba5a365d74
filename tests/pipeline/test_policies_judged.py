"""The judge of policies: traces of the published shape, and peers that do by hand what their papers say."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.policies import judge, spes
from benchmarks.policies.histogram import hybrid_histogram
from benchmarks.policies.outcome import KeepTimes, replayed
from benchmarks.policies.traces import Shape, make
from osrdyne_pipeline.recommendation.calls import DAY, WEEK
from osrdyne_pipeline.recommendation.policies import KeepAlivePolicy
from osrdyne_pipeline.recommendation.replay import replay
from tests.pipeline.recommendation.histories import by_chance, calls

MINUTE = 60.0
SMALL = Shape(keys=120, days=15)


def every(minutes: float, days: float) -> list[tuple[float, float]]:
    return [(at, at + 1) for at in np.arange(0.0, days * DAY, minutes * MINUTE).tolist()]


def test_a_seed_always_gives_the_same_trace_and_another_one_another() -> None:
    one, again, other = make(1, SMALL), make(1, SMALL), make(2, SMALL)
    assert np.array_equal(one.begin, again.begin)
    assert len(one.begin) != len(other.begin)


def test_a_trace_has_the_published_shape() -> None:
    shape = Shape(keys=400, days=8)
    found = make(3, shape)
    a_day = np.bincount(found.key, found.requests, 400) / shape.days
    # 45 % of applications are called at most once an hour, and 81 % at most once a minute
    assert np.mean(a_day <= 24) == pytest.approx(0.45, abs=0.1)
    assert np.mean(a_day <= 1440) == pytest.approx(0.81, abs=0.08)
    # and few have nearly all calls
    assert np.sort(a_day)[-80:].sum() > 0.8 * a_day.sum()
    assert (found.begin[1:] >= found.end[:-1])[found.key[1:] == found.key[:-1]].all()


def test_the_histogram_learns_from_each_idle_time() -> None:
    history = calls({"a": every(30, 7)}, 1)
    kept = hybrid_histogram(history)
    # It knows nothing before the first; then it starts the group 10 % before, and lets it go 10 % after
    assert (kept.pause[0], kept.keep[0]) == (0.0, 240 * MINUTE)
    assert kept.pause[-1] == 26 * MINUTE
    assert kept.keep[-1] == 33 * MINUTE


def test_the_histogram_forecasts_idle_times_beyond_its_range() -> None:
    kept = hybrid_histogram(calls({"a": every(600, 14)}, 2))
    assert kept.pause[-1] == pytest.approx(0.85 * 600 * MINUTE, rel=0.01)
    assert kept.keep[-1] == pytest.approx(1.15 * 600 * MINUTE, rel=0.01)


def test_what_decides_at_each_call_is_counted_like_a_replay() -> None:
    history = calls(by_chance(5, keys=3), 2)
    size = len(history.key)
    kept = KeepTimes(np.full(size, 300.0), np.full(size, 5000.0))
    policy = KeepAlivePolicy(np.full(3, 5000.0), np.zeros(3), np.full(3, 300.0))
    since, until = history.since + 3 * DAY, history.until
    mine, theirs = replayed(history, kept, since, until), replay(history.part(since, until), policy, since, until)
    assert mine.cold.tolist() == theirs.cold.tolist()
    assert mine.hours == pytest.approx(theirs.hours)


@pytest.mark.parametrize(
    ("minutes", "kind"),
    [([1.0], "warm"), ([30.0], "regular"), ([20.0, 50.0], "nearly regular"), ([2.0, 2.7, 3.6, 4.0, 5.0], "dense")],
)
def test_spes_sorts_keys_by_their_waiting_times(minutes: list[float], kind: str) -> None:
    rng = np.random.default_rng(1)
    gaps = rng.choice(minutes, 20_000) * MINUTE
    begins = np.cumsum(gaps)
    begins = begins[begins < WEEK]
    history = calls({"a": [(0.0, 0.5), *((begin, begin + 0.5) for begin in begins.tolist())]}, 1)
    assert spes.kinds(history, history.since, history.until) == {kind: 1}


def test_spes_loads_a_regular_key_shortly_before_its_call_and_lets_it_go_after() -> None:
    history = calls({"a": every(30, 14)}, 2)
    found = spes.spes(history, history.since, history.since + WEEK, history.until)
    # It is never cold. Of 30 minutes it is loaded in that of the call, the one after, and the one before the next:
    # what is decided two minutes before is done a minute later
    assert found.cold.sum() == 0
    assert found.hours.sum() == pytest.approx(WEEK / 1800 * 3 / 60, rel=0.01)


def test_the_judge_counts_each_policy_on_the_weeks_after_the_training() -> None:
    found = judge.judge(make(4, Shape(keys=40, days=21)))
    assert set(found.measures()) == set(judge.GOALS)
    assert found.outcomes["ours"].requests.sum() == found.outcomes["spes"].requests.sum()
    assert found.outcomes["ours at 5"].cold.sum() <= found.outcomes["ours at 0.6"].cold.sum()
