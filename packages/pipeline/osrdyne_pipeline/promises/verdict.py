"""Whether a promise was kept. Pure.

What came is compared with a replay of the promised settings on the calls that came. So where people call more, or at
other times, the promise is another one, and is not broken by that. The interval around it is that of the promise, as
wide relative to what the settings before would have done to the same calls.

All days together say what a change brings. A bad spell after good days is not to be lost among these: where each of the
newest days alone is worse than promised, these days are compared, and not all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from osrdyne_pipeline.promises.came import DaysSince, together
from osrdyne_pipeline.promises.changes import ReplayCorrection
from osrdyne_pipeline.recommendation.outcome import Promise, PromisedEffect, Ratio

KEPT, BROKEN, NOT_ENOUGH, NOT_MADE = "kept", "broken", "not enough yet", "not in force"

#: Fewer whole days, or idle times that a call ended, say nothing yet: of all keys, and of one.
LEAST_DAYS = 1
LEAST_IDLE = 50
LEAST_IDLE_OF_KEY = 20
#: So many newest days are a spell, where each of them alone breaks the promise. One is not: a day has accidents.
SPELL_DAYS = 2
#: The interval of all keys is at least so wide to each side, relative to what is expected, and that of one key.
WIDTH = 0.05
WIDTH_OF_KEY = 0.2
#: Standard deviations of a count that chance may be off: for all keys, and for one of many.
CHANCE = 2.0
CHANCE_OF_KEY = 3.0
#: Keys that break their promise are taken back alone where they are fewer than this, or at most half of those with
#: settings of their own.
MANY = 3
#: Who was promised nothing but to be as before.
AS_BEFORE = Ratio(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Measure:
    """Cold starts or worker-hours, on the calls that came."""

    #: Relative to before, on the days that the promise was made of.
    promised: Ratio
    #: What the settings before would have done, what those in force are expected to do, and from where to where.
    before: float
    expected: float
    low: float
    high: float
    #: None where it is not known.
    came: float | None

    @property
    def worse(self) -> bool:
        return self.came is not None and self.came > self.high

    @property
    def within(self) -> bool:
        return self.came is None or self.low <= self.came <= self.high

    @property
    def as_before(self) -> bool:
        """Whether it is what the settings before would have done."""
        move = self.before - self.expected
        return self.came is None or self.low + move <= self.came <= self.high + move

    @property
    def other_calls(self) -> bool:
        """Whether a replay of the calls that came differs from the promise: people call in other ways."""
        if not self.before:
            return False
        room = (self.high - self.expected) / self.before
        return abs(self.expected / self.before - self.promised.value) > room


@dataclass(frozen=True)
class PromiseComparison:
    """What was promised and what came, of one key or of all."""

    verdict: str
    cold: Measure
    hours: Measure

    @property
    def worse(self) -> bool:
        return self.cold.worse or self.hours.worse


@dataclass(frozen=True)
class Review:
    """What became of a change."""

    verdict: str
    days: int
    #: None where there is no whole day yet.
    total: PromiseComparison | None = None
    #: By key, of those with settings of their own.
    keys: tuple[tuple[str, PromiseComparison], ...] = ()
    #: Whether the settings before would have done better with the calls that came.
    worse_than_before: bool = False
    #: Whether all of it is to be taken back, or the settings of these keys.
    back: bool = False
    back_keys: tuple[str, ...] = ()


def review(promise: Promise | None, days: Sequence[DaysSince], usual: ReplayCorrection) -> Review:
    """Compare, of whole days, the last one last: all of them, or those of a bad spell at their end.

    Without a promise, the settings were taken back, and shall do what a replay of them says.
    """
    if len(days) < LEAST_DAYS:
        return Review(NOT_ENOUGH, len(days))
    whole, spell = _compared(promise, together(days), usual), days[-SPELL_DAYS:]
    if promise is None or whole.verdict == NOT_MADE or len(days) <= SPELL_DAYS:
        return whole
    if not all(_of(promise.total, day, usual, None).worse for day in spell):
        return whole
    bad = _compared(promise, together(spell), usual)
    # Settings that a person has undone since are not taken back.
    return bad if bad.verdict == NOT_MADE or (bad.verdict == BROKEN and not whole.back) else whole


def _compared(promise: Promise | None, after: DaysSince, usual: ReplayCorrection) -> Review:
    total = _of(None if promise is None else promise.total, after, usual, None)
    numbers = {key: number for number, key in enumerate(after.keys)}
    own = () if promise is None else promise.keys.items()
    keys = tuple((key, _of(promised, after, usual, numbers[key])) for key, promised in own if key in numbers)
    if total.verdict in (NOT_ENOUGH, NOT_MADE) or promise is None:
        return Review(total.verdict, after.days, total, keys)
    broken = tuple(key for key, each in keys if each.verdict == BROKEN)
    worse = _worse_than_before(total)
    verdict = BROKEN if broken else total.verdict
    few = len(broken) < MANY or 2 * len(broken) <= len(keys)
    explained = few and _explained(total, [each for key, each in keys if key in broken])
    whole = worse or (verdict == BROKEN and not explained)
    return Review(verdict, after.days, total, keys, worse, whole, () if whole else broken)


def _of(
    promised: PromisedEffect | None, after: DaysSince, usual: ReplayCorrection, number: int | None
) -> PromiseComparison:
    """Compare one key, or all where `number` is None."""
    at = slice(None) if number is None else slice(number, number + 1)
    chance, width = (CHANCE, WIDTH) if number is None else (CHANCE_OF_KEY, WIDTH_OF_KEY)
    hours_by_start = usual.start_seconds / 3600
    starts = after.promised.lives[at].sum()
    cold = _measure(
        promised.cold if promised else AS_BEFORE,
        usual.cold * float(after.former.cold[at].sum()),
        expected := usual.cold * float(after.promised.cold[at].sum()),
        chance * sqrt(max(expected, 1.0)) + width * expected,
        float(after.cold[at].sum()),
    )
    hours = _measure(
        promised.hours if promised else AS_BEFORE,
        float(after.former.hours[at].sum() + hours_by_start * after.former.lives[at].sum()),
        expected := float(after.promised.hours[at].sum() + hours_by_start * starts),
        # A start more or less makes as much.
        chance * sqrt(max(float(starts), 1.0)) * hours_by_start + width * expected,
        None if after.hours is None else float(after.hours[at].sum()),
    )
    idle = int(after.idle[at].sum())
    if idle < (LEAST_IDLE if number is None else LEAST_IDLE_OF_KEY):
        verdict = NOT_ENOUGH
    elif not (cold.worse or hours.worse):
        verdict = KEPT
    else:
        as_before = number is None and promised and cold.as_before and hours.as_before and _as_before(after, usual)
        verdict = NOT_MADE if as_before else BROKEN
    return PromiseComparison(verdict, cold, hours)


def _as_before(after: DaysSince, usual: ReplayCorrection) -> bool:
    """Whether cold starts of the keys are much nearer to those of the settings before than to what was promised."""
    before, promised = (
        float(np.abs(after.cold - usual.cold * each.cold).sum()) for each in (after.former, after.promised)
    )
    return before <= promised / 2


def _measure(promised: Ratio, before: float, expected: float, chance: float, came: float | None) -> Measure:
    low = expected - (promised.value - promised.low) * before - chance
    high = expected + (promised.high - promised.value) * before + chance
    return Measure(promised, before, expected, max(0.0, low), high, came)


def _worse_than_before(total: PromiseComparison) -> bool:
    """Whether the settings do no better in either measure on the calls that came, and clearly worse in one."""
    cold, hours = total.cold, total.hours
    if cold.expected < cold.before or hours.expected < hours.before:
        return False
    more_cold = cold.expected - cold.before > WIDTH * cold.before + CHANCE * sqrt(cold.before)
    return more_cold or hours.expected - hours.before > WIDTH * hours.before


def _explained(total: PromiseComparison, broken: list[PromiseComparison]) -> bool:
    """Whether all is as promised but for these keys."""
    for name in ("cold", "hours"):
        whole: Measure = getattr(total, name)
        parts = [getattr(each, name) for each in broken]
        more = sum(part.came - part.expected for part in parts if part.came is not None and part.worse)
        if whole.came is not None and whole.came - more > whole.high:
            return False
    return True
