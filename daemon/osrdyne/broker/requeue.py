"""Putting a message back at the tail of its queue, so that others pass it: publish, confirm, then acknowledge."""

from __future__ import annotations

import asyncio
import secrets

from osrdyne.broker.publisher import Publisher
from osrdyne.runtime.back_off import back_off
from osrdyne_amqp import Message, Properties
from osrdyne_amqp.errors import Nacked, Returned

#: How long a message waits before it goes back, so that a queue of such messages does not circle at full speed: the
#: first while few wait, the second once they fill their share of the prefetch.
_DELAY_SECONDS = 0.5
_CROWDED_DELAY_SECONDS = 0.1


class Requeuer:
    """Puts messages back; at most about `share` messages wait the longer delay at the same time."""

    def __init__(self, publisher: Publisher, *, share: int) -> None:
        self._publisher = publisher
        self._share = share
        self._waiting = 0

    async def put(self, message: Message, exchange: str, properties: Properties) -> None:
        """Publish a copy and wait for its confirm; the caller acknowledges the original.

        `exchange` is the fanout exchange of the message's queue, so the routing key stays the request's key.

        Raises `MessageRefused` when the message can never be published.
        """
        crowded = self._waiting >= self._share
        self._waiting += 1
        try:
            await asyncio.sleep(_CROWDED_DELAY_SECONDS if crowded else _DELAY_SECONDS)
        finally:
            self._waiting -= 1
        failures = 0
        while True:
            try:
                await self._publisher.publish(
                    exchange, message.routing_key, message.body, properties, publish_id=secrets.token_hex(8)
                )
                return
            except (Nacked, Returned):
                failures += 1
                await asyncio.sleep(back_off(failures))
