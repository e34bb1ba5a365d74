"""What a policy would have done: by hand, and beside a simulation second by second."""

from __future__ import annotations

import numpy as np
import pytest

from osrdyne_pipeline.recommendation.calls import DAY, WEEK, Calls
from osrdyne_pipeline.recommendation.policies import KeepAlivePolicy, fixed
from osrdyne_pipeline.recommendation.replay import replay
from osrdyne_pipeline.recommendation.warm import CELL_MINUTES, CELLS, CELLS_A_DAY, Cells
from tests.pipeline.recommendation.histories import MONDAY, by_chance, calls

MINUTE = 60.0
HOUR = 3600.0
SIMULATED_DAYS = 2


def whole(history: Calls, policy: KeepAlivePolicy) -> tuple[int, int, float]:
    """Cold starts, starts and hours of the whole history."""
    found = replay(history, policy, history.since, history.until)
    return int(found.cold.sum()), int(found.starts.sum()), float(found.hours.sum())


def warm_cells(begin_hour: float, end_hour: float, days: range = range(7)) -> Cells:
    cells = np.zeros(CELLS, bool)
    for day in days:
        first = day * CELLS_A_DAY
        cells[first + int(begin_hour * 60 / CELL_MINUTES) : first + int(end_hour * 60 / CELL_MINUTES)] = True
    return cells


def test_a_request_within_the_stop_delay_is_cold_but_starts_no_group() -> None:
    # Given requests of a minute each: the second 10 minutes after the first ended, the third 19, the fourth 20
    begins = [0, 11 * MINUTE, 31 * MINUTE, 52 * MINUTE]
    history = calls({"a": [(begin, begin + MINUTE) for begin in begins]}, weeks=1)
    # Then at 10 + 10 minutes all find no bound queue, and the first and the last no group
    cold, starts, hours = whole(history, fixed(1, 600, 600))
    assert (cold, starts) == (4, 2)
    # And the group is up for 4 minutes of work, 10 + 19 + 20 between, and 20 at last
    assert hours == pytest.approx((4 + 10 + 19 + 20 + 20) / 60)


def test_groups_that_are_started_ahead_of_requests_are_lives_and_no_starts() -> None:
    # Given a request an hour, for which a group is up from 50 minutes after the last one on
    history = calls({"a": [(hour * HOUR + 600, hour * HOUR + 660) for hour in range(10)]}, weeks=1)
    one = np.array([0.0])
    ahead = KeepAlivePolicy(one + 60, one + 15, one, {}, {0: np.array([[3000.0, 4200.0]])})
    found = replay(history, ahead, history.since, history.until)
    # Then the first request starts its group, each of the others is awaited, and a last group waits in vain
    assert (found.cold.tolist(), found.starts.tolist(), found.lives.tolist()) == ([1], [1], [11])
    assert replay(history, fixed(1, 60, 15), history.since, history.until).lives.tolist() == [10]


def test_the_same_time_unbound_late_has_fewer_cold_starts() -> None:
    begins = [0, 11 * MINUTE, 30 * MINUTE, 51 * MINUTE]
    history = calls({"a": [(begin, begin + MINUTE) for begin in begins]}, weeks=1)
    early, late = whole(history, fixed(1, 600, 600)), whole(history, fixed(1, 1140, 60))
    assert (early[0], late[0]) == (4, 2)
    assert early[1:] == late[1:]


def test_requests_of_one_minute_are_one_stretch_and_all_count() -> None:
    history = calls({"a": [(0, 1), (30, 31), (60, 61), (200, 201)]}, weeks=1)
    found = replay(history, fixed(1, 120, 60), history.since, history.until)
    assert (found.requests.tolist(), found.cold.tolist()) == ([4], [2])


