"""A bound on the bytes of one consumer's deliveries that are in memory, between the channel and its handler.

A prefetch counts messages and not bytes: 256 orphans of 16 MiB are 4 GiB. A delivery beyond the bound is let go: it
is dropped here, and the delivery is given back a moment later, so that the broker delivers it once more. Give-backs
are paced, so that the message does not circle at full speed: RabbitMQ 4.0 counts each as a failed delivery. A delivery
is given back when there is room for it, so it is few times.

It is a task of the session: a message that arrives while the session ends starts nothing, and is redelivered in the
next session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from osrdyne_amqp import Channel, Message

#: Time between two rounds of giving back.
_GIVE_BACK_SECONDS = 0.5


class MemoryLimit:
    """Takes messages from a channel, and their acknowledgements to it.

    Messages that are handed on and not yet acknowledged take at most `limit` bytes plus one message, headers included.
    Without that extra one, a message larger than the free room would never be handled.
    """

    def __init__(self, channel: Channel, *, limit: int) -> None:
        self._channel = channel
        self._limit = limit
        self._arrived: deque[Message] = deque()
        self._news = asyncio.Event()
        #: Bytes of each message that is handed on, by delivery tag; 0 for one that never fits.
        self._held: dict[int, int] = {}
        self._bytes = 0
        #: Delivery tag of the message that was handed on beyond the limit.
        self._beyond: int | None = None
        #: Delivery tag and bytes of messages that were let go, and are to be given back.
        self._let_go: deque[tuple[int, int]] = deque()

    def on_message(self, message: Message) -> None:
        """Accept a delivery from the channel."""
        self._arrived.append(message)
        self._news.set()

    def ack(self, tag: int) -> None:
        """Acknowledge a delivery and free its bytes. Raises what `Channel.ack` raises."""
        self._channel.ack(tag)
        self._bytes -= self._held.pop(tag, 0)
        if self._beyond == tag:
            self._beyond = None

    def holds(self, tag: int) -> bool:
        """Return whether a message that was handed on is not acknowledged yet."""
        return tag in self._held

    async def run(self, handle: Callable[[Message], None]) -> None:
        """Hand messages on until cancelled."""
        due = 0.0
        clock = asyncio.get_running_loop().time
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due if self._let_go else None):
                    await self._news.wait()
            self._news.clear()
            while self._arrived:
                self._hand_on(self._arrived.popleft(), handle)
            if self._let_go and clock() >= due:
                self._give_back()
                due = clock() + _GIVE_BACK_SECONDS

    def _hand_on(self, message: Message, handle: Callable[[Message], None]) -> None:
        tag, size = message.delivery_tag, message.size
        fits = self._bytes + size <= self._limit
        if not fits and self._beyond is not None:
            self._let_go.append((tag, size))
            return
        if not fits:
            self._beyond = tag
        # A message that never fits takes no room from the others: it may wait long, and they go on meanwhile.
        counted = size if size <= self._limit else 0
        self._held[tag] = counted
        self._bytes += counted
        handle(message)

    def _give_back(self) -> None:
        """Give back deliveries for which there is room now, oldest first."""
        room = self._limit - self._bytes
        beyond = self._beyond is None
        while self._let_go and (beyond or self._let_go[0][1] <= room):
            tag, size = self._let_go.popleft()
            beyond = beyond and size <= room
            room -= size
            self._channel.give_back(tag)
