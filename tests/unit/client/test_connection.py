"""When a client acknowledges replies, under virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osrdyne_amqp import Message, Properties
from osrdyne_client.connection import ACK_TIME_SECONDS, ClientConnection

pytestmark = pytest.mark.looptime


class Replies:
    """Stands for the channel of the reply queue: hands out what a test says, and keeps what is acknowledged."""

    def __init__(self) -> None:
        self.is_open = True
        self.acknowledged: list[tuple[int, bool, float]] = []
        self._on_message: Any = None

    async def declare_queue(self, name: str, **_: Any) -> None:
        """There is nothing to declare."""

    async def consume(self, queue: str, on_message: Any, **_: Any) -> None:
        self._on_message = on_message

    def deliver(self, tag: int) -> None:
        self._on_message(Message(b"", "", "reply", Properties(), tag, redelivered=False))

    def ack(self, tag: int, *, multiple: bool) -> None:
        self.acknowledged.append((tag, multiple, asyncio.get_running_loop().time()))


async def linked(seen: list[int]) -> Replies:
    replies: Any = Replies()
    nothing: Any = None
    link = ClientConnection(nothing, nothing, replies, "reply", lambda message: seen.append(message.delivery_tag))
    await link._consume()
    found: Replies = replies
    return found


async def test_replies_of_a_moment_are_given_out_at_once_and_acknowledged_together() -> None:
    seen: list[int] = []
    replies = await linked(seen)
    for tag in (1, 2, 3):
        replies.deliver(tag)
        await asyncio.sleep(ACK_TIME_SECONDS / 10)
    assert seen == [1, 2, 3]
    await asyncio.sleep(ACK_TIME_SECONDS)
    assert replies.acknowledged == [(3, True, ACK_TIME_SECONDS)]


async def test_a_reply_after_a_quiet_time_is_acknowledged_as_soon() -> None:
    replies = await linked([])
    for tag in (1, 2):
        replies.deliver(tag)
        await asyncio.sleep(10 * ACK_TIME_SECONDS)
    assert replies.acknowledged == [(1, True, ACK_TIME_SECONDS), (2, True, 11 * ACK_TIME_SECONDS)]


async def test_what_cannot_be_acknowledged_any_more_is_left_to_the_broker() -> None:
    replies = await linked([])
    replies.deliver(1)
    replies.is_open = False
    await asyncio.sleep(2 * ACK_TIME_SECONDS)
    assert not replies.acknowledged
