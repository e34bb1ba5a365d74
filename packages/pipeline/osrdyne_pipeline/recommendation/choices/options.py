"""What may be chosen for one key: delays alone, with windows of the week, or with spans after its last activity.

What was learnt from some days looks better on them than it is. So windows and spans are counted on days that they were
not learnt from: the history is cut into parts, and what the others teach is counted on each. What is then chosen is
learnt from all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from osrdyne_pipeline.recommendation.calls import Calls, Floats, Integers
from osrdyne_pipeline.recommendation.choices import behaviour as kinds
from osrdyne_pipeline.recommendation.choices.spans import PRICES, WIDTHS, CallLikelihood, kept, within
from osrdyne_pipeline.recommendation.replay import covered
from osrdyne_pipeline.recommendation.tradeoff import Frontier, frontier
from osrdyne_pipeline.recommendation.warm import (
    CELL_SECONDS,
    SHARED_CELL,
    SHARED_CELLS,
    Cells,
    cells_between,
    cells_of,
    few_runs,
)

#: Of what is kept, the part after the queue was unbound. Short: in it requests go the way of orphans though a worker
#: runs. Not zero: messages on their way when the queue is unbound still find the worker.
STOP_SECONDS = 15.0
#: How long a group may be kept: the candidates, unbind and stop delay together, in seconds.
DELAYS = np.array(
    [120, 180, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10800, 14400, 21600, 28800, 43200, 86400, 172800],
    np.float64,
)
#: Of these, those that are tried with windows.
WITH_WINDOWS = (0, 2, 3, 5, 8, 11)
#: Parts that the history is cut into.
PARTS = 4
#: A key that has been silent for this part of the history may have died: no windows are kept for it.
SILENT = 0.25


@dataclass(frozen=True, eq=False)
class Choice:
    """Settings of one key: unbind and stop delay together (seconds), windows, and spans after the first."""

    delay: float
    cells: Cells | None = None
    prewarm: Floats | None = None

    def plain(self, delay: float) -> bool:
        """Return whether this is only that delay."""
        return self.delay == delay and self.cells is None and self.prewarm is None


@dataclass(frozen=True)
class KeyOptions:
    """What may be chosen for one key: hours and cold starts of each, and what makes it. Of what needs windows or spans
    the kind says so.
    """

    behaviour: str
    hours: Floats
    cold: Floats
    kind: Integers
    makers: list[Callable[[], Choice]]

    def frontier(self, *, windows: bool, prewarms: bool) -> Frontier:
        """Return the options worth having; `option` is the number of one of `makers`."""
        chosen = np.flatnonzero((self.kind == 0) | (windows & (self.kind == 1)) | (prewarms & (self.kind == 2)))
        found = frontier(self.hours[chosen], self.cold[chosen])
        return Frontier(found.hours, found.cold, chosen[found.option])


@dataclass(frozen=True)
class IdleTimes:
    """One key's idle times, from the end of each stretch on; those at the edges are cut off."""

    #: When the stretch before it began and ended, how long it lasts, how much of it was before the history, and
    #: whether a call ends it.
    stretch: Floats
    begin: Floats
    length: Floats
    early: Floats
    closed: Cells
    #: Part of the history in which it begins.
    part: Integers
    #: Seconds of the stretches themselves, and calls that none came before.
    busy: float
    first: int

    @classmethod
    def of(cls, calls: Calls, number: int) -> IdleTimes:
        low, high = np.searchsorted(calls.key, [number, number + 1])
        begin, end, before, after = (part[low:high] for part in (calls.begin, calls.end, calls.before, calls.after))
        edges = np.linspace(calls.since, calls.until, PARTS + 1)[1:-1]
        in_time = np.clip(end, calls.since, calls.until) - np.clip(begin, calls.since, calls.until)
        return cls(
            begin,
            end,
            np.maximum(np.minimum(after, calls.until) - end, 0.0),
            np.maximum(calls.since - end, 0.0),
            after < calls.until,
            np.searchsorted(edges, end, "right"),
            float(in_time.sum()),
            int(np.count_nonzero(np.isinf(before) & (begin >= calls.since))),
        )


