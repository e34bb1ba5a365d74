"""Consuming until the channel ends or the broker cancels the consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from osrdyne_amqp import Channel, Message
from osrdyne_amqp.consuming import consume_until_end
from osrdyne_amqp.errors import BrokerError, ChannelClosed, NotFound

pytestmark = pytest.mark.looptime


class ConsumerChannel(Channel):
    """A channel on which the test says what happens to the consumer."""

    def __init__(self) -> None:
        self.cancel_by_broker: Callable[[], None]
        self.no_ack = False
        self.end: asyncio.Future[BrokerError] = asyncio.get_running_loop().create_future()
        self.refuses = False

    async def consume(
        self,
        queue: str,
        on_message: Callable[[Message], None],
        *,
        on_cancel: Callable[[], None],
        no_ack: bool = False,
        arguments: Any = None,
        exclusive: bool = False,
    ) -> str:
        if self.refuses:
            raise NotFound
        self.cancel_by_broker, self.no_ack = on_cancel, no_ack
        return "tag"

    async def wait_closed(self) -> BrokerError:
        return await asyncio.shield(self.end)


def consuming(channel: ConsumerChannel, begun: list[str]) -> asyncio.Task[BrokerError | None]:
    return asyncio.ensure_future(
        consume_until_end(channel, "q", lambda _: None, on_begin=lambda: begun.append("begun"), no_ack=True)
    )


async def test_the_reason_is_returned_when_the_channel_ends() -> None:
    channel, begun = ConsumerChannel(), list[str]()
    task = consuming(channel, begun)
    await asyncio.sleep(1.0)
    assert (begun, channel.no_ack, task.done()) == (["begun"], True, False)
    reason = ChannelClosed("gone")
    channel.end.set_result(reason)
    assert await task is reason


async def test_a_consumer_that_the_broker_cancels_ends_without_a_reason_and_leaves_no_task() -> None:
    channel, others = ConsumerChannel(), asyncio.all_tasks()
    task = consuming(channel, [])
    await asyncio.sleep(1.0)
    channel.cancel_by_broker()
    assert await task is None
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == others


async def test_a_queue_that_cannot_be_consumed_raises_the_refusal_and_never_begins() -> None:
    channel, begun = ConsumerChannel(), list[str]()
    channel.refuses = True
    with pytest.raises(NotFound):
        await consuming(channel, begun)
    assert begun == []
