"""Takes waiting requests of a key out of its queue, when its workers cannot be started: they become orphans again.

The orphan forwarder then answers those that have a caller. The others wait there, until the key has its queue again. So
there is one place where requests are answered for it. A request is acknowledged once its copy is confirmed.

It ends at a request that should stay where it is. One without a caller would only stand in the way of other orphans.
One that a worker has taken counts towards the delivery limit. On RabbitMQ 4.0 each hand-out counts as a delivery, this
one too. So few are in hand at once, and as few as possible are given back.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from osrdyne.broker.publisher import MessageRefused, Publisher
from osrdyne.intake import orphan_rules
from osrdyne.state.pool import PoolState
from osrdyne.state.start_failures import is_taken
from osrdyne_amqp import Channel, Message
from osrdyne_amqp.errors import AccessRefused, BrokerTimeout, Nacked, Returned
from osrdyne_protocol import events, headers
from osrdyne_protocol.names import is_reply_address

log = logging.getLogger(__name__)

#: Requests in hand at once: each may be as large as the broker allows, for each channel.
_AT_ONCE = 2
#: Seconds without a request after which others have taken the rest.
_PATIENCE_SECONDS = 1.0


@dataclass(kw_only=True, eq=False)
class TakingBack:
    """`user` is the one that the daemon logged in as, None where unknown. `orphan_ttl_ms` and `message_ttl_ms` say how
    long an orphan lives, and a request in its queue.
    """

    state: PoolState
    publisher: Publisher
    user: str | None
    orphan_ttl_ms: int
    message_ttl_ms: int
    #: Keys that are wanted, and whose requests the daemon was not allowed to take.
    _forbidden: set[str] = field(default_factory=set, init=False)

    async def take(self, key: str, channel: Channel) -> int:
        """Take what waits in the queue of a key, which is not bound, while its requests are refused.

        Return the delivery count of a request that shows that a worker took it, -1 when none does. Raises
        `BrokerError`; the rest stays then.
        """
        queue = self.state.names.request_queue(key)
        left = (await channel.declare_queue(queue, passive=True)).ready
        if not left:
            return -1
        try:
            return await self._take(key, queue, left, channel)
        except BaseException:
            await channel.close()  # what is not settled goes back
            raise

    async def _take(self, key: str, queue: str, left: int, channel: Channel) -> int:
        inbox: asyncio.Queue[Message] = asyncio.Queue()
        await channel.limit(_AT_ONCE)
        try:
            tag = await channel.consume(queue, inbox.put_nowait, on_cancel=lambda: None)
        except AccessRefused as error:
            self._note_forbidden(key, str(error))
            return -1
        held, taken, failed = list[Message](), -1, False
        while left > 0 and not held and self.state.refused_until(key) is not None:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    held = [await inbox.get(), *_all_of(inbox)]
            except TimeoutError:
                break
            left -= len(held)
            taken = self._taken(key, held)
            if taken < 0 and all(_has_caller(message) for message in held):
                held = await self._move(held, channel)
                failed = bool(held)
        # Nothing more comes then, whatever is settled now.
        await channel.cancel(tag)
        held += _all_of(inbox)
        taken = max(taken, self._taken(key, held))
        if taken < 0 and not failed:
            held = await self._move(held, channel)
        for message in held:
            channel.give_back(message.delivery_tag)
        return taken

    def _taken(self, key: str, batch: list[Message]) -> int:
        counts = (headers.integer(message.properties.headers or {}, headers.X_DELIVERY_COUNT) or 0 for message in batch)
        most = max(counts, default=0)
        return most if is_taken(self.state.groups.attempt(key), most) else -1

    async def _move(self, messages: list[Message], channel: Channel) -> list[Message]:
        """Make orphans of requests, and return those of which it failed."""
        moved = await asyncio.gather(*(self._put_back(message, channel) for message in messages))
        return [message for message, is_orphan in zip(messages, moved, strict=True) if not is_orphan]

    async def _put_back(self, message: Message, channel: Channel) -> bool:
        if message.malformed is not None:
            # A copy would lack the headers that cannot be read: as a dead letter it is answered, or kept, as it is.
            channel.reject(message.delivery_tag, requeue=False)
            return True
        properties = orphan_rules.taken_back(
            message.properties,
            now_ms=events.wall_ms(),
            orphan_ttl_ms=self.orphan_ttl_ms,
            message_ttl_ms=self.message_ttl_ms,
            own_user=self.user,
        )
        try:
            await self.publisher.publish(
                self.state.names.orphan_exchange, message.routing_key, message.body, properties
            )
        except (Nacked, Returned, MessageRefused, BrokerTimeout) as error:
            log.warning("a request stays in its queue", extra={"reason": str(error)})
            return False
        channel.ack(message.delivery_tag)
        return True

    def _note_forbidden(self, key: str, reason: str) -> None:
        known, self._forbidden = key in self._forbidden, {key, *self._forbidden & self.state.tracker.wanted.keys()}
        if not known:
            log.warning(
                "the daemon may not take requests whose workers cannot be started; they wait; apply the topology",
                extra={"key": key, "reason": reason},
            )


def _all_of(inbox: asyncio.Queue[Message]) -> list[Message]:
    return [inbox.get_nowait() for _ in range(inbox.qsize())]


def _has_caller(message: Message) -> bool:
    return is_reply_address(message.properties.reply_to)
