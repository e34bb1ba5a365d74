"""What was taken back is not recommended again at once."""

from __future__ import annotations

import pytest

from osrdyne_pipeline.promises.changes import AppliedChange, ReplayCorrection
from osrdyne_pipeline.promises.waiting import waits
from osrdyne_pipeline.recommendation.advice import AdviceRequest, KnownCalls, recommend
from osrdyne_pipeline.recommendation.calls import DAY
from osrdyne_pipeline.recommendation.edit.wanted import recommended
from osrdyne_pool.settings import Delays, PoolSettings
from tests.pipeline.promises.demand import MONDAY
from tests.pipeline.promises.test_verdict import PROMISE
from tests.pipeline.recommendation.histories import calls
from tests.pipeline.recommendation.test_advice import daily

OLD, OWN = Delays(600.0, 600.0), Delays(60.0, 15.0, (), ((3300.0, 3900.0),))
BEFORE = PoolSettings("core")
AFTER = PoolSettings("core", overrides={"LAX": OWN, "BOS": OWN})
PARTLY = PoolSettings("core", overrides={"LAX": OLD, "BOS": OWN})


def change(day: float, before: PoolSettings = BEFORE, after: PoolSettings = AFTER) -> AppliedChange:
    return AppliedChange(MONDAY + day * DAY, before, after, PROMISE, ReplayCorrection(), (), ("LAX", "BOS"))


def back(day: float, after: PoolSettings = BEFORE) -> AppliedChange:
    return AppliedChange(MONDAY + day * DAY, AFTER, after, None, ReplayCorrection(), (), ("LAX", "BOS"))


def test_nothing_was_taken_back_so_nothing_is_waited_for() -> None:
    assert waits([], MONDAY) == ()
    assert waits([change(0), change(5, AFTER, PARTLY)], MONDAY + 6 * DAY) == ()


@pytest.mark.parametrize(
    "made, taken_back, needed", [(0.0, 3.0, 3), (0.5, 3.5, 2), (0.5, 0.75, 1), (0.0, 30.0, 7)], ids=str
)
def test_a_change_waits_for_as_many_days_as_showed_that_it_was_wrong(
    made: float, taken_back: float, needed: int
) -> None:
    history, begun = [change(made), back(taken_back)], -(-taken_back // 1)
    for there in range(needed):
        (found,) = waits(history, MONDAY + (begun + there) * DAY)
        assert (found.needed, found.there, found.keys) == (needed, there, ())
    assert waits(history, MONDAY + (begun + needed) * DAY) == ()


def test_the_wait_doubles_each_time_and_ends() -> None:
    history, needed, day = list[AppliedChange](), [], 0
    for _ in range(5):
        history += [change(day), back(day + 3)]
        needed.append(waits(history, MONDAY + (day + 3) * DAY)[-1].needed)
        day += 40
    assert needed == [3, 6, 12, 24, 28]
    # A change that kept its promise begins a new count
    history += [change(day), change(day + 30), back(day + 33)]
    assert waits(history, MONDAY + (day + 33) * DAY)[-1].needed == 3


def test_where_some_keys_were_taken_back_only_these_wait() -> None:
    history = [change(0), back(2, PARTLY)]
    (found,) = waits(history, MONDAY + 3 * DAY)
    assert (found.keys, found.needed, found.there) == (("LAX",), 2, 1)
    assert str(found).startswith("the settings of 1 key stay: they were taken back at 2013-07-03")
    # Also where another change came meanwhile
    history.append(change(3, PARTLY, AFTER))
    assert [each.keys for each in waits(history, MONDAY + 3 * DAY)] == [("LAX",)]
    assert waits(history, MONDAY + 4 * DAY) == ()


def test_a_key_that_waits_keeps_its_settings_and_the_others_get_theirs() -> None:
    history = {f"k{number:02}": daily(number + 6.1, 4) for number in range(12)}
    known = KnownCalls(calls(history, 4), {}, ())
    ask = AdviceRequest(overrides={"k03": OLD, "k04": OLD}, left=frozenset({"k03"}))
    found = recommend(known, ask, "core")
    assert {each.key for each in found.overrides} == history.keys() - {"k03"}
    wanted = {each.key: each.delays for each in recommended(found, {"k03": OLD}).overrides}
    assert (set(wanted), wanted["k03"]) == (set(history), OLD)


def test_where_all_wait_the_reason_is_said_beside_the_evidence() -> None:
    history = calls({f"k{number:02}": daily(number + 6.1, 4) for number in range(12)}, 4)
    (wait,) = waits([change(0), back(3)], MONDAY + 4 * DAY)
    found = recommend(KnownCalls(history, {}, ()), AdviceRequest(not_yet=(str(wait),)), "core")
    assert (found.recommended, found.overrides, found.promise) == (False, (), None)
    assert found.evidence is not None
    assert found.reasons == (
        "the change before was taken back at 2013-07-04T00:00+00:00; 3 new whole days are needed, and there are 1",
    )
