"""Connecting with pika on asyncio: the part that every program of the bare peer needs and that is not measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection


class Opening:
    """A connection, and what is asked of it once at the start."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    @classmethod
    async def connect(cls, uri: str) -> Opening:
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        AsyncioConnection(
            pika.URLParameters(uri),
            on_open_callback=opened.set_result,
            on_open_error_callback=lambda _, error: opened.set_exception(error),
        )
        return cls(await opened)

    async def channel(self, *, on_confirm: Callable[[Any], None] | None = None, prefetch: int | None = None) -> Any:
        """Open a channel, with confirms when they have a callback."""
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.connection.channel(on_open_callback=opened.set_result)
        channel = await opened
        if prefetch is not None:
            await self.call(channel.basic_qos, prefetch_count=prefetch)
        if on_confirm is not None:
            await self.call(channel.confirm_delivery, on_confirm)
        return channel

    async def call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Ask the broker something and wait for its answer."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        method(*arguments, callback=answered.set_result, **options)
        return await answered
