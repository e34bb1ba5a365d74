"""Waits that count only the time in which this process's loop turned.

When the loop stood still, an answer may have come that nothing has read yet. To take that for no answer would send a
message again that the broker has confirmed. So a wait is divided: however long the loop stood still, at most one part
of the wait passes meanwhile, and in the others the loop reads what has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Parts of a wait.
PARTS = 10


class NotInTime(Exception):
    """The wait is over. Not a TimeoutError: the future may hold one, the answer's own error."""


async def result_of(future: asyncio.Future[T], seconds: float, *, paused: Callable[[], bool] = lambda: False) -> T:
    """Return the future's result, or raise its error. Parts of the wait at whose end it is `paused` do not count.

    Raises NotInTime. Afterwards the future is done: one whose result is not waited for any more is cancelled.
    """
    left = PARTS
    try:
        while left:
            await asyncio.wait((future,), timeout=seconds / PARTS)
            if future.done():
                return future.result()
            left -= not paused()
        raise NotInTime
    finally:
        future.cancel()


class Timer:
    """Calls `callback` after so many seconds in which the loop turned, unless it is cancelled before."""

    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self._part = seconds / PARTS
        self._left = PARTS
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(self._part, self._tick)

    def _tick(self) -> None:
        self._left -= 1
        if self._left:
            self._handle = self._loop.call_later(self._part, self._tick)
        else:
            self._callback()

    def cancel(self) -> None:
        self._handle.cancel()
