"""Consumes the pool's activity events on a connection of its own.

Whatever becomes of that connection, its channel or the activity queue, the session goes on: a key that is in use is
then kept by the counts of its queue (`queue_watcher`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from osrdyne_amqp import Connection, Message
from osrdyne_amqp.consuming import consume_until_end
from osrdyne_protocol.pauses import jittered

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
            await asyncio.sleep(jittered(self._failures, limit=_LONGEST_PAUSE))

    async def _consume(self) -> str:
        """Consume until that ends, and return why."""
        connection = await self._connect()
        try:
            channel = await connection.channel()
            reason = await consume_until_end(channel, self._queue, self._on_message, on_begin=self._begun, no_ack=True)
            return "the broker cancelled the consumer" if reason is None else str(reason)
        finally:
            await connection.close()

    def _begun(self) -> None:
        if self._failures > 1:
            log.warning("activity events arrive again", extra={"queue": self._queue})
        self._failures = 0
