"""Values that tasks share instead of calling each other: a value for each key, and which keys changed.

Nothing here decides or does I/O. A reader waits for what it needs to be true; a writer never waits.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import UserDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class KeyedValues(UserDict[str, T]):
    """One value for each key, with waiting for a single key: a change wakes only the tasks that wait for its key."""

    def __init__(self) -> None:
        super().__init__()
        self._waiters: dict[str, list[asyncio.Event]] = {}

    def __setitem__(self, key: str, value: T) -> None:
        super().__setitem__(key, value)
        for waiter in self._waiters.get(key, ()):
            waiter.set()

    async def wait(self, key: str, holds: Callable[[T], bool]) -> T:
        """Wait until the value of `key` satisfies `holds`, and return it."""
        waiter = asyncio.Event()
        waiters = self._waiters.setdefault(key, [])
        waiters.append(waiter)
        try:
            while True:
                value = self.get(key)
                if value is not None and holds(value):
                    return value
                waiter.clear()
                await waiter.wait()
        finally:
            waiters.remove(waiter)
            if not waiters:
                self._waiters.pop(key, None)


class Changes:
    """Which keys changed: every reader has its own set, so that none misses a key and none looks at all keys."""

    def __init__(self) -> None:
        self.readers: list[ChangeReader] = []

    def add(self, key: str) -> None:
        """Pass a key that changed to every reader."""
        for reader in self.readers:
            reader.add(key)


class ChangeReader:
    """One reader's keys that changed since it last took them, from any number of sources or added by itself."""

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}
        self._event = asyncio.Event()

    @contextmanager
    def following(self, *sources: Changes) -> Iterator[ChangeReader]:
        """See what changes there, as long as the context is open."""
        for source in sources:
            source.readers.append(self)
        try:
            yield self
        finally:
            for source in sources:
                source.readers.remove(self)

    def add(self, key: str) -> None:
        self._keys[key] = None
        self._event.set()

    async def take(self, within: float | None) -> list[str]:
        """Wait for a change, at most `within` seconds (None: no limit); return the keys in order of change."""
        if not self._keys:
            try:
                async with asyncio.timeout(within):
                    await self._event.wait()
            except TimeoutError:
                return []
        keys = list(self._keys)
        self._keys.clear()
        self._event.clear()
        return keys


def seconds_until(due: float | None, now: float) -> float | None:
    """Return the seconds from `now` until just after `due`; None for never.

    It adds a millisecond: a clock read a rounding error too early would make the caller loop.
    """
    return None if due is None else max(0.0, due - now) + 0.001


class Timers:
    """The keys that must be looked at again, and when (monotonic seconds). A later call replaces the earlier one."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def at(self, key: str, when: float) -> None:
        if self._due.get(key) == when:
            return
        self._due[key] = when
        heapq.heappush(self._heap, (when, key))

    def next(self) -> float | None:
        """Return the time of the earliest timer, None when there is none."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[str]:
        """Yield the keys whose time has come, and forget their timers."""
        while (when := self.next()) is not None and when <= now:
            _, key = heapq.heappop(self._heap)
            del self._due[key]
            yield key
