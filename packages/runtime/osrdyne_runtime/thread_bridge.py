"""Actions that other threads hand to a loop: one wake-up for all that wait, instead of one each."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable


class ThreadBridge:
    """A queue of actions that run in a loop's thread, in order. `put` is for any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._actions: deque[Callable[[], None]] = deque()
        self._woken = False

    def put(self, action: Callable[[], None]) -> None:
        """Run `action`, which must not raise, in the loop's thread soon. Does nothing when the loop has ended."""
        self._actions.append(action)
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.drain)

    def drain(self) -> None:
        """Run the waiting actions."""
        self._woken = False
        with contextlib.suppress(IndexError):
            while True:
                self._actions.popleft()()
