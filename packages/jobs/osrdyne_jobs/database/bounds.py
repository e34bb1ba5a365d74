"""For how long a call may wait for the database: all of it, from the connection to the commit.

The bound belongs to the thread or task that calls, so each wait below it knows what is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: Seconds for a call that says nothing else.
CALL_TIMEOUT_SECONDS = 30.0

_until: ContextVar[float | None] = ContextVar("osrdyne_jobs_until", default=None)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Have all that the database is asked for here end within so many seconds; a shorter bound around it stays."""
    outer, until = _until.get(), time.monotonic() + seconds
    before = _until.set(until if outer is None else min(outer, until))
    try:
        yield
    finally:
        _until.reset(before)


def left() -> float | None:
    """Return how many seconds are left, at least 0; None where there is no bound."""
    until = _until.get()
    return None if until is None else max(0.0, until - time.monotonic())
