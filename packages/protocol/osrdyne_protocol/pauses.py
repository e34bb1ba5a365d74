"""How long to wait before the next try, and how often to log that it fails."""

from __future__ import annotations

import random

#: Seconds for which a failure that was logged is not logged again.
_LOGGED_AGAIN = 60.0


def back_off(failures: int, *, first: float = 0.5, limit: float = 30.0) -> float:
    """Return the seconds to wait after so many failures in a row: doubled each time, up to `limit`."""
    return float(min(limit, first * 2 ** min(max(failures, 1) - 1, 16)))


def jittered(failures: int, *, first: float = 0.5, limit: float = 30.0) -> float:
    """Return such a pause, shortened at random to no less than half: programs that failed together then spread out."""
    return back_off(failures, first=first, limit=limit) * random.uniform(0.5, 1.0)


class LoggedFailures:
    """Which of the failures of one loop to log: each reason when it begins, and then once a minute."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def due(self, reason: str, now: float) -> bool:
        """Return whether to log a failure, which then counts as logged. `now` is a monotonic clock, in seconds."""
        self._at = {known: at for known, at in self._at.items() if now - at < _LOGGED_AGAIN}
        if reason in self._at:
            return False
        self._at[reason] = now
        return True

    def over(self) -> None:
        """Note that the loop works again: each failure is then a new one."""
        self._at.clear()
