"""What is asked over an open connection whose broker says nothing any more ends in its time."""

from __future__ import annotations

import asyncio
from typing import Any

from osrdyne_amqp import Connection
from osrdyne_amqp.errors import BrokerTimeout
from osrdyne_calls.closing import CLOSE_SECONDS
from testbed.in_time import in_time
from tests.broker.fake_broker import fake_broker
from tests.unit.runtime.commands_on_peers import SHORT_SECONDS


async def test_what_is_asked_of_a_silent_broker_ends_in_time() -> None:
    is_silent = asyncio.Event()

    def silence(channel: int, method: Any) -> list[bytes] | None:
        return [] if is_silent.is_set() else None

    async with fake_broker(silence) as broker:
        connection = await Connection.open(broker.uri, name="test", answers=SHORT_SECONDS)
        channels = [await connection.channel(prefetch=1) for _ in range(8)]
        consumer = await channels[0].consume("q", lambda _: None, on_cancel=lambda: None)
        is_silent.set()
        asked = (
            channels[0].cancel(consumer),
            channels[1].declare_queue("q", passive=True),
            channels[2].bind_queue("q", "x", "43"),
            channels[3].unbind_queue("q", "x", "43"),
            channels[4].delete_queue("q"),
            channels[5].limit(2),
            channels[6].consume("q", lambda _: None, on_cancel=lambda: None),
            connection.channel(),
        )

        found = await in_time(asyncio.gather(*asked, return_exceptions=True), SHORT_SECONDS)

        assert [answer for answer in found if not isinstance(answer, BrokerTimeout)] == []
        await in_time(channels[7].close(), CLOSE_SECONDS)
        await in_time(connection.close(), CLOSE_SECONDS)