def options(calls: Calls, number: int) -> KeyOptions:
    """Return what may be chosen for one key, from all of `calls`."""
    idle = IdleTimes.of(calls, number)
    behaviour = kinds.behaviour(idle.length[idle.closed])
    found = [(0, *each) for each in _delays(idle)]
    if behaviour not in (kinds.NEW, kinds.ALWAYS_ON):
        found += [(2, *each) for each in _prewarms(idle)]
        silent = calls.until - idle.begin.max() > SILENT * (calls.until - calls.since)
        if not silent and behaviour != kinds.REGULAR:
            found += [(1, *each) for each in _windows(calls, idle)]
    kind, hours, cold, makers = zip(*found, strict=True)
    return KeyOptions(
        behaviour,
        np.array(hours) + idle.busy / 3600,
        np.array(cold, np.float64) + idle.first,
        np.array(kind),
        list(makers),
    )


Counted = tuple[float, float, Callable[[], Choice]]


def _delays(idle: IdleTimes) -> Iterator[Counted]:
    for delay in DELAYS.tolist():
        seconds = np.minimum(idle.length, delay) - np.minimum(idle.early, delay)
        missed = np.count_nonzero(idle.closed & (idle.length >= delay - STOP_SECONDS))
        yield float(seconds.sum()) / 3600, float(missed), partial(Choice, delay)


def _prewarms(idle: IdleTimes) -> Iterator[Counted]:
    for width in WIDTHS:
        # One each for what the other parts teach.
        others = [idle.part != part for part in range(PARTS)]
        taught = [CallLikelihood(idle.length[mask], idle.closed[mask], width) for mask in others]
        for price in PRICES:
            seconds = missed = 0.0
            for mask, likely in zip(others, taught, strict=True):
                spans, length = likely.spans(price), idle.length[~mask]
                early = kept(spans, STOP_SECONDS, idle.early[~mask])
                seconds += float((kept(spans, STOP_SECONDS, length) - early).sum())
                missed += float(np.count_nonzero(idle.closed[~mask] & ~within(spans, length)))
            yield seconds / 3600, missed, partial(_spans, idle, width, price)


def _spans(idle: IdleTimes, width: float, price: float) -> Choice:
    spans = CallLikelihood(idle.length, idle.closed, width).spans(price)
    return Choice(float(spans[0, 1]) + STOP_SECONDS, prewarm=spans[1:] if len(spans) > 1 else None)


def _windows(calls: Calls, idle: IdleTimes) -> Iterator[Counted]:
    starts, cell = cells_between(calls.since, calls.until)
    edges = np.linspace(calls.since, calls.until, PARTS + 1)[1:-1]
    slot = np.searchsorted(edges, starts, "right") * SHARED_CELLS + SHARED_CELL[cell]
    call = (idle.begin + idle.length)[idle.closed]
    call_slot = np.searchsorted(edges, call, "right") * SHARED_CELLS + SHARED_CELL[cells_of(call)]
    for delay in DELAYS[list(WITH_WINDOWS)].tolist():
        seconds = np.minimum(idle.length, delay) - np.minimum(idle.early, delay)
        gone = idle.begin + np.minimum(idle.length, delay)
        up = np.clip(np.stack([idle.stretch, gone], 1), calls.since, calls.until)
        up = up[up[:, 1] > up[:, 0]]
        # A window of one cell lasts a stop delay longer; one of several costs less than this.
        free = (CELL_SECONDS - covered(up, starts, calls.until)) * (1 + STOP_SECONDS / CELL_SECONDS) / 3600
        free_in = np.bincount(slot, free, PARTS * SHARED_CELLS).reshape(PARTS, SHARED_CELLS)
        missed = idle.length[idle.closed] >= delay - STOP_SECONDS
        hit_in = np.bincount(call_slot[missed], minlength=PARTS * SHARED_CELLS).reshape(PARTS, SHARED_CELLS)
        other_free, other_hit = free_in.sum(0) - free_in, hit_in.sum(0) - hit_in
        for price in PRICES:
            taught = (other_hit > 0) & (other_hit >= price * other_free)
            on = _worth(price, hit_in.sum(0), free_in.sum(0))
            yield (
                # What a window costs does not depend on calls, so it is counted for those that are kept in the end.
                float(seconds.sum()) / 3600 + float(free_in.sum(0)[on].sum()),
                float(hit_in.sum() - hit_in[taught].sum()),
                partial(_cells, delay, on),
            )


def _worth(price: float, hit: Integers, free: Floats) -> Cells:
    """Return the cells whose hours save cold starts at the price, in no more windows than settings take."""
    return np.concatenate([few_runs(day) for day in ((hit > 0) & (hit >= price * free)).reshape(3, -1)])


def _cells(delay: float, on: Cells) -> Choice:
    return Choice(delay, on[SHARED_CELL] if on.any() else None)
