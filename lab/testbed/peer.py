"""A worker whose every step a test decides: it takes requests of a key, and answers what and when the test says.

It stands for workers that are not ours: it sends no events, and replies whatever properties a test wants to see.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from osrdyne_amqp import Channel, Connection, Message, Properties
from osrdyne_pool.topology import request_queue_arguments
from osrdyne_protocol.event_batches import unpack
from testbed.pool import Pool
from testbed.waiting import PATIENCE_SECONDS

OK: Mapping[str, Any] = {"x-status": "ok"}


def administrator(pool: Pool) -> str:
    return pool.broker.amqp_uri(vhost=pool.vhost)


async def make_request_queue(pool: Pool, key: str, arguments: Mapping[str, Any] | None = None) -> None:
    """Declare and bind the request queue of a key, as the daemon does."""
    connection = await Connection.open(administrator(pool), name="test: request queue")
    channel = await connection.channel()
    queue = pool.names.request_queue(key)
    await channel.declare_queue(queue, arguments=arguments or request_queue_arguments(key))
    await channel.bind_queue(queue, pool.names.request_exchange, key)
    await connection.close()


class Peer:
    """Consumes one queue. `requests` has what came, in order."""

    def __init__(self, connection: Connection, channel: Channel, answer: Callable[[Message], bytes] | None) -> None:
        self._connection = connection
        self._channel = channel
        self._answer = answer
        self.requests: asyncio.Queue[Message] = asyncio.Queue()

    def _on_message(self, message: Message) -> None:
        if self._answer is None:
            self.requests.put_nowait(message)
        else:
            self.reply(message, self._answer(message))

    async def take(self) -> Message:
        """Return the next request."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.requests.get()

    async def take_events(self) -> list[dict[str, Any]]:
        """Return the events of the next message of the activity queue, and acknowledge it. `key` is their key."""
        message = await self.take()
        self.ack(message)
        events = unpack(message.properties.headers, message.body)
        return [{**event, "key": message.routing_key} for event in events]

    def reply(self, message: Message, body: bytes, headers: Mapping[str, Any] = OK) -> asyncio.Future[bool]:
        """Answer a request and acknowledge it; the future says whether its caller was there."""
        self.ack(message)
        properties = Properties(
            headers=dict(headers), correlation_id=message.properties.correlation_id, delivery_mode=2
        )
        return self._channel.publish_final("", str(message.properties.reply_to), body, properties)

    def ack(self, message: Message) -> None:
        self._channel.ack(message.delivery_tag)


@asynccontextmanager
async def consuming(pool: Pool, queue: str, answer: Callable[[Message], bytes] | None = None) -> AsyncIterator[Peer]:
    """A peer on a queue that exists. With `answer` it answers every request at once."""
    connection = await Connection.open(administrator(pool), name="test: peer")
    channel = await connection.channel(confirm=True)
    peer = Peer(connection, channel, answer)
    await channel.consume(queue, peer._on_message, on_cancel=lambda: None)
    try:
        yield peer
    finally:
        await connection.close()


@asynccontextmanager
async def peer_of(pool: Pool, key: str, answer: Callable[[Message], bytes] | None = None) -> AsyncIterator[Peer]:
    """A peer of a key, whose request queue is made first."""
    await make_request_queue(pool, key)
    async with consuming(pool, pool.names.request_queue(key), answer) as peer:
        yield peer
