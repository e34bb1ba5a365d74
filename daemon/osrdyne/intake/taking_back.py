"""Takes waiting requests of a key out of its queue, when its workers cannot be started: they become orphans again.

The orphan forwarder then answers those that have a caller. The others wait there, until the key has its queue again. So
there is one place where requests are answered for it. A request is acknowledged once its copy is confirmed.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from osrdyne.broker.publisher import MessageRefused, Publisher
from osrdyne.intake import orphan_rules
from osrdyne.state.pool import PoolState
from osrdyne_amqp import Channel, Message
from osrdyne_amqp.errors import AccessRefused, BrokerTimeout, Nacked, Returned
from osrdyne_protocol import events, headers

log = logging.getLogger(__name__)

#: Requests in hand at once.
_AT_ONCE = 16
#: Seconds without a request after which others have taken the rest.
_PATIENCE_SECONDS = 1.0


@dataclass(kw_only=True, eq=False)
class TakingBack:
    """`user` is the one that the daemon logged in as, None where unknown. `orphan_ttl_ms`: how long an orphan lives."""

    state: PoolState
    publisher: Publisher
    user: str | None
    orphan_ttl_ms: int

    async def take(self, key: str, channel: Channel) -> None:
        """Take what waits in the queue of a key, which is not bound. Raises `BrokerError`; the rest stays then."""
        queue = self.state.names.request_queue(key)
        left = (await channel.declare_queue(queue, passive=True)).ready
        if left:
            try:
                await self._take(key, queue, left, channel)
            except BaseException:
                await channel.close()  # what is not settled goes back
                raise

    async def _take(self, key: str, queue: str, left: int, channel: Channel) -> None:
        inbox: asyncio.Queue[Message] = asyncio.Queue()
        await channel.limit(_AT_ONCE)
        try:
            tag = await channel.consume(queue, inbox.put_nowait, on_cancel=lambda: None)
        except AccessRefused as error:
            log.warning(
                "the daemon may not take requests whose workers cannot be started; they wait; apply the topology",
                extra={"key": key, "reason": str(error)},
            )
            return
        while left > 0:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    first = await inbox.get()
            except TimeoutError:
                break
            left -= await self._move([first, *_all_of(inbox)], channel)
        await channel.cancel(tag)
        await self._move(_all_of(inbox), channel)

    async def _move(self, messages: list[Message], channel: Channel) -> int:
        await asyncio.gather(*(self._put_back(message, channel) for message in messages))
        return len(messages)

    async def _put_back(self, message: Message, channel: Channel) -> None:
        if message.malformed is not None:
            # A copy would lack the headers that cannot be read: as a dead letter it is answered, or kept, as it is.
            channel.reject(message.delivery_tag, requeue=False)
            return
        properties = orphan_rules.put_back(
            message.properties,
            seen_ms=events.wall_ms(),
            orphan_ttl_ms=self.orphan_ttl_ms,
            own_user=self.user,
            let_in=True,
        )
        # It had found its queue, so that its forwards do not count.
        properties.headers.pop(headers.X_HOPS, None)
        try:
            await self.publisher.publish(
                self.state.names.orphan_exchange, message.routing_key, message.body, properties
            )
        except (Nacked, Returned, MessageRefused, BrokerTimeout) as error:
            log.warning("a request stays in its queue", extra={"reason": str(error)})
            channel.give_back(message.delivery_tag)
        else:
            channel.ack(message.delivery_tag)


def _all_of(inbox: asyncio.Queue[Message]) -> list[Message]:
    return [inbox.get_nowait() for _ in range(inbox.qsize())]
