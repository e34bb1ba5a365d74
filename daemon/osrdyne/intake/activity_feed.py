"""Consumes the pool's activity events on a connection of its own.

Whatever becomes of that connection, its channel or the activity queue, the session goes on: a key that is in use is
then kept by the counts of its queue (`queue_watcher`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from osrdyne.runtime.back_off import back_off
from osrdyne_amqp import Connection, Message

log = logging.getLogger(__name__)

#: Longest pause before connecting again, in seconds.
_LONGEST_PAUSE = 5.0


class ActivityFeed:
    """Gives each message of the activity queue to `on_message`. `connect` opens a connection; it raises BrokerError."""

    def __init__(
        self, queue: str, connect: Callable[[], Awaitable[Connection]], on_message: Callable[[Message], None]
    ) -> None:
        self._queue = queue
        self._connect = connect
        self._on_message = on_message
        self._failures = 0

    async def run(self) -> None:
        """Consume until cancelled. An outage is logged once, and so is its end."""
        while True:
            try:
                reason = await self._consume()
            except Exception as error:  # noqa: BLE001 - nothing that happens to events may end the session
                reason = str(error) or type(error).__name__
            self._failures += 1
            # The first one may be the loss of the broker, which the session logs.
            if self._failures == 2:
                log.warning(
                    "no activity events arrive; trying again, and counts of queues show which keys are in use",
                    extra={"queue": self._queue, "reason": reason},
                )
            await asyncio.sleep(back_off(self._failures, limit=_LONGEST_PAUSE) * random.uniform(0.5, 1.0))

    async def _consume(self) -> str:
        """Consume until that ends, and return why."""
        connection = await self._connect()
        try:
            channel = await connection.channel()
            cancelled = asyncio.Event()
            await channel.consume(self._queue, self._on_message, on_cancel=cancelled.set, no_ack=True)
            if self._failures > 1:
                log.warning("activity events arrive again", extra={"queue": self._queue})
            self._failures = 0
            ends = [asyncio.ensure_future(channel.wait_closed()), asyncio.ensure_future(cancelled.wait())]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                return str(ends[0].result()) if ends[0].done() else "the broker cancelled the consumer"
            finally:
                for one in ends:
                    one.cancel()
        finally:
            await connection.close()
