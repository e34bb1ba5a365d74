"""Another program writes to Redis: no task of a node stops, its memory stays bounded, and true calls are answered."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from osrdyne_relay import Relay, RelayError
from osrdyne_relay.names import new_id
from testbed.redis import RedisServer
from testbed.waiting import until_async
from tests.relay.nodes import serving, settings

CALL = "test:{e}:call:"


def noise(chance: random.Random) -> bytes:
    """Bytes that may look like ours."""
    return chance.choice(
        (
            b"",
            new_id().encode(),
            b"OR1\0\0\0\2{}",
            b"OR1\xff\xff\xff\xff",
            b"OR1\0\0\0\x60" + b'{"id":"%s","endpoint":"e","node":"%s","life":"%s"}' % ((new_id().encode(),) * 3),
            b"r" + new_id().encode() + b"OR1",
            b"l" + new_id().encode(),
            chance.randbytes(chance.choice((1, 32, 65, 1000))),
        )
    )


def strange(chance: random.Random, node: str, calls: list[str]) -> tuple[Any, ...]:
    """A command of a stranger who knows names of ours."""
    one = chance.choice([*calls, new_id()])
    field = chance.choice(("request", "response", "claim", "caller", "server", "cancel", "over", "other"))
    return chance.choice(
        (
            ("RPUSH", "test:{e}:waiting", noise(chance)),
            ("PUBLISH", "test:{e}:pulse", noise(chance)),
            ("PUBLISH", f"test:node:{node}", noise(chance)),
            ("HSET", CALL + one, field, noise(chance)),
            ("HDEL", CALL + one, field),
            ("DEL", CALL + one),
            ("SET", CALL + one, noise(chance)),
            ("SET", "test:{e}:life", noise(chance)),
            ("SET", "test:{e}:waiting", noise(chance)),
            ("DEL", "test:{e}:waiting", "test:{e}:life"),
        )
    )


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.full)])
async def test_whatever_is_written_each_call_ends_and_later_ones_are_answered(seed: int, redis: RedisServer) -> None:
    import redis.asyncio as library

    chance = random.Random(seed)
    stranger = library.Redis(port=redis.port, password=redis.password)
    node = settings(redis, timings={"pickup_timeout": 2.0})
    async with Relay(node) as near, Relay(node) as far, serving(far, "e", workers=3):
        tasks = len(near._node.tasks), len(far._node.tasks)
        for _ in range(20):
            calls = [near.start("e", b"x") for _ in range(5)]
            for _ in range(20):
                words = strange(chance, chance.choice((near, far))._node.id, [call.id for call in calls])
                with suppress(library.RedisError):  # a key of another type
                    await stranger.execute_command(*words)  # type: ignore[no-untyped-call]
            for call in calls:
                with suppress(RelayError):
                    await call.response()
        await stranger.flushall()
        await stranger.aclose()

        assert (await near.queue_and_wait("e", b"y")).body == b"Y"
        # Nothing is left of what was found, and nothing stopped.
        await until_async(lambda: (len(near._node.tasks), len(far._node.tasks)) == tasks)
        await until_async(lambda: not near._node.calls and not far._node.held)


@pytest.mark.full
async def test_a_flood_of_false_ids_keeps_neither_memory_nor_true_calls(redis: RedisServer) -> None:
    import redis.asyncio as library

    stranger = library.Redis(port=redis.port, password=redis.password)
    async with Relay(settings(redis)) as near, Relay(settings(redis)) as far:
        # Listens to the endpoint, and has seen its own part of the flood, before memory is measured.
        await far.dequeue("e", wait=0.1)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(100):
                pipeline = stranger.pipeline(transaction=False)
                for _ in range(200):
                    pipeline.publish("test:{e}:pulse", new_id())
                    pipeline.publish(f"test:node:{far._node.id}", b"r" + new_id().encode() + bytes(1000))
                pipeline.rpush("test:{e}:waiting", *(b"x" * 1000 for _ in range(5)))
                await pipeline.execute()
            call = near.start("e", b"x")
            while (request := await far.dequeue("e")) is None:
                pass
            await request.fail("done")
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        with pytest.raises(RelayError):
            await call.response()
    await stranger.aclose()

    # Of twenty megabytes.
    assert grown < 2_000_000
