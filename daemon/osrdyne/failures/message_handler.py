"""What both handlers of messages do alike: a task for each message, and the way back to the tail of its queue.

A message that goes back lets others pass: publish, confirm, then acknowledge. A bug with one message is logged, and
the message is brought to an end, so that it does not fail again at every redelivery.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from osrdyne.broker.lifecycle_events import LifecycleEvents
from osrdyne.broker.memory_limit import MemoryLimit
from osrdyne.broker.publisher import Publisher
from osrdyne.failures.error_replies import ErrorReplies
from osrdyne.metrics import Metrics
from osrdyne.state.pool import PoolState
from osrdyne_amqp import Message, Properties
from osrdyne_amqp.errors import BrokerError, Nacked, Returned
from osrdyne_runtime.retry import Retry

log = logging.getLogger(__name__)

#: How long a message waits before it goes back, so that a queue of such messages does not circle at full speed: the
#: first while few wait, the second once they fill a quarter of the prefetch.
_DELAY_SECONDS = 0.5
_CROWDED_DELAY_SECONDS = 0.1


@dataclass(kw_only=True, eq=False)
class MessageHandler(ABC):
    """One task for each message, all under `tasks`. A task that fails ends the session; all are redelivered then."""

    state: PoolState
    deliveries: MemoryLimit
    publisher: Publisher
    error_replies: ErrorReplies
    lifecycle: LifecycleEvents
    metrics: Metrics
    tasks: asyncio.TaskGroup
    #: Messages taken from the broker and not yet settled, at most.
    prefetch: int
    _going_back: int = field(default=0, init=False)

    def on_message(self, message: Message) -> None:
        """Start a task for one message."""
        self.tasks.create_task(self._handle(message), name=type(self).__name__)

    async def _handle(self, message: Message) -> None:
        try:
            await self._process(message)
        except BrokerError:
            raise
        except Exception as error:
            if self.deliveries.holds(message.delivery_tag):
                await self._give_up(message, error)
            else:
                log.error("a bug showed after a message was acknowledged", exc_info=error)

    @abstractmethod
    async def _process(self, message: Message) -> None:
        """Bring a message to its end."""

    @abstractmethod
    async def _give_up(self, message: Message, error: Exception) -> None:
        """Log a bug, and bring the message that shows it, and is not settled, to an end nevertheless."""

    async def _send_back(self, message: Message, exchange: str, properties: Properties) -> None:
        """Publish a copy, wait for its confirm, and acknowledge the message.

        `exchange` is the fanout exchange of the message's queue, so the routing key stays the request's key.

        Raises `MessageRefused` when the message can never be published.
        """
        crowded = self._going_back >= self.prefetch // 4
        self._going_back += 1
        try:
            await asyncio.sleep(_CROWDED_DELAY_SECONDS if crowded else _DELAY_SECONDS)
        finally:
            self._going_back -= 1
        retry = Retry()
        while True:
            try:
                await self.publisher.publish(exchange, message.routing_key, message.body, properties)
                break
            except (Nacked, Returned):
                await asyncio.sleep(retry.failed())
        self.deliveries.ack(message.delivery_tag)
