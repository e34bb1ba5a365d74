"""What a driver has seen of its groups and the group loop has not read yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from osrdyne.drivers.base import Change
from osrdyne.errors import DriverError


class UnreadChanges:
    """At most one change for each group. Use it in one event loop."""

    def __init__(self) -> None:
        self._changes: dict[str, Change] = {}
        self._lost: str | None = None
        self._some = asyncio.Event()
        self._ended = False

    def tell(self, change: Change) -> None:
        """Add a change. One without an error does not replace an unread error."""
        if change.error is not None or change.key not in self._changes:
            self._changes[change.key] = change
        self._some.set()

    def lose(self, reason: str) -> None:
        """Have `read` raise this reason after the unread changes: the driver may have missed some."""
        self._lost = reason
        self._some.set()

    def end(self) -> None:
        """Have `read` return."""
        self._ended = True
        self._some.set()

    def has_ended(self) -> bool:
        """Whether `end` was called."""
        return self._ended

    async def read(self) -> AsyncIterator[Change]:
        """Wait for changes and yield them. Raises `DriverError` with the reason that `lose` was given."""
        await self._some.wait()
        self._some.clear()
        while self._changes:
            yield self._changes.pop(next(iter(self._changes)))
        if self._lost is not None:
            reason, self._lost = self._lost, None
            raise DriverError(reason)
