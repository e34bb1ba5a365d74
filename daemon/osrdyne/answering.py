"""Error replies and the poison inventory: how a request that cannot be served is brought to an end.

Whoever has a caller is answered with correlation id and status; a reply that comes back (its caller is gone)
is final. What nobody can be told is kept in the poison inventory instead, so that no request just vanishes.
"""

from __future__ import annotations

import logging
import secrets

from osrdyne import dead_letters
from osrdyne.forwarding import names_pool_queue
from osrdyne.journal import wall_ms
from osrdyne.metrics import Metrics
from osrdyne.publishing import Publisher, Refused
from osrdyne_client.amqp import Message, Properties
from osrdyne_client.errors import BrokerTimeout, Nacked, Returned
from osrdyne_protocol import headers
from osrdyne_protocol.names import PoolNames

log = logging.getLogger(__name__)

#: Longest reason that a reply carries, in characters.
_REASON_LENGTH = 500


class Answerer:
    """Sends error replies and keeps copies. Every method waits for the broker's confirm."""

    def __init__(self, names: PoolNames, publisher: Publisher, metrics: Metrics) -> None:
        self._names = names
        self._publisher = publisher
        self._metrics = metrics

    async def settle(self, message: Message, *, status: str, reason: str) -> bool:
        """Answer a request's caller, or keep the request when there is none.

        Returns False when neither was possible now (the inventory is full): it must be tried again.
        """
        if await self.reply(message, status=status, reason=reason):
            return True
        key = dead_letters.original_key(message)
        return await self.keep(message, reason=status, detail=reason, key=key, queue="")

    async def reply(self, message: Message, *, status: str, reason: str) -> bool:
        """Answer the caller; returns False when there is nobody who could be answered.

        A reply queue that refuses or never confirms (its owner chose its arguments) is nobody, too.
        """
        reply_to = message.properties.reply_to
        if not reply_to or names_pool_queue(reply_to, self._names):
            return False
        properties = Properties(
            correlation_id=message.properties.correlation_id,
            headers={headers.X_STATUS: status, headers.X_REASON: reason[:_REASON_LENGTH]},
            delivery_mode=2,
        )
        try:
            delivered = await self._publisher.reply(reply_to, b"", properties)
        except (Refused, Nacked, BrokerTimeout) as error:
            log.warning("error reply refused", extra={"status": status, "reason": str(error)})
            return False
        self._metrics.replies.labels(status, "delivered" if delivered else "caller_gone").inc()
        return True

    async def keep(self, message: Message, *, reason: str, detail: str, key: str | None, queue: str) -> bool:
        """Put a copy into the poison inventory; returns False when it is full or missing."""
        properties = dead_letters.kept(message, reason=reason, detail=detail, key=key, queue=queue, now_ms=wall_ms())
        try:
            await self._copy(message, properties)
        except (Nacked, Returned, Refused, BrokerTimeout) as error:
            self._metrics.poison.labels("refused").inc()
            log.warning("poison inventory refused a copy", extra={"key": key, "reason": str(error)})
            return False
        self._metrics.poison.labels("kept").inc()
        return True

    async def _copy(self, message: Message, properties: Properties) -> None:
        try:
            await self._keep_as(message, properties)
        except Refused:
            # What was there already leaves no room for what we add: the body and our own headers are kept.
            ours = {name: value for name, value in (properties.headers or {}).items() if name in headers.POISON}
            ours[headers.X_POISON_DETAIL] = f"{ours.get(headers.X_POISON_DETAIL)}; its own headers did not fit"
            await self._keep_as(message, Properties(headers=ours, delivery_mode=2))

    async def _keep_as(self, message: Message, properties: Properties) -> None:
        await self._publisher.publish(
            "", self._names.poison_queue, message.body, properties, publish_id=secrets.token_hex(8)
        )