def test_a_request_in_a_warm_window_is_not_cold_and_the_window_costs_its_time() -> None:
    # Given one request a day at 06:10, and a window of an hour around it, on a week's days
    history = calls({"a": [(day * DAY + 6 * HOUR + 600, day * DAY + 6 * HOUR + 660) for day in range(7)]}, weeks=1)
    kept = KeepAlivePolicy(np.array([120.0]), np.array([60.0]), np.zeros(1), {0: warm_cells(6, 7)})
    cold, starts, hours = whole(history, kept)
    assert (cold, starts) == (0, 0)
    assert hours == pytest.approx(7 * (1 + 60 / HOUR))
    # When weekends are left out, both requests there are cold and cost their own time
    kept = KeepAlivePolicy(np.array([120.0]), np.array([60.0]), np.zeros(1), {0: warm_cells(6, 7, range(5))})
    cold, starts, hours = whole(history, kept)
    assert (cold, starts) == (2, 2)
    assert hours == pytest.approx(5 * (1 + 60 / HOUR) + 2 * 240 / HOUR)


def test_a_paused_group_is_not_there_before_its_time() -> None:
    # Given the histogram's way: stopped at once, started again after 30 minutes, kept until 60
    begins = np.cumsum([0, 20, 45, 59, 61]) * MINUTE
    history = calls({"a": [(begin, begin) for begin in begins.tolist()]}, weeks=1)
    cold, starts, hours = whole(history, KeepAlivePolicy(np.array([3600.0]), np.zeros(1), np.array([1800.0])))
    assert (cold, starts) == (3, 3)
    assert hours == pytest.approx((15 + 29 + 30 + 30) / 60)


def test_what_was_before_counts_as_the_state_at_the_beginning() -> None:
    history = calls({"a": [(WEEK - 300, WEEK - 200), (WEEK + 60, WEEK + 70)]}, weeks=2)
    found = replay(history, fixed(1, 600, 600), MONDAY + WEEK, MONDAY + 2 * WEEK)
    assert (found.requests.tolist(), found.cold.tolist()) == ([1], [0])
    assert found.hours[0] == pytest.approx((60 + 10 + 1200) / HOUR)


@pytest.mark.parametrize("seed", range(3))
def test_a_replay_equals_a_simulation_second_by_second(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    history = by_chance(seed, keys=3, days=SIMULATED_DAYS)
    arrays = calls(history, weeks=SIMULATED_DAYS / 7)
    unbind, stop = rng.integers(60, 40_000, 3).astype(float), rng.integers(1, 900, 3).astype(float)
    warm = {0: rng.random(CELLS) < 0.2, 2: rng.random(CELLS) < 0.05}
    found = replay(arrays, KeepAlivePolicy(unbind, stop, np.zeros(3), warm), arrays.since, arrays.until)
    for number, requests in enumerate(history.values()):
        cold, hours = _simulated(requests, unbind[number], stop[number], warm.get(number))
        assert found.cold[number] == cold
        assert found.hours[number] == pytest.approx(hours)


def _simulated(
    requests: list[tuple[float, float]], unbind: float, stop: float, warm: Cells | None
) -> tuple[int, float]:
    """Go through the days by the second, as the daemon would."""
    begins: dict[int, float] = {}
    for begin, end in requests:
        begins[int(begin)] = max(end, begins.get(int(begin), 0))
    busy_until, bound_until, up_until, cold, up = -1e9, -1e9, -1e9, 0, 0
    # From a little earlier: a window before the first day may last into it.
    for second in range(-900, SIMULATED_DAYS * DAY):
        if warm is not None and warm[second // (CELL_MINUTES * 60) % CELLS]:
            bound_until = max(bound_until, second + 1)
        if second in begins:
            # Requests less than a minute after another are one stretch with it: never cold.
            cold += second >= bound_until and second >= busy_until + 60
            busy_until = max(busy_until, begins[second])
            bound_until = max(bound_until, busy_until + unbind)
        up_until = max(up_until, bound_until + stop) if second < bound_until else up_until
        up += 0 <= second < up_until
    return cold, up / HOUR
