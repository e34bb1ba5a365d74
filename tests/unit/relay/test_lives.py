"""The life of an endpoint: a value that is never used twice."""

from __future__ import annotations

from typing import Any

from osrdyne_relay import RelaySettings
from osrdyne_relay.node import Node
from osrdyne_relay.redis.port import Away, Command, Hear, RedisPort, Subscriber
from osrdyne_relay.streams.base import NoStreams


class LosesOneAnswer(RedisPort):
    """A Redis that does what is asked, and whose first answer is lost."""

    def __init__(self) -> None:
        self.asked: list[Command] = []

    async def run(self, *commands: Command) -> list[Any]:
        self.asked.append(commands[0])
        if len(self.asked) == 1:
            raise Away("no answer in time", sent=True)
        return [None, 1, str(self.asked[0][2]).encode()]

    def subscriber(self, hear: Hear) -> Subscriber:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


async def test_a_life_is_begun_again_with_another_value_and_the_first_one_counts() -> None:
    redis = LosesOneAnswer()
    node = Node(redis, NoStreams(), RelaySettings.from_mapping({"redis": {"url": "redis://h"}}))

    life = await node.life("e")

    first, second = (command[2] for command in redis.asked)
    assert first != second
    assert life == first
