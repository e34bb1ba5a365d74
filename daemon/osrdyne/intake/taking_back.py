"""Takes waiting requests of a key out of its queue, when its workers cannot be started: they become orphans again.

The orphan forwarder then answers those that have a caller. The others wait there, until the key has its queue again. So
there is one place where requests are answered for it. A request is acknowledged once its copy is confirmed.

It gives nothing back: each hand-out counts as a delivery on RabbitMQ 4.0, and so the daemon would bury requests that no
worker had. A copy begins with a count of its own. So it carries how often workers took the request, and the daemon
makes a dead letter of one that they took too often. It ends at such a request, and at one without a caller, which would
only stand in the way of other orphans. Where a copy is not confirmed, requests do go back. Then the key is left alone
for as long as a request may wait, so that no request goes back more than once or twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from osrdyne.broker.publisher import MessageRefused, Publisher
from osrdyne.intake import orphan_rules
from osrdyne.state.pool import PoolState
from osrdyne.state.start_failures import taken_by_workers
from osrdyne_amqp import Channel, Message
from osrdyne_amqp.errors import AccessRefused, BrokerTimeout, Nacked, Returned
from osrdyne_protocol import events, headers
from osrdyne_protocol.names import is_reply_address

log = logging.getLogger(__name__)

#: Requests in hand at once: each may be as large as the broker allows, for each channel.
_AT_ONCE = 2
#: Seconds without a request after which others have taken the rest.
_PATIENCE_SECONDS = 1.0

#: How often workers took a request, in all its queues; 0 when they did not take it in this one.
Delivered = Callable[[Message], int]


@dataclass(kw_only=True, eq=False)
class TakingBack:
    """`user` is the one that the daemon logged in as, None where unknown. `orphan_ttl_ms` and `message_ttl_ms` say how
    long an orphan lives, and a request in its queue. `delivery_limit` is that of request queues.
    """

    state: PoolState
    publisher: Publisher
    user: str | None
    orphan_ttl_ms: int
    message_ttl_ms: int
    delivery_limit: int
    #: Of each key, how many starts of the row had ended when its queue was last looked at; 0 where the row ended then.
    _looked: dict[str, int] = field(default_factory=dict, init=False)
    #: When requests of a key last went back, because their copies were not confirmed.
    _gave_back: dict[str, float] = field(default_factory=dict, init=False)
    #: Keys that are wanted, and whose requests the daemon was not allowed to take.
    _forbidden: set[str] = field(default_factory=set, init=False)

    async def take(self, key: str, channel: Channel) -> bool:
        """Take what waits in the queue of a key, which is not bound, while its requests are refused.

        Return whether workers had taken a request that was found: then they start, whatever they say. Raises
        `BrokerError`; the rest stays then.
        """
        queue, unstarted = self.state.names.request_queue(key), self.state.groups.attempt(key).unstarted
        left = (await channel.declare_queue(queue, passive=True)).ready
        if not left or self._must_wait(key):
            return False
        delivered = partial(_delivered, unstarted=unstarted, looked=self._looked.get(key, 0))
        try:
            taken = await self._take(key, queue, left, delivered, channel)
        except BaseException:
            self._gave_back[key] = self.state.clock()
            self._looked.pop(key, None)
            await channel.close()  # what is not settled goes back
            raise
        wanted = self.state.tracker.wanted
        self._looked = {key: count for key, count in self._looked.items() if key in wanted}
        self._looked[key] = 0 if taken or key in self._gave_back else unstarted
        return taken

    def _must_wait(self, key: str) -> bool:
        """Return whether a look may find that no copy is confirmed, so that it would have to give requests back."""
        since = self.state.clock() - self.message_ttl_ms / 1000
        self._gave_back = {key: at for key, at in self._gave_back.items() if at > since}
        return key in self._gave_back or self.state.counts.alarm is not None

    async def _take(self, key: str, queue: str, left: int, delivered: Delivered, channel: Channel) -> bool:
        inbox: asyncio.Queue[Message] = asyncio.Queue()
        await channel.limit(_AT_ONCE)
        try:
            tag = await channel.consume(queue, inbox.put_nowait, on_cancel=lambda: None)
        except AccessRefused as error:
            self._note_forbidden(key, str(error))
            return False
        held, failed, taken = list[Message](), list[Message](), False
        while left > 0 and not held and not failed and self.state.refused_until(key) is not None:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    held = [await inbox.get(), *_all_of(inbox)]
            except TimeoutError:
                break
            left -= len(held)
            taken = any(delivered(message) for message in held)
            if not taken and all(_has_caller(message) for message in held):
                failed, held = await self._move(held, queue, delivered, channel), []
        # Nothing more comes then, whatever is settled now.
        await channel.cancel(tag)
        held += _all_of(inbox)
        taken = taken or any(delivered(message) for message in held)
        failed += held if failed else await self._move(held, queue, delivered, channel)
        for message in failed:
            channel.give_back(message.delivery_tag)
            self._gave_back[key] = self.state.clock()
        return taken

    async def _move(self, messages: list[Message], queue: str, delivered: Delivered, channel: Channel) -> list[Message]:
        """Make orphans of requests, and return those of which it failed."""
        moved = await asyncio.gather(*(self._put_back(message, queue, delivered, channel) for message in messages))
        return [message for message, is_orphan in zip(messages, moved, strict=True) if not is_orphan]

    async def _put_back(self, message: Message, queue: str, delivered: Delivered, channel: Channel) -> bool:
        if message.malformed is not None:
            # A copy would lack the headers that cannot be read: as a dead letter it is answered, or kept, as it is.
            channel.reject(message.delivery_tag, requeue=False)
            return True
        times = delivered(message)
        exchange, properties = self.state.names.dead_letter_exchange, message.properties
        if times > self.delivery_limit:
            properties = orphan_rules.buried(properties, queue=queue, delivered=times)
        else:
            exchange = self.state.names.orphan_exchange
            properties = orphan_rules.taken_back(
                properties,
                delivered=times,
                now_ms=events.wall_ms(),
                orphan_ttl_ms=self.orphan_ttl_ms,
                message_ttl_ms=self.message_ttl_ms,
                own_user=self.user,
            )
        try:
            await self.publisher.publish(exchange, message.routing_key, message.body, properties)
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


def _delivered(message: Message, *, unstarted: int, looked: int) -> int:
    if not message.redelivered:
        return 0  # whatever its client wrote there
    given = message.properties.headers or {}
    count = headers.integer(given, headers.X_DELIVERY_COUNT) or 0
    here = taken_by_workers(count, unstarted=unstarted, looked=looked)
    return here + headers.delivered_before(given) if here else 0
