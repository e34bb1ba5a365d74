"""Error replies and the poison inventory: how a request that cannot be served is brought to an end.

A caller gets a reply with correlation id and status; a reply that comes back (its caller is gone) is final.
A request without a caller to answer is kept in the poison inventory instead, so that no request just vanishes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence

from osrdyne.broker.publisher import MessageRefused, Publisher
from osrdyne.failures import dead_letter_rules
from osrdyne.metrics import Metrics
from osrdyne.state.delivery_history import PastDelivery
from osrdyne.state.worker_ends import LONGEST_REASON_OF_REQUEST
from osrdyne_amqp import Message, Properties
from osrdyne_amqp.errors import BrokerTimeout, Nacked, Returned
from osrdyne_protocol import events, headers
from osrdyne_protocol.names import PoolNames, is_reply_address
from osrdyne_runtime.retry import Retry

log = logging.getLogger(__name__)

#: Bytes of an entry's identity in the poison inventory: short enough to be typed.
_ID_BYTES = 6
#: How long a refused reply is tried again, and the longest pause between two tries.
_RETRY_SECONDS = 15.0
_LONGEST_PAUSE_SECONDS = 4.0
#: With this many replies waiting for their next try, a refused one is given up: they must not fill the prefetch.
_MOST_TRYING_AGAIN = 64


class ErrorReplies:
    """Sends error replies and keeps copies. Every method waits for the broker's confirm."""

    def __init__(self, names: PoolNames, publisher: Publisher, metrics: Metrics) -> None:
        self._names = names
        self._publisher = publisher
        self._metrics = metrics
        #: Replies that were refused and are tried again.
        self._trying_again = 0

    async def settle(
        self,
        message: Message,
        *,
        status: str,
        reason: str,
        expired_at: str | None = None,
        retry_after_ms: int | None = None,
    ) -> bool:
        """Answer a request's caller, or keep the request when there is none.

        `expired_at` is the stage (`osrdyne_protocol.expiry`) for the status `expired`, and `retry_after_ms` is for
        `throttled` and `start_failed`. Returns False when neither is possible now (the inventory is full): the caller
        must try again.
        """
        if await self.reply(
            message, status=status, reason=reason, expired_at=expired_at, retry_after_ms=retry_after_ms
        ):
            return True
        return await self.keep(
            message, reason=status, detail=reason, key=dead_letter_rules.original_key(message), queue=""
        )

    async def reply(
        self,
        message: Message,
        *,
        status: str,
        reason: str,
        expired_at: str | None = None,
        retry_after_ms: int | None = None,
    ) -> bool:
        """Answer the caller; return False when there is no caller who can be answered.

        That includes a reply queue that refuses or does not confirm for `_RETRY_SECONDS` (its owner chose its
        arguments).
        """
        reply_to = message.properties.reply_to
        if not is_reply_address(reply_to):
            return False
        given: dict[str, object] = {
            headers.X_STATUS: headers.status_for(message.properties.headers, status),
            headers.X_REASON: reason[:LONGEST_REASON_OF_REQUEST],
        }
        if expired_at is not None:
            given[headers.X_EXPIRED_AT] = expired_at
        if retry_after_ms is not None:
            given[headers.X_RETRY_AFTER] = retry_after_ms
        properties = Properties(correlation_id=message.properties.correlation_id, headers=given, delivery_mode=2)
        try:
            delivered = await self._deliver(reply_to, properties)
        except (MessageRefused, Nacked, BrokerTimeout) as error:
            log.warning("error reply refused", extra={"status": status, "reason": str(error)})
            return False
        self._metrics.replies.labels(status, "delivered" if delivered else "caller_gone").inc()
        return True

    async def _deliver(self, reply_to: str | bytes, properties: Properties) -> bool:
        """Publish a reply. A refused one is tried again for a while: the broker may refuse for a moment."""
        loop, retry = asyncio.get_running_loop(), Retry(limit=_LONGEST_PAUSE_SECONDS)
        patient_until = loop.time() + _RETRY_SECONDS
        while True:
            try:
                return await self._publisher.reply(reply_to, b"", properties)
            except (Nacked, BrokerTimeout):
                if self._trying_again >= _MOST_TRYING_AGAIN or loop.time() >= patient_until:
                    raise
            self._trying_again += 1
            try:
                await asyncio.sleep(retry.failed())
            finally:
                self._trying_again -= 1

    async def keep(
        self,
        message: Message,
        *,
        reason: str,
        detail: str,
        key: str | None,
        queue: str,
        attempts: Sequence[PastDelivery] = (),
    ) -> bool:
        """Put a copy into the inventory, or where copies wait for room; return False when both are full or missing.

        `attempts` are the known deliveries of the request to workers.
        """
        properties = dead_letter_rules.kept(
            message,
            poison_id=secrets.token_hex(_ID_BYTES),
            reason=reason,
            detail=detail,
            key=key,
            queue=queue,
            attempts=attempts,
            now_ms=events.wall_ms(),
        )
        return await self._store(message.body, properties, reason, queue)

    async def keep_again(self, message: Message) -> bool:
        """Put a copy that had to wait into the inventory, as `keep`."""
        properties = dead_letter_rules.kept_again(message)
        reason, queue = dead_letter_rules.kept_for(message)
        return await self._store(message.body, properties, reason or "", queue)

    async def _store(self, body: bytes, properties: Properties, reason: str, queue: str) -> bool:
        room, waiting = dead_letter_rules.room(self._names, reason, queue), self._names.waiting_queue
        # A pool of an earlier topology has the last one only.
        for place in dict.fromkeys((room, waiting, self._names.poison_queue)):
            try:
                await self._copy(place, body, properties)
            except (Nacked, Returned, MessageRefused, BrokerTimeout) as error:
                log.warning("the inventory has no room for a copy", extra={"queue": place, "reason": str(error)})
            else:
                self._metrics.poison.labels("waiting" if place == waiting else "kept").inc()
                return True
        self._metrics.poison.labels("refused").inc()
        return False

    async def _copy(self, queue: str, body: bytes, properties: Properties) -> None:
        try:
            await self._publisher.publish("", queue, body, properties)
        except MessageRefused:
            # The message's headers leave no room for ours: keep the body and our headers.
            ours = {name: value for name, value in (properties.headers or {}).items() if name in headers.POISON}
            ours[headers.X_POISON_DETAIL] = f"{ours.get(headers.X_POISON_DETAIL)}; its own headers did not fit"
            bare = Properties(headers=ours, delivery_mode=2)
            await self._publisher.publish("", queue, body, bare)
