"""Spans of time after a key's last activity in which its group is kept, found from its idle times.

A group that has been idle for some time is kept where the next call is likely enough: where the calls that end an idle
time there, by the hours that all groups still idle would spend there, are at least a price. So a key that is called
every hour is let go after its call, and started again shortly before the next. Pure; times are in seconds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from osrdyne_pipeline.recommendation.calls import Floats, Integers
from osrdyne_pool.settings import MOST_PREWARMS

MINUTE = 60.0
#: Of an idle time, nothing is said beyond this many minutes.
LONGEST = 7 * 24 * 60
#: How far calls spread around what was seen: at least a minute, or these parts of the idle time.
WIDTHS = (0.0, 0.03, 0.12)
#: Cold starts that an hour has to save, at least.
PRICES = tuple(0.02 * 2.0**step for step in range(12))


class CallLikelihood:
    """How likely calls are at each minute of idle time, learnt from some idle times."""

    def __init__(self, idle: Floats, closed: npt.NDArray[np.bool_], width: float) -> None:
        """`closed` says of each idle time whether a call ended it; others go on."""
        minutes = np.minimum(idle / MINUTE, LONGEST).astype(np.int64)
        size = int(minutes.max()) + 2 if len(minutes) else 2
        size += max(1, int(width * size))
        hits = np.bincount(minutes[closed], minlength=size)
        total = np.concatenate([[0], np.cumsum(hits)])
        at = np.arange(size)
        reach = np.maximum(1, (width * at).astype(np.int64))
        low, high = np.maximum(at - reach, 0), np.minimum(at + reach + 1, size)
        idle_still = len(idle) - np.concatenate([[0], np.cumsum(np.bincount(minutes, minlength=size))])[:-1]
        # One more that is still idle: what was seen once is not certain.
        self._by_hour = 60.0 * (total[high] - total[low]) / (2 * reach + 1) / (idle_still + 1.0)

    def spans(self, price: float) -> Floats:
        """Return where an hour saves as many cold starts as `price` or more, as rows of begin and end."""
        on = self._by_hour >= price
        # Calls that are less than a minute apart are one stretch.
        on[0] = True
        edge = np.flatnonzero(np.diff(np.concatenate([[False], on, [False]]).astype(np.int8))).reshape(-1, 2)
        return few(np.asarray(edge * MINUTE, np.float64))


def few(spans: Floats) -> Floats:
    """Return spans with the shortest pauses filled: none of a minute, and no more spans than settings take."""
    pauses = spans[1:, 0] - spans[:-1, 1]
    longest = np.argsort(-pauses, kind="stable")[:MOST_PREWARMS]
    separate = np.zeros(len(pauses), bool)
    separate[longest] = pauses[longest] > MINUTE
    begin = spans[np.concatenate([[True], separate]), 0]
    end = spans[np.concatenate([separate, [True]]), 1]
    return np.stack([begin, end], 1).astype(np.float64)


def within(spans: Floats, idle: Floats) -> npt.NDArray[np.bool_]:
    """Return which idle times end within the spans."""
    inside: Integers = np.searchsorted(spans.ravel(), idle, "right") % 2
    return np.asarray(inside == 1)


def kept(spans: Floats, stop: float, idle: Floats) -> Floats:
    """Return how long a group is kept during idle times, with the stop delay after each span."""
    edges = (spans + np.array([0.0, stop])).ravel()
    lasting = np.cumsum(np.diff(edges) * (np.arange(len(edges) - 1) % 2 == 0))
    return np.asarray(np.interp(idle, edges, np.concatenate([[0.0], lasting])))
