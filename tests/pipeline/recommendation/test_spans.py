"""Spans after the last activity: where calls are likely, few enough, and counted like a replay counts them."""

from __future__ import annotations

import numpy as np
import pytest

from osrdyne.commands.replay.simulated_pool import Circumstances, PastCall, Replay
from osrdyne_pipeline.recommendation.choices import behaviour
from osrdyne_pipeline.recommendation.choices.options import PARTS, options
from osrdyne_pipeline.recommendation.choices.spans import CallLikelihood, few, kept, within
from osrdyne_pipeline.recommendation.policies import KeepAlivePolicy
from osrdyne_pipeline.recommendation.replay import replay
from osrdyne_pool.settings import MOST_PREWARMS, Delays
from tests.pipeline.recommendation.histories import by_chance, calls

HOUR = 3600.0


def test_a_key_called_every_hour_is_kept_a_minute_and_again_shortly_before_the_next_call() -> None:
    idle = np.full(50, HOUR + 20)
    spans = CallLikelihood(idle, np.ones(50, bool), 0.0).spans(1.0)
    assert spans[0].tolist() == [0.0, 60.0]
    assert spans[1, 0] == pytest.approx(59 * 60)
    assert HOUR + 20 < spans[1, 1] <= HOUR + 120


def test_a_higher_price_keeps_no_longer() -> None:
    rng = np.random.default_rng(3)
    idle = rng.exponential(1800, 300)
    likely = CallLikelihood(idle, np.ones(300, bool), 0.03)
    lengths = [float(np.diff(likely.spans(price), axis=1).sum()) for price in (0.1, 1.0, 4.0, 100.0)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1]


def test_spans_are_no_more_than_settings_take_and_a_minute_between_them_is_filled() -> None:
    spans = few(np.array([[600.0 * step, 600.0 * step + 60 + step] for step in range(30)]))
    assert len(spans) == MOST_PREWARMS + 1
    assert (spans[0, 0], spans[-1, 1]) == (0.0, 600.0 * 29 + 89)
    assert few(np.array([[0.0, 60.0], [120.0, 180.0], [300.0, 360.0]])).tolist() == [[0.0, 180.0], [300.0, 360.0]]


def test_what_is_kept_is_each_span_and_the_stop_delay_after_it() -> None:
    spans = np.array([[0.0, 60.0], [600.0, 900.0]])
    assert kept(spans, 30.0, np.array([10.0, 90.0, 500.0, 700.0, 5000.0])).tolist() == [10.0, 90.0, 90.0, 190.0, 420.0]
    assert within(spans, np.array([59.0, 60.0, 600.0, 900.0])).tolist() == [True, False, True, False]


@pytest.mark.parametrize("seed", range(3))
def test_a_replay_counts_spans_as_a_step_by_step_walk_does(seed: int) -> None:
    history = calls(by_chance(seed, keys=1), 2)
    spans = np.array([[300.0, 900.0], [3600.0, 7200.0]])
    policy = KeepAlivePolicy(np.full(1, 60.0), np.full(1, 30.0), np.zeros(1), prewarm={0: spans})
    found = replay(history, policy, history.since, history.until)
    cold = up = 0.0
    for begin, end, before, after in zip(history.begin, history.end, history.before, history.after, strict=True):
        idle = begin - before
        cold += not (idle < 60 or 300 <= idle < 900 or 3600 <= idle < 7200)
        up += end - begin
        for first, last in ((0.0, 90.0), (300.0, 930.0), (3600.0, 7230.0)):
            up += max(0.0, min(end + last, after, history.until) - min(end + first, after, history.until))
    assert found.cold.sum() == cold
    assert found.hours.sum() == pytest.approx(up / 3600)


@pytest.mark.parametrize("seed", range(3))
def test_a_replay_of_spans_agrees_with_the_rules_of_the_daemon(seed: int) -> None:
    asked = [(begin, begin + 1) for begin, _ in by_chance(seed, keys=1)["k0"]]
    history = calls({"a": asked}, 2)
    spans = ((900_000, 2_700_000), (7_200_000, 14_400_000))
    policy = KeepAlivePolicy(np.full(1, 120.0), np.full(1, 60.0), np.zeros(1), prewarm={0: np.array(spans) / 1000})
    mine = replay(history, policy, history.since, history.until)
    daemon = Replay(
        Circumstances(
            delays=lambda _: Delays(120_000, 60_000, prewarm=spans),
            debounce=1,
            statistics_interval=10,
            identity=lambda: "",
        )
    )
    list(daemon.run(PastCall(round(1000 * begin), "a", round(1000 * (end - begin))) for begin, end in asked))
    assert abs(daemon.tally.cold - mine.cold.sum()) <= 2
    # The last call's spans are after the history
    assert daemon.tally.up / 3_600_000 == pytest.approx(mine.hours.sum(), abs=2.7, rel=0.01)


def test_options_are_counted_on_parts_that_they_were_not_learnt_from() -> None:
    # Given a key whose idle times are never twice the same: what was learnt from some says nothing of the others
    gaps = 1500.0 * 1.35 ** np.arange(16)
    begins = np.cumsum(np.random.default_rng(1).permutation(gaps))
    history = calls({"a": [(0.0, 1.0), *((begin, begin + 1) for begin in begins.tolist())]}, 2)
    found = options(history, 0)
    spans = found.kind == 2
    delays = found.kind == 0
    # Then spans promise no more than a delay of the same hours does
    best = [found.cold[delays & (found.hours <= hours + 1)].min() for hours in found.hours[spans]]
    assert (found.cold[spans] >= np.array(best) - PARTS).all()


@pytest.mark.parametrize(
    ("gaps", "kind"),
    [
        ([3600.0] * 3, behaviour.NEW),
        ([70.0, 90.0, 300.0] * 10, behaviour.ALWAYS_ON),
        ([3590.0, 3600.0, 3610.0] * 10, behaviour.REGULAR),
        ([3600.0, 3610.0, 7200.0, 86_400.0] * 10, behaviour.NEARLY_REGULAR),
        ([*np.random.default_rng(1).uniform(60, 600, 50), 5e3], behaviour.DENSE),
        ([*np.random.default_rng(1).uniform(60, 600, 40), 4e3, 7e3, 1e4, 2e4, 3e4], behaviour.SUCCESSIVE),
        (np.exp(np.random.default_rng(1).uniform(7, 12, 40)).tolist(), behaviour.RARE),
    ],
)
def test_keys_are_named_by_how_they_are_called(gaps: list[float], kind: str) -> None:
    assert behaviour.behaviour(np.array(gaps)) == kind
