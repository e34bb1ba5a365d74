"""Counts the groups that the daemon starts and stops, from the pool's events stream.

Reads `{pool}-events` from now on, as the pool's monitor user may; writes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib

import osrdyne_amqp as amqp
from osrdyne_protocol import events, headers, names
from osrdyne_protocol.event_batches import UnreadableBatch, unpack


class GroupWatch:
    """Groups started and stopped since the watch began."""

    def __init__(self) -> None:
        self.started = 0
        self.stopped = 0
        #: Set while no group runs that was started since.
        self.all_stopped = asyncio.Event()
        self.all_stopped.set()
        self._running: set[str | bytes] = set()
        self._connection: amqp.Connection | None = None
        self._channel: amqp.Channel | None = None

    async def open(self, uri: str, pool: str) -> None:
        """Begin to count. Raises what `amqp.Connection.open` and `consume` raise."""
        self._connection = await amqp.Connection.open(uri, name=f"{pool} demo, events")
        self._channel = await self._connection.channel(prefetch=500)
        await self._channel.consume(
            names.PoolNames(pool).events_stream,
            self._on_message,
            on_cancel=lambda: None,
            arguments={"x-stream-offset": "next"},
        )

    async def close(self) -> None:
        """Stop counting."""
        if self._connection is not None:
            await self._connection.close()

    def _on_message(self, message: amqp.Message) -> None:
        with contextlib.suppress(UnreadableBatch):
            for given in unpack(message.properties.headers, message.body):
                self._on_event(message.routing_key, headers.text(given.get(headers.X_EVENT)))
        if self._channel is not None:
            self._channel.ack(message.delivery_tag)

    def _on_event(self, key: str | bytes, event: str | None) -> None:
        if event == events.GROUP_STARTED:
            self.started += 1
            self._running.add(key)
        elif event == events.GROUP_STOPPED and key in self._running:  # the daemon sends it again when a stop takes long
            self.stopped += 1
            self._running.discard(key)
        if self._running:
            self.all_stopped.clear()
        else:
            self.all_stopped.set()
