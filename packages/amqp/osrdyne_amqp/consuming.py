"""Consuming a queue for as long as the broker lets a program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from osrdyne_amqp.channels.channel import Channel
from osrdyne_amqp.errors import BrokerError
from osrdyne_amqp.message import Message


async def consume_until_end(
    channel: Channel,
    queue: str,
    on_message: Callable[[Message], None],
    *,
    on_begin: Callable[[], None] = lambda: None,
    no_ack: bool = False,
    arguments: Mapping[str, Any] | None = None,
) -> BrokerError | None:
    """Consume until the channel ends, and return why; None when the broker cancelled the consumer.

    `on_begin` is called when the broker has accepted the consumer. Raises what `Channel.consume` raises.
    """
    cancelled = asyncio.Event()
    await channel.consume(queue, on_message, on_cancel=cancelled.set, no_ack=no_ack, arguments=arguments)
    on_begin()
    ended, again = asyncio.ensure_future(channel.wait_closed()), asyncio.ensure_future(cancelled.wait())
    try:
        await asyncio.wait((ended, again), return_when=asyncio.FIRST_COMPLETED)
        return ended.result() if ended.done() else None
    finally:
        ended.cancel()
        again.cancel()
