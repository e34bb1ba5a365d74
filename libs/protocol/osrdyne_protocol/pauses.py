"""How long to wait before the next try."""

from __future__ import annotations

import random


def back_off(failures: int, *, first: float = 0.5, limit: float = 30.0) -> float:
    """Return the seconds to wait after so many failures in a row: doubled each time, up to `limit`."""
    return float(min(limit, first * 2 ** min(max(failures, 1) - 1, 16)))


def jittered(failures: int, *, first: float = 0.5, limit: float = 30.0) -> float:
    """Return such a pause, shortened at random to no less than half: programs that failed together then spread out."""
    return back_off(failures, first=first, limit=limit) * random.uniform(0.5, 1.0)
