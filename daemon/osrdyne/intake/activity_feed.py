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
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry

log = logging.getLogger(__name__)

#: Longest pause before connecting again, in seconds.
_LONGEST_PAUSE_SECONDS = 5.0


class ActivityFeed:
    """Gives each message of the activity queue to `on_message`. `connect` opens a connection; it raises BrokerError."""

    def __init__(
        self, queue: str, connect: Callable[[], Awaitable[Connection]], on_message: Callable[[Message], None]
    ) -> None:
        self._queue = queue
        self._connect = connect
        self._on_message = on_message
        self._retry = Retry(limit=_LONGEST_PAUSE_SECONDS)
        # The first failure may be the loss of the broker, which the session logs.
        self._outage = OutageLog(
            log,
            "the stream of activity events",
            meanwhile="trying again, and counts of queues show which keys are in use",
            tolerated=1,
            queue=queue,
        )

    async def run(self) -> None:
        """Consume until cancelled. Nothing that happens to events ends it."""
        while True:
            try:
                reason = await self._consume()
            except Exception as error:  # noqa: BLE001 - nothing that happens to events may end the session
                reason = str(error) or type(error).__name__
            self._outage.failed(reason, asyncio.get_running_loop().time())
            await asyncio.sleep(self._retry.failed())

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
        self._outage.over(asyncio.get_running_loop().time())
        self._retry.worked()
