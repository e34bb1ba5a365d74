"""The cells of a week in which a worker group is kept warm, and the windows that people read. Times are in UTC."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt

from osrdyne_pipeline.recommendation.calls import DAY, Floats, Integers
from osrdyne_pool.settings import MOST_WINDOWS
from osrdyne_pool.windows import DAYS, parse_window

#: Minutes of a cell: windows begin and end at multiples of it.
CELL_MINUTES = 15
CELL_SECONDS = CELL_MINUTES * 60
CELLS_A_DAY = 24 * 60 // CELL_MINUTES
CELLS = 7 * CELLS_A_DAY

#: A week's cells, Monday first: true where the worker group is kept warm.
Cells = npt.NDArray[np.bool_]

_DAY_OF = np.arange(CELLS) // CELLS_A_DAY
#: Number of the shared cell of each cell of the week. Monday to Friday share theirs, and are warm at the same hours:
#: each of them alone has too little history. Saturday and Sunday have their own.
SHARED_CELL = np.maximum(_DAY_OF - 4, 0) * CELLS_A_DAY + np.arange(CELLS) % CELLS_A_DAY
SHARED_CELLS = 3 * CELLS_A_DAY
#: Most windows of a day: those of Monday to Friday, Saturday and Sunday are no more than settings take.
MOST_RUNS = MOST_WINDOWS // 3
#: The epoch's day was a Thursday; Monday is 0.
_THURSDAY = 3


@dataclass(frozen=True)
class WarmWindow:
    """A part of some days of each week. `begin` and `end` are minutes after midnight UTC, `end` at most 1440."""

    days: tuple[str, ...]
    begin: int
    end: int

    def text(self) -> str:
        """Return it as the settings have it; see `osrdyne_pool.windows`."""
        return f"{','.join(self.days)} {_clock(self.begin)}-{_clock(self.end)}"


def cells_of(seconds: Floats) -> Integers:
    """Return the cell of the week of each time."""
    day = np.floor(seconds / DAY)
    of_day = np.floor((seconds - day * DAY) / CELL_SECONDS)
    return np.asarray((day + _THURSDAY) % 7 * CELLS_A_DAY + of_day, np.int64)


def cells_between(since: float, until: float) -> tuple[Floats, Integers]:
    """Return the begin (seconds since the Unix epoch) and the number of each cell between two times.

    The first cell may begin before `since`.
    """
    starts = np.arange(since // CELL_SECONDS, np.ceil(until / CELL_SECONDS)) * CELL_SECONDS
    return starts, cells_of(starts)


def few_runs(cells: Cells) -> Cells:
    """Return a day's cells with the shortest pauses filled, so that there are at most MOST_RUNS windows."""
    filled = cells.copy()
    if np.count_nonzero(cells[1:] > cells[:-1]) < MOST_RUNS:
        return filled
    runs = _runs(cells)
    pauses = sorted((after[0] - before[1], before[1], after[0]) for before, after in pairwise(runs))
    for _, begin, end in pauses[: max(0, len(runs) - MOST_RUNS)]:
        filled[begin:end] = True
    return filled


def cells_in(texts: Iterable[str]) -> Cells:
    """Return the cells of windows as settings have them: those of which a window covers the middle."""
    cells = np.zeros(CELLS, bool)
    middle = (np.arange(CELLS_A_DAY) + 0.5) * CELL_MINUTES
    for window in map(parse_window, texts):
        for day in map(DAYS.index, window.days):
            cells[day * CELLS_A_DAY : (day + 1) * CELLS_A_DAY] |= (window.begin <= middle) & (middle < window.end)
    return cells


def windows(cells: Cells) -> tuple[WarmWindow, ...]:
    """Return the windows of the cells; days with the same hours share them."""
    by_run: dict[tuple[int, int], list[str]] = {}
    for number, name in enumerate(DAYS):
        day = cells[number * CELLS_A_DAY : (number + 1) * CELLS_A_DAY]
        for run in _runs(day):
            by_run.setdefault(run, []).append(name)
    return tuple(
        WarmWindow(tuple(days), begin * CELL_MINUTES, end * CELL_MINUTES)
        for (begin, end), days in sorted(by_run.items(), key=lambda entry: (DAYS.index(entry[1][0]), entry[0]))
    )


def _runs(day: Cells) -> list[tuple[int, int]]:
    runs, at = [], 0
    for on, cells in groupby(day.tolist()):
        length = len(list(cells))
        if on:
            runs.append((at, at + length))
        at += length
    return runs


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
