"""Tasks that report in the order in which they began, for each name, though some have more to find out than others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

#: Waits until the task before has ended.
Turn = Callable[[], Awaitable[None]]


class TasksInTurn:
    """At any time at most one task for each name is past its turn. Use it in one event loop."""

    def __init__(self) -> None:
        #: The last task of each name; the next one waits for it.
        self._last: dict[str, asyncio.Task[None]] = {}
        self._all: set[asyncio.Task[None]] = set()

    def begin(self, name: str, work: Callable[[Turn], Coroutine[Any, Any, None]]) -> None:
        """Begin `work` in a task. It awaits the turn that it is given before it reports."""
        former = self._last.get(name)

        async def turn() -> None:
            if former is not None:
                await asyncio.wait([former])

        task = asyncio.create_task(work(turn), name="driver-report")
        self._last[name] = task
        self._all.add(task)
        task.add_done_callback(partial(self._is_done, name))

    async def finish(self) -> None:
        """Wait for the tasks that have begun."""
        await asyncio.gather(*self._all, return_exceptions=True)

    async def cancel(self) -> None:
        """Cancel the tasks that have begun, and wait for them."""
        for task in self._all:
            task.cancel()
        await self.finish()

    def _is_done(self, name: str, task: asyncio.Task[None]) -> None:
        self._all.discard(task)
        if self._last.get(name) is task:
            del self._last[name]
