"""How a key is called, from its idle times: which policies are worth trying for it, and what to call it in a report."""

from __future__ import annotations

import numpy as np

from osrdyne_pipeline.recommendation.calls import DAY, Floats

ALWAYS_ON, REGULAR, NEARLY_REGULAR = "always on", "regular", "nearly regular"
DENSE, SUCCESSIVE, RARE, NEW = "dense", "successive", "rare", "new"
#: In the order in which they are looked for, but for the last.
BEHAVIOURS = (NEW, ALWAYS_ON, REGULAR, NEARLY_REGULAR, DENSE, SUCCESSIVE, RARE)

#: Fewer idle times than this say nothing about a key.
LEAST_GAPS = 7
#: Idle times shorter than this do not let a group go with any usual delay, in seconds.
SHORT_SECONDS = 600.0
#: The middle 90 % of idle times of a regular key lie within this part of the median.
EVEN = 0.1
#: Of a nearly regular key, so many idle times (a share) are this near, a part, to few common ones.
NEAR, NEARLY, COMMON = 0.05, 0.8, 3


def behaviour(gaps: Floats) -> str:
    """Return what a key with these idle times (seconds) does. One of BEHAVIOURS."""
    if len(gaps) < LEAST_GAPS:
        return NEW
    low, middle, high = np.quantile(gaps, [0.05, 0.5, 0.95])
    if gaps.max() < SHORT_SECONDS:
        return ALWAYS_ON
    if high - low <= EVEN * middle:
        return REGULAR
    if _near_common(gaps) >= NEARLY:
        return NEARLY_REGULAR
    if np.quantile(gaps, 0.9) < SHORT_SECONDS:
        return DENSE
    return SUCCESSIVE if middle < SHORT_SECONDS and high < DAY else RARE


def _near_common(gaps: Floats) -> float:
    """The share of idle times near to the few most common ones."""
    left, near = np.sort(gaps), 0
    for _ in range(COMMON):
        if not len(left):
            break
        reach = np.searchsorted(left, left * (1 + 2 * NEAR), "right") - np.arange(len(left))
        begin = int(reach.argmax())
        near += int(reach[begin])
        left = np.delete(left, np.s_[begin : begin + int(reach[begin])])
    return near / len(gaps)
