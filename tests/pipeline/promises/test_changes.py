"""The changes that the lake keeps, and the settings to which a broken promise goes back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from osrdyne_pipeline.errors import LakeBusy, LakeError
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.promises import changes, loop, text
from osrdyne_pipeline.promises.changes import AppliedChange, ReplayCorrection
from osrdyne_pipeline.promises.going_back import going_back
from osrdyne_pipeline.promises.verdict import BROKEN, KEPT, Review
from osrdyne_pipeline.recommendation.edit.change import FileChange
from osrdyne_pipeline.recommendation.edit.wanted import NotChanged
from osrdyne_pool.settings import Delays, PoolSettings
from tests.pipeline.promises.test_verdict import PROMISE

THEIRS, REPLACED, LONG = Delays(86_400.0, 600.0), Delays(7200.0, 600.0), Delays(3585.0, 15.0)
SPANS = Delays(60.0, 15.0, ("mon 10:00-12:00",), ((3300.0, 3900.0),))
BEFORE = PoolSettings("core", overrides={"vip": THEIRS, "LAX": REPLACED})
AFTER = PoolSettings("core", unbind_delay=1185.0, stop_delay=15.0, overrides={"vip": THEIRS, "LAX": SPANS, "BOS": LONG})
CHANGE = AppliedChange(
    1_764_288_000.5,
    BEFORE,
    AFTER,
    PROMISE,
    ReplayCorrection(1.25, 18.0),
    (("--settings", "/etc/x.toml"),),
    ("LAX", "BOS"),
)


def test_changes_come_back_as_they_were_written(lake: Lake) -> None:
    assert changes.read(lake) == ()
    back = replace(CHANGE, promise=None)
    changes.write(lake, [CHANGE, back], [])
    assert changes.read(lake) == (CHANGE, back)


def test_only_the_last_changes_are_kept(lake: Lake) -> None:
    changes.write(lake, [replace(CHANGE, at=float(number)) for number in range(60)], [])
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


def edit(folder: Path, name: str) -> FileChange:
    """Return the change of a file that is there."""
    (folder / name).write_text("before")
    return FileChange(folder / name, "before", "after", BEFORE, AFTER)


def test_a_change_is_kept_before_its_file_is_written(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[AppliedChange, ...]] = []
    write: Callable[[FileChange], None] = FileChange.write

    def noting(one: FileChange) -> None:
        kept.append(changes.read(lake))
        write(one)

    monkeypatch.setattr(FileChange, "write", noting)
    loop.apply(lake, [], CHANGE, [edit(tmp_path, "one")])
    assert kept == [(CHANGE,)]
    assert (tmp_path / "one").read_text() == "after"


def test_a_change_of_which_no_file_was_written_is_not_kept(lake: Lake, tmp_path: Path) -> None:
    one, two = edit(tmp_path, "one"), edit(tmp_path, "two")
    (tmp_path / "one").write_text("by another program")
    with pytest.raises(NotChanged, match="has changed meanwhile"):
        loop.apply(lake, [], CHANGE, [one, two])
    assert changes.read(lake) == ()
    # But one of which some file was written is
    with pytest.raises(NotChanged, match="has changed meanwhile"):
        loop.apply(lake, [], CHANGE, [two, one])
    assert changes.read(lake) == (CHANGE,)


def test_of_two_changes_at_once_one_is_kept_and_the_other_writes_nothing(lake: Lake, tmp_path: Path) -> None:
    one, two = edit(tmp_path, "one"), edit(tmp_path, "two")
    before = changes.read(lake)
    loop.apply(lake, before, CHANGE, [one])
    with pytest.raises(LakeBusy, match=r"another recommend has written a change .* run again"):
        loop.apply(lake, before, replace(CHANGE, at=1.0), [two])
    assert changes.read(lake) == (CHANGE,)
    assert (tmp_path / "two").read_text() == "before"


def test_of_many_changes_of_a_file_at_once_one_is_written(tmp_path: Path) -> None:
    edits = [replace(edit(tmp_path, "one"), after=f"after {number}") for number in range(8)]
    begin = Barrier(len(edits))

    def write(one: FileChange) -> str | None:
        begin.wait()
        try:
            one.write()
        except NotChanged:
            return None
        return one.after

    with ThreadPoolExecutor(len(edits)) as pool:
        written = [text for text in pool.map(write, edits) if text is not None]
    assert written == [(tmp_path / "one").read_text()]


def test_settings_that_a_person_changed_since_differ_from_those_of_the_change() -> None:
    assert changes.same(AFTER, replace(AFTER, delivery_limit=9))
    assert not changes.same(AFTER, replace(AFTER, stop_delay=16.0))
    assert [note[-21:] for note in text.notes(CHANGE, Review(BROKEN, 3, back=True), by_hand=True)] == [
        "nothing is taken back"
    ]
