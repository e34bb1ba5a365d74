"""How long to wait before the next try. Nothing here reads a clock."""

from __future__ import annotations

import random


def back_off(failures: int, *, first: float = 0.5, limit: float = 30.0) -> float:
    """Return the seconds to wait after so many failures in a row: doubled each time, up to `limit`."""
    return float(min(limit, first * 2 ** min(max(failures, 1) - 1, 16)))


def jittered(failures: int, *, first: float = 0.5, limit: float = 30.0) -> float:
    """Return such a pause, shortened at random to no less than half: programs that failed together then spread out."""
    return back_off(failures, first=first, limit=limit) * random.uniform(0.5, 1.0)


class Retry:
    """Counts the failures in a row of one loop, and says how long to wait after each."""

    def __init__(self, *, first: float = 0.5, limit: float = 30.0, stable_after: float = 0.0) -> None:
        """`first` and `limit`: first and longest pause, in seconds.

        `stable_after`: what worked for longer than these seconds before it failed, such as a connection, counts as a
        success: its failure is the first one again.
        """
        self._first, self._limit, self._stable_after = first, limit, stable_after
        #: Failures in a row.
        self.failures = 0

    def failed(self, worked_for: float = 0.0) -> float:
        """Note a failure, after so many seconds in which it worked; return the seconds to wait."""
        if self._stable_after and worked_for > self._stable_after:
            self.failures = 0
        self.failures += 1
        return jittered(self.failures, first=self._first, limit=self._limit)

    def worked(self) -> None:
        """Note a success: the next failure is a first one."""
        self.failures = 0
