"""The hybrid histogram policy, by hand."""

from __future__ import annotations

import numpy as np

from osrdyne_pipeline.recommendation.calls import DAY
from osrdyne_pipeline.recommendation.policies import histogram
from tests.pipeline.recommendation.histories import calls

MINUTE = 60.0


def requests(gaps: list[float]) -> list[tuple[float, float]]:
    """Requests that take no time, at these gaps in minutes."""
    return [(moment, moment) for moment in np.cumsum([0.0, *gaps]) * MINUTE]


def test_a_regular_key_is_paused_until_shortly_before_it_is_asked_for() -> None:
    # Given a key that is called every 30 to 31 minutes, and 1 of 100 times after 50
    history = calls({"a": requests([*([30.5] * 99), 50.2])}, weeks=1)
    found = histogram(history, history.since, history.until)
    # Then it is started 10 % before minute 30, and kept until 10 % after the end of minute 30 (its 99th percentile)
    assert found.pause.tolist() == [27 * MINUTE]
    assert found.unbind.tolist() == [35 * MINUTE]
    assert found.stop.tolist() == [0.0]


def test_a_key_called_again_within_a_minute_is_never_paused() -> None:
    history = calls({"a": requests([0.5] * 20 + [30.0] * 80)}, weeks=1)
    assert histogram(history, history.since, history.until).pause.tolist() == [0.0]


def test_idle_times_that_are_all_over_the_range_or_beyond_it_say_nothing() -> None:
    even = requests([float(minute) + 0.5 for minute in range(1, 60)] * 2)
    rare = [(day * DAY, day * DAY) for day in range(7)]
    history = calls({"even": even, "rare": rare, "never": [(0.0, 0.0)]}, weeks=1)
    found = histogram(history, history.since, history.until)
    # Then all of them are kept for its whole range. (60 even bins of 240 vary with a coefficient below 2.)
    assert found.pause.tolist() == [0.0, 0.0, 0.0]
    assert found.unbind.tolist() == [240 * MINUTE] * 3


def test_only_the_days_learnt_from_count() -> None:
    history = calls(
        {"a": [*requests([30.5] * 100), *((begin + 4 * DAY, two + 4 * DAY) for begin, two in requests([5.5] * 300))]}, 1
    )
    assert histogram(history, history.since, history.since + 3 * DAY).unbind.tolist() == [35 * MINUTE]
