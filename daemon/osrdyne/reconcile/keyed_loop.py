"""The loop that queues and groups share: each key is looked at when something about it changed or its time has come.

A key has at most one action under way; all keys act at once. The caller's `look` decides what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from osrdyne.base.changes import ChangeReader, Changes, Timers, seconds_until


class KeyedLoop:
    """Looks at keys, one action at a time for each.

    `clock` returns monotonic seconds. `facts` are the changes after which a key is looked at.
    """

    def __init__(self, clock: Callable[[], float], facts: Sequence[Changes]) -> None:
        self._clock = clock
        self._facts = facts
        self._changed = ChangeReader()
        self._timers = Timers()
        self._busy: set[str] = set()
        self._tasks: asyncio.TaskGroup

    def look_at(self, key: str, when: float | None = None) -> None:
        """Look at a key soon, or at a time in monotonic seconds. A later call with a time replaces the earlier one."""
        if when is None:
            self._changed.add(key)
        else:
            self._timers.at(key, when)

    def is_busy(self, key: str) -> bool:
        """Return whether an action on a key is under way."""
        return key in self._busy

    def begin(self, key: str, action: Callable[[], Awaitable[None]], name: str) -> None:
        """Run an action on a key that has none. The key is looked at again when it ends. The action must not raise."""
        self._busy.add(key)
        self._tasks.create_task(self._act(key, action), name=name)

    async def run(
        self,
        look: Callable[[str], None],
        *,
        keys: Iterable[str],
        beside: Sequence[Coroutine[Any, Any, None]] = (),
        afterwards: Callable[[], None] = lambda: None,
    ) -> None:
        """Run until cancelled, beginning with a look at `keys`.

        `look` decides about one key that has no action under way, and may `begin` one. `afterwards` follows each round
        of looks. `beside` runs as long as the loop.
        """
        with self._changed.following(*self._facts):
            for key in keys:
                self._changed.add(key)
            async with asyncio.TaskGroup() as self._tasks:
                for other in beside:
                    self._tasks.create_task(other)
                while True:
                    changed = await self._changed.take(seconds_until(self._timers.next(), self._clock()))
                    for key in dict.fromkeys((*changed, *self._timers.due(self._clock()))):
                        if key not in self._busy:  # else it is looked at when its action ends
                            look(key)
                    afterwards()

    async def _act(self, key: str, action: Callable[[], Awaitable[None]]) -> None:
        try:
            await action()
        finally:
            self._busy.discard(key)
            self._changed.add(key)
