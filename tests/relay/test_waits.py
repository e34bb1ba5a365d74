"""Every operation of a node whose Redis stands still ends in time, also while calls are under way."""

from __future__ import annotations

import asyncio

from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_relay import Answer, RedisAway, Relay, RelayError
from testbed.in_time import in_time
from testbed.redis import RedisServer
from tests.relay.nodes import settings
from tests.unit.runtime.commands_on_peers import SHORT_SECONDS

#: Seconds for which a transaction is tried again, without the time of the last answer.
RETRIES_SECONDS = 2.0


async def test_each_operation_of_a_node_whose_redis_stands_still_ends_in_time(private_redis: RedisServer) -> None:
    redis = {"answer_timeout": SHORT_SECONDS, "connect_timeout": SHORT_SECONDS}
    node = settings(private_redis, redis=redis, timings={"retry_for": RETRIES_SECONDS, "response_stays": 60.0})
    async with Relay(node) as near, Relay(node) as far:
        calls = [near.start("e", b"before", timeout=60.0) for _ in range(5)]
        held = [await far.dequeue("e") for _ in range(5)]
        private_redis.stand_still()
        assert all(held)
        first, second, third, fourth = (request for request in held[:4] if request is not None)
        operations = (
            near.queue_and_wait("e", b"", timeout=SHORT_SECONDS),
            near.polled("e"),
            near.ask_redis(),
            far.dequeue("e", wait=SHORT_SECONDS),
            far.apply_response(first.id, b"answer"),
            second.apply(Answer(b"answer")),
            third.fail("it broke"),
            fourth.give_back(),
            calls[4].cancel(),
        )

        results = await in_time(
            asyncio.gather(*operations, return_exceptions=True), RETRIES_SECONDS + 2 * SHORT_SECONDS
        )

        assert [result for result in results if not isinstance(result, RelayError | None)] == []
        assert sum(isinstance(result, RedisAway) for result in results) >= 4
        await in_time(asyncio.gather(near.close(), far.close()), CLOSE_SECONDS)
        await in_time(asyncio.gather(*(call.response() for call in calls), return_exceptions=True), 0.0)
        await in_time(asyncio.gather(*(call.ended() for call in calls)), 0.0)
        private_redis.go_on()
