"""How one run of `recommend` goes on from the one before: what became of the last change, and a note of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from osrdyne_pipeline.promises import came
from osrdyne_pipeline.promises import changes as changes_made
from osrdyne_pipeline.promises.changes import AppliedChange, ReplayCorrection
from osrdyne_pipeline.promises.verdict import KEPT, Review, review
from osrdyne_pipeline.recommendation.calls import Calls, Tables
from osrdyne_pipeline.recommendation.edit.change import FileChange
from osrdyne_pipeline.recommendation.edit.wanted import NotChanged, WantedSettings
from osrdyne_pipeline.recommendation.outcome import Promise

if TYPE_CHECKING:
    from osrdyne_pipeline.store.opening import AnyLake


def look(tables: Tables, calls: Calls, changes: Sequence[AppliedChange]) -> Review | None:
    """Return what became of the last change; None where there was none."""
    if not changes:
        return None
    last = changes[-1]
    return review(last.promise, came.since(tables, calls, last), last.usual)


def noted(
    tables: Tables,
    calls: Calls,
    changes: Sequence[AppliedChange],
    found: Review | None,
    written: Sequence[FileChange],
    wanted: WantedSettings,
    promise: Promise | None,
    at: float,
) -> AppliedChange:
    """Return the change that was written at this time. `found` is what became of the one before it."""
    before, after = written[0].was, written[0].becomes
    if not changes:
        usual = came.usual(tables, calls, before, calls.since, at, ReplayCorrection())
    else:
        last = changes[-1]
        usual = last.usual
        if found is not None and found.verdict == KEPT:
            usual = came.usual(tables, calls, last.after, last.at, at, usual)
    files = tuple((each.option, str(each.path.absolute())) for each in written)
    keys = tuple(each.key for each in wanted.overrides)
    theirs = tuple(key for key in keys if key in written[0].theirs)
    return AppliedChange(at, before, after, promise, usual, files, keys, theirs)


def apply(lake: AnyLake, changes: Sequence[AppliedChange], one: AppliedChange, written: Sequence[FileChange]) -> None:
    """Keep a change after those that `changes` are, and write its files.

    Raises `LakeBusy` where another process has kept one meanwhile: then no file is written. Raises `LakeError`,
    `NotChanged`, and OSError.

    It is kept first: where this ends between the two, it is `not in force`. A change that was written and not kept
    would never be compared.
    """
    now = (*changes, one)[-changes_made.MOST_CHANGES :]
    changes_made.write(lake, now, changes)
    for number, edit in enumerate(written):
        try:
            edit.write()
        except (OSError, NotChanged):
            if not number:
                changes_made.write(lake, changes, now)
            raise
