"""Channels for operations that may each break their channel: one operation a channel at a time."""

from __future__ import annotations

import asyncio

from osrdyne_amqp import Channel, Connection


class ChannelPool:
    """Lends each of its channels to one operation at a time."""

    def __init__(self, connection: Connection, size: int) -> None:
        self._connection = connection
        self._free: list[Channel] = []
        self._slots = asyncio.Semaphore(size)
        #: At most half of the channels are for operations that failed before.
        self.for_suspects = asyncio.Semaphore(max(1, size // 2))

    async def take(self) -> Channel:
        """Wait for a free channel. Give it back with `give`."""
        await self._slots.acquire()
        try:
            while self._free:
                channel = self._free.pop()
                if channel.is_open:
                    return channel
            return await self._connection.channel()
        except BaseException:
            self._slots.release()
            raise

    def give(self, channel: Channel) -> None:
        if channel.is_open:
            self._free.append(channel)
        self._slots.release()
