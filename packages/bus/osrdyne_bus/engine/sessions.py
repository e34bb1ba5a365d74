"""The sessions of a connection, and which of them a new link gets."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from osrdyne_bus.engine.links import BusLink
from osrdyne_bus.errors import MessagingError

#: Most sessions of a connection, where the peer allows as many; RabbitMQ allows 64.
MOST_SESSIONS = 64


class Sessions:
    """Gives each new link a session in which no other link is being attached.

    RabbitMQ 4.0 ends the whole session of a link that it refuses. So each link has a session of its own, as long as the
    peer allows one more; then links share those with the fewest. One without links is used again: RabbitMQ does not
    follow when a session is ended and another one begun at once.
    """

    def __init__(self, begin: Callable[[], Any], most: Callable[[], int], links: Mapping[int, BusLink]) -> None:
        """`begin` opens a session, `most` says how many the peer allows, and `links` are those there are."""
        self._begin = begin
        self._most = most
        self._links = links
        self._open: list[Any] = []
        #: Those that the peer ended, and whose end is not answered yet: they have their channels still.
        self._ended: list[Any] = []
        #: Those in which a link is being attached.
        self._attaching: list[Any] = []
        #: Sessions of links that were given up before the peer answered, by the address of the link.
        self._unanswered: dict[int, Any] = {}
        self._changed = asyncio.Event()
        #: Why there are no more; None while there are.
        self._closed: MessagingError | None = None

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[Any]:
        """Give a session for as long as a link is being attached. Raises what they were closed with."""
        while (session := self._chosen()) is None:
            self._changed.clear()
            await self._changed.wait()
        self._attaching.append(session)
        try:
            yield session
        finally:
            self._attaching.remove(session)
            self._changed.set()

    def _chosen(self) -> Any:
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        used = Counter(link.session for link in self._links.values())
        free = [session for session in self._open if session not in self._attaching]
        # The answer to a link that was given up may be the end of its session.
        answered = [session for session in free if session not in self._unanswered.values()]
        if (unused := next((session for session in answered if not used[session]), None)) is not None:
            return unused
        if len(self._open) + len(self._ended) < self._most():
            session = self._begin()
            self._open.append(session)
            return session
        return min(answered or free, key=used.__getitem__, default=None)

    def given_up(self, link: Any) -> None:
        """A link was closed before the peer had answered it."""
        self._unanswered[hash(link)] = link.session

    def answered(self, link: Any) -> None:
        """The peer ended a link."""
        if self._unanswered.pop(hash(link), None) is not None:
            self._changed.set()

    def ended(self, session: Any) -> None:
        """The peer ended a session; `answer` is due later."""
        if session in self._open:
            self._open.remove(session)
        self._unanswered = {link: other for link, other in self._unanswered.items() if other != session}
        self._ended.append(session)

    def answer(self, session: Any) -> None:
        """Answer the end of a session, and have its channel again."""
        if self._closed is None and session in self._ended:
            self._ended.remove(session)
            session.close()
            self._changed.set()

    def close(self, why: MessagingError) -> None:
        """Give no more sessions: the connection has ended."""
        self._closed = why
        self._changed.set()
