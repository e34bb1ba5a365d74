"""Watching a pool from outside: when which event of which key came, by this process's clock.

Daemon and workers report what they do on the activity exchange. An event is seen one hop through the broker after it
happened; where two sides are compared, both are seen so.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import psutil

from benchmarks.rig import administrator
from osrdyne_amqp import Channel, Connection, Message, Properties
from osrdyne_protocol.event_batches import unpack
from osrdyne_protocol.headers import X_EVENT, text
from testbed.pool import Pool

#: Longest time in seconds for anything that is waited for here.
PATIENCE_SECONDS = 60.0


class Watch:
    """Sees all events of a pool, and publishes requests that are never answered."""

    def __init__(self, pool: Pool, publisher: Channel) -> None:
        self._exchange = pool.names.request_exchange
        self._publisher = publisher
        #: Moment at which an event of a key was first seen.
        self.seen: dict[tuple[str, str], float] = {}
        self._news = asyncio.Event()

    def on_event(self, message: Message) -> None:
        for given in unpack(message.properties.headers, message.body):
            self.seen.setdefault((str(message.routing_key), text(given.get(X_EVENT)) or ""), time.monotonic())
        self._news.set()

    def cast(self, keys: Iterable[str], body: bytes) -> float:
        """Send a request to each key, and return when that was."""
        now = time.monotonic()
        for key in keys:
            properties = Properties(delivery_mode=2, correlation_id=key)
            self._publisher.send(self._exchange, key, body, properties, mandatory=True)
        return now

    async def wait(self, keys: Iterable[str], events: tuple[str, ...]) -> float:
        """Wait until all these events have come for each key; return when the last came."""
        wanted = {(key, event) for key in keys for event in events}
        missing = wanted - self.seen.keys()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while missing:
                    self._news.clear()
                    await self._news.wait()
                    missing -= self.seen.keys()
        except TimeoutError:
            raise RuntimeError(f"not seen within {PATIENCE_SECONDS:g} s: {sorted(missing)[:5]}") from None
        return max(self.seen[name] for name in wanted)


@asynccontextmanager
async def watching(pool: Pool) -> AsyncIterator[Watch]:
    """Watch a pool from now on."""
    connection = await Connection.open(administrator(pool), name="benchmark: watch")
    try:
        publisher, consumer = await connection.channel(), await connection.channel()
        watch = Watch(pool, publisher)
        queue = f"watch-{secrets.token_hex(8)}"
        arguments = {"x-queue-type": "classic"}
        await consumer.declare_queue(queue, durable=False, exclusive=True, arguments=arguments)
        await consumer.bind_queue(queue, pool.names.activity_exchange, "")
        await consumer.consume(queue, watch.on_event, on_cancel=lambda: None, no_ack=True)
        yield watch
    finally:
        await connection.close()


def share_of_a_core(process: psutil.Process, seconds: float) -> float:
    """Return how much of one core a process takes, over so many seconds: 0 to the number of cores."""
    before = process.cpu_times()
    time.sleep(seconds)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / seconds
