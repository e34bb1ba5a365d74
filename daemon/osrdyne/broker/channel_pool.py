"""Channels for operations that may each break their channel: one operation a channel at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TypeVar

from osrdyne_amqp import Channel, Connection
from osrdyne_amqp.errors import BrokerTimeout

T = TypeVar("T")


class ChannelPool:
    """Lends each of its channels to one operation at a time."""

    def __init__(self, connection: Connection, size: int) -> None:
        self._connection = connection
        self._free: list[Channel] = []
        self._slots = asyncio.Semaphore(size)
        #: At most half of the channels are for operations that failed before.
        self._for_suspects = asyncio.Semaphore(max(1, size // 2))

    async def run(self, operation: Callable[[Channel], Awaitable[T]], *, suspect: bool) -> T:
        """Wait for a free channel, and run an operation on it.

        `suspect` marks an operation that may hang: such operations do not block all channels.
        """
        async with self._for_suspects if suspect else nullcontext(), self._slots:
            channel = await self._open()
            try:
                return await operation(channel)
            except BrokerTimeout:
                # The next call on this channel would wait behind the unanswered one.
                await channel.close()
                raise
            finally:
                if channel.is_open:
                    self._free.append(channel)

    async def _open(self) -> Channel:
        while self._free:
            channel = self._free.pop()
            if channel.is_open:
                return channel
        return await self._connection.channel()
