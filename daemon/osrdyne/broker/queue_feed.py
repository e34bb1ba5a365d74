"""Consumes one of the pool's own queues, on a connection of its own, and goes on after a message that ends it.

Clients can send what RabbitMQ cannot deliver over AMQP 0-9-1: it closes the connection, and delivers the message to the
next one (docs/reference/rabbitmq-facts.md#messages-that-close-the-connection-of-their-receiver). The message stays at
the head of its queue until it has failed as often as the queue's delivery limit allows. So the feed connects again at
once, and takes one message at a time: then no other message fails with it. Lock, publishes and other queues have other
connections, and go on. Any other end of the connection ends the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from osrdyne.broker.memory_limit import MemoryLimit
from osrdyne.errors import SessionEnded
from osrdyne_amqp import Channel, Connection
from osrdyne_amqp.consuming import consume_until_end
from osrdyne_amqp.errors import BrokerError
from osrdyne_runtime.retry import Retry

log = logging.getLogger(__name__)

#: Reply codes of a connection that a message has ended: the broker crashed, or its frame cannot be read.
_ENDED_BY_A_MESSAGE = (541, 501)
#: The broker gives messages to a consumer of lower priority only while this one takes no more (decision 0048).
_BEFORE_OTHERS = {"x-priority": 100}
#: Seconds without such an end, after which many messages are taken at a time again.
_CALM_SECONDS = 5.0
#: Tries in a row that follow each other at once: those that several messages need until they are moved away. Each try
#: writes some 20 kB into the broker's log, so there are pauses where the queue has no limit.
_MOST_QUICK_TRIES = 5000


class QueueFeed:
    """Consumes a queue. `handle` begins, under the tasks, to handle what the `MemoryLimit` that it returns is given."""

    def __init__(
        self,
        queue: str,
        connect: Callable[[], Awaitable[Connection]],
        handle: Callable[[Channel, asyncio.TaskGroup], MemoryLimit],
        *,
        prefetch: int,
    ) -> None:
        self._queue = queue
        self._connect = connect
        self._handle = handle
        self._prefetch = prefetch
        #: Its failures are the connections in a row that a message has ended.
        self._retry = Retry(limit=2.0)

    async def run(self) -> None:
        """Consume until cancelled. Raises SessionEnded, BrokerError and what handlers raise, also in groups."""
        while True:
            connection = await self._connect()
            try:
                await self._consume(connection)
            except* (BrokerError, SessionEnded):
                reason = None if connection.is_open else await connection.wait_closed()
                # A consumer of a queue that the broker has lost ends with the same code, but times out long before.
                if reason is None or reason.code not in _ENDED_BY_A_MESSAGE:
                    raise
                self._note(reason)
            finally:
                await connection.close()
            # Before Python 3.13, a task group that fails while it is cancelled forgets that it was cancelled.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError
            if self._retry.failures > _MOST_QUICK_TRIES:
                await asyncio.sleep(self._pause)

    async def _consume(self, connection: Connection) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(end_with(connection))
            if self._retry.failures:
                await self._begin(connection, tasks, prefetch=1)
                await asyncio.sleep(_CALM_SECONDS)
                log.warning(
                    "the queue can be consumed again", extra={"queue": self._queue, "tries": self._retry.failures}
                )
                self._retry.worked()
            await self._begin(connection, tasks, prefetch=self._prefetch)
            # Stay in the body: before Python 3.13, a group that fails at its end leaves its own cancellation behind.
            await asyncio.get_running_loop().create_future()

    async def _begin(self, connection: Connection, tasks: asyncio.TaskGroup, *, prefetch: int) -> None:
        channel = await connection.channel(prefetch=prefetch)
        tasks.create_task(self._take(channel, self._handle(channel, tasks)))

    async def _take(self, channel: Channel, deliveries: MemoryLimit) -> None:
        """Consume until cancelled; a consumer that the broker cancels is started again."""
        while True:
            reason = await consume_until_end(channel, self._queue, deliveries.on_message, arguments=_BEFORE_OTHERS)
            if reason is not None:
                raise SessionEnded(f"channel of {self._queue} closed: {reason}") from reason
            log.warning("consumer cancelled by the broker; starting it again", extra={"queue": self._queue})
            await asyncio.sleep(0.5)

    def _note(self, reason: BrokerError) -> None:
        self._pause = self._retry.failed()
        if self._retry.failures == 1:
            log.warning(
                "a message cannot be delivered; trying until the broker moves it away, others of its queue wait",
                extra={"queue": self._queue, "reason": str(reason)},
            )


async def end_with(connection: Connection) -> None:
    """Wait until a connection ends. Raises SessionEnded with the reason."""
    reason = await connection.wait_closed()
    raise SessionEnded(f"connection to the broker lost: {reason}") from reason
