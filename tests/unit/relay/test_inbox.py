"""What an endpoint's inbox gives to a worker. Under virtual time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from osrdyne_relay import RelaySettings
from osrdyne_relay.node import Node
from osrdyne_relay.redis import records
from osrdyne_relay.redis.port import Command, Hear, RedisPort, Subscriber
from osrdyne_relay.redis.records import RequestHeader
from osrdyne_relay.serving import Collected, Inbox
from osrdyne_relay.streams.base import NoStreams

pytestmark = pytest.mark.looptime


class Silent(RedisPort):
    """A Redis that does not answer."""

    async def run(self, *commands: Command) -> list[Any]:
        await asyncio.get_running_loop().create_future()
        return []

    def subscriber(self, hear: Hear) -> Subscriber:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(("waited", "given"), [(-1.0, True), (1.0, False)])
async def test_a_request_that_waited_too_long_for_a_worker_is_given_to_none(waited: float, given: bool) -> None:
    node = Node(Silent(), NoStreams(), RelaySettings.from_mapping({"redis": {"url": "redis://h"}}))
    inbox = Inbox(node, "e")
    header = records.made(RequestHeader, id="0" * 32, endpoint="e", node=node.id, life="0" * 32, headers={}, streams={})
    collected = Collected(node, "token", header, b"")
    inbox.hand_over(collected)
    # The process stood still: time has passed, and no timer of it has run.
    before = node.now()
    node.now = lambda: before + node.timings.hold_for + waited  # type: ignore[method-assign]

    async def next_request() -> object:
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                return await inbox.next(node.now())
        return None

    assert (await next_request() is collected) is given
    collected.drop()
