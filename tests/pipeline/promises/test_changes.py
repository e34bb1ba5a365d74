"""The changes that the lake keeps, and the settings to which a broken promise goes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.promises import changes
from osrdyne_pipeline.promises.changes import AppliedChange, Usual
from osrdyne_pipeline.promises.going_back import going_back
from osrdyne_pipeline.promises.verdict import BROKEN, KEPT, Review
from osrdyne_pool.settings import Delays, PoolSettings
from tests.pipeline.promises.test_verdict import PROMISE

THEIRS, REPLACED, LONG = Delays(86_400.0, 600.0), Delays(7200.0, 600.0), Delays(3585.0, 15.0)
SPANS = Delays(60.0, 15.0, ("mon 10:00-12:00",), ((3300.0, 3900.0),))
BEFORE = PoolSettings("core", overrides={"vip": THEIRS, "LAX": REPLACED})
AFTER = PoolSettings("core", unbind_delay=1185.0, stop_delay=15.0, overrides={"vip": THEIRS, "LAX": SPANS, "BOS": LONG})
CHANGE = AppliedChange(1_764_288_000.5, BEFORE, AFTER, PROMISE, Usual(1.25, 18.0), ("/etc/x.toml",), ("LAX", "BOS"))


def test_changes_come_back_as_they_were_written(lake: Lake) -> None:
    assert changes.read(lake) == ()
    back = replace(CHANGE, promise=None)
    changes.write(lake, [CHANGE, back])
    assert changes.read(lake) == (CHANGE, back)


def test_only_the_last_changes_are_kept(lake: Lake) -> None:
    changes.write(lake, [replace(CHANGE, at=float(number)) for number in range(60)])
    assert [change.at for change in changes.read(lake)] == list(map(float, range(10, 60)))


@pytest.mark.parametrize("text", ["{", "[]", '{"changes": [{}]}', '{"changes": [1]}'])
def test_a_file_that_does_not_hold_changes_says_what_to_do(lake: Lake, text: str) -> None:
    lake.write_file(changes.FILE, text)
    with pytest.raises(LakeError, match=r"changes\.json does not hold changes .* remove it"):
        changes.read(lake)


def test_going_back_brings_all_that_was_there_before() -> None:
    found = going_back(CHANGE, Review(BROKEN, 3, back=True))
    assert found is not None
    assert (found.pool, found.unbind_delay, found.stop_delay) == ("core", 600.0, 600.0)
    # What a person wrote for other keys is in the file as it was: it is not ours
    assert {each.key: each.delays for each in found.overrides} == {"LAX": REPLACED}
    assert "as before the change of 2025-11-28T00:00+00:00" in found.summary[0]


def test_going_back_for_some_keys_leaves_the_others() -> None:
    found = going_back(CHANGE, Review(BROKEN, 3, back_keys=("LAX",)))
    assert found is not None
    assert (found.unbind_delay, found.stop_delay) == (1185.0, 15.0)
    assert {each.key: each.delays for each in found.overrides} == {"LAX": REPLACED, "BOS": LONG}
    found = going_back(CHANGE, Review(BROKEN, 3, back_keys=("BOS",)))
    assert found is not None
    # The pool has another delay by now
    assert {each.key: each.delays for each in found.overrides} == {"LAX": SPANS, "BOS": Delays(600.0, 600.0)}


def test_where_the_promise_was_kept_nothing_goes_back() -> None:
    assert going_back(CHANGE, Review(KEPT, 3)) is None
