"""What a driver has seen of its groups and the group loop has not read yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from osrdyne.drivers.base import Change, How, WorkerEnd
from osrdyne.errors import DriverError, is_away

#: Ends of workers of one group that wait to be read; beyond that the oldest are dropped.
_MOST_ENDS = 10


class UnreadChanges:
    """The ends of each group's workers, and at most one other change for each group. Use it in one event loop."""

    def __init__(self) -> None:
        self._changes: dict[str, deque[Change]] = {}
        #: Why changes may have been missed; None when none were.
        self._missed: str | None = None
        #: Set when `read` has something to do.
        self._news = asyncio.Event()
        self._ended = False

    def tell(self, change: Change) -> None:
        """Add a change.

        Each end of a worker is kept. Of the other changes of a group only the last error is, or any one of them where
        nothing else is unread.
        """
        unread = self._changes.setdefault(change.key, deque(maxlen=_MOST_ENDS))
        if change.end is None and unread and unread[-1].end is None:
            former = unread.pop()
            change = former if change.error is None else change
        if change.end is not None or change.error is not None or not unread:
            unread.append(change)
        self._news.set()

    def refused(self, key: str, error: DriverError) -> None:
        """Add that a start was refused. An engine that is away has not tried it, and so no worker has ended."""
        self.tell(Change(key, str(error), None if is_away(error) else WorkerEnd(How.NO_START)))

    def lose(self, reason: str) -> None:
        """Have `read` raise this reason after the unread changes: the driver may have missed some."""
        self._missed = reason
        self._news.set()

    def end(self) -> None:
        """Have `read` return."""
        self._ended = True
        self._news.set()

    def has_ended(self) -> bool:
        """Whether `end` was called."""
        return self._ended

    async def until_end(self) -> AsyncIterator[Change]:
        """Yield changes until `end` is called. Raises what `read` raises."""
        while not self._ended:
            async for change in self.read():
                yield change

    async def read(self) -> AsyncIterator[Change]:
        """Wait for changes and yield them. Raises `DriverError` with the reason that `lose` was given."""
        await self._news.wait()
        self._news.clear()
        while self._changes:
            key, unread = next(iter(self._changes.items()))
            change = unread.popleft()
            if not unread:
                del self._changes[key]
            yield change
        if self._missed is not None:
            reason, self._missed = self._missed, None
            raise DriverError(reason)
