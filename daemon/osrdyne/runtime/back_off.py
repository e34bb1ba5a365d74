"""How long to wait before the next try. Pure."""

from __future__ import annotations


def back_off(failures: int, *, first: float = 0.5, limit: float = 30.0) -> float:
    """Return the seconds to wait after so many failures in a row: doubled each time, up to `limit`."""
    return float(min(limit, first * 2 ** min(max(failures, 1) - 1, 16)))
