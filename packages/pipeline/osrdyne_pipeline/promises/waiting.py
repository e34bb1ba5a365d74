"""What is not recommended yet, because it was taken back. Pure.

The history that made a change still says that it is good, for most of its days are the same. So the next one waits for
as many new whole days as showed that it was wrong, and twice as many where the one before it had been taken back, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from osrdyne_pipeline.promises.came import MOST_DAYS
from osrdyne_pipeline.promises.changes import AppliedChange, same
from osrdyne_pipeline.recommendation.calls import DAY

#: No wait is longer: what is learnt from is new by then.
LONGEST_WAIT = 28


@dataclass(frozen=True)
class TakenBack:
    """Settings that were taken back, and how many whole days of new history they wait for."""

    #: When they were taken back, in seconds since the Unix epoch.
    since: float
    #: Whole days that are needed, and that are there.
    needed: int
    there: int
    #: Keys that keep their settings; none where this holds for all of them.
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="minutes")
        number = "1 key" if len(self.keys) == 1 else f"{len(self.keys)} keys"
        what = f"the settings of {number} stay: they were" if self.keys else "the change before was"
        return f"{what} taken back at {when}; {self.needed} new whole days are needed, and there are {self.there}"


def waits(changes: Sequence[AppliedChange], until: float) -> tuple[TakenBack, ...]:
    """Return what is to be waited for where the whole days of the history end at `until`."""
    found = (_wait(changes, number, until) for number, each in enumerate(changes) if number and each.promise is None)
    return tuple(each for each in found if each is not None and each.there < each.needed)


def _wait(changes: Sequence[AppliedChange], number: int, until: float) -> TakenBack | None:
    change, back = changes[number - 1], changes[number]
    whole = same(back.after, change.before)
    keys = tuple(key for key in change.keys if not whole and back.after.delays(key) != back.before.delays(key))
    if not (whole or keys):
        return None
    again = 0
    while (earlier := number - 2 * (again + 1)) > 0 and changes[earlier].promise is None:
        again += 1
    wrong = min(max(_whole_days(change.at, back.at), 1), MOST_DAYS)
    return TakenBack(back.at, min(wrong * 2**again, LONGEST_WAIT), _whole_days(back.at, until), keys)


def _whole_days(begin: float, end: float) -> int:
    return max(int(end // DAY - -(-begin // DAY)), 0)
