"""Another program writes to Redis: no task of a node stops, its memory stays bounded, and true calls are answered."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections import Counter
from contextlib import suppress

import pytest

from osrdyne_relay import Relay, RelayError
from osrdyne_relay.redis.names import new_id
from testbed.hostile.chance import drawn
from testbed.hostile.redis import commands, strays
from testbed.redis import RedisServer
from testbed.waiting import until_async
from tests.relay.memory import reachable
from tests.relay.nodes import serving, settings
from tests.relay.test_access import rules_of_the_page
from tests.simulation.many_seeds import first_seed

FIRST = first_seed()


@pytest.mark.parametrize(
    "seed", [FIRST, *(pytest.param(FIRST + more, marks=pytest.mark.full) for more in range(1, 10))]
)
async def test_whatever_is_written_each_call_ends_and_later_ones_are_answered(seed: int, redis: RedisServer) -> None:
    import redis.asyncio as library

    stranger = library.Redis(port=redis.port, password=redis.password)
    node = settings(redis, timings={"pickup_timeout": 2.0})
    async with Relay(node) as near, Relay(node) as far, serving(far, "e", workers=3):
        tasks = len(near._node.tasks), len(far._node.tasks)
        for batch in range(20):
            calls = [near.start("e", b"x") for _ in range(5)]
            attacks = commands("test", "e", [call.id for call in calls], [near._node.id, far._node.id])
            for words in drawn(attacks, 1000 * seed + batch, 30):
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


@pytest.mark.parametrize("seed", [FIRST, *(pytest.param(FIRST + more, marks=pytest.mark.full) for more in range(1, 5))])
async def test_a_stolen_credential_of_a_node_stops_no_node_and_harms_no_call_of_other_endpoints(
    seed: int, redis: RedisServer
) -> None:
    import redis.asyncio as library

    # Given its rights, which are those of the page: it can do to an endpoint what a node can
    redis.run("ACL", "SETUSER", "stolen", "reset", *rules_of_the_page())
    stolen = library.Redis(port=redis.port, username="stolen", password="word")
    node = settings(redis, timings={"pickup_timeout": 2.0})
    async with Relay(node) as near, Relay(node) as far, serving(far, "e", workers=3), serving(far, "other", workers=3):
        await near.queue_and_wait("other", b"x")
        tasks = len(near._node.tasks), len(far._node.tasks)
        nodes, refused, stop = [near._node.id, far._node.id], Counter[str](), asyncio.Event()

        async def call() -> int:
            count = 0
            while not stop.is_set():
                assert (await near.queue_and_wait("other", b"x%d" % count)).body == b"X%d" % count
                count += 1
            return count

        calling = asyncio.create_task(call())
        for batch in range(10):
            calls = [near.start("e", b"x") for _ in range(5)]
            attacks = commands("test", "e", [call.id for call in calls], nodes) | strays("test", "other", nodes)
            for words in drawn(attacks, 1000 * seed + batch, 60):
                try:
                    await stolen.execute_command(*words)  # type: ignore[no-untyped-call]
                except library.RedisError as error:  # a key of another type, or what it may not do
                    refused[str(words[0]) if "permission" in str(error) else "type"] += 1
            for pending in calls:
                with suppress(RelayError):
                    await pending.response()
        stop.set()
        assert await calling > 0
        assert refused.keys() - {"type"} == {"DEL"}

        # What it made of the endpoint, an operator takes away.
        await asyncio.to_thread(redis.run, "DEL", "test:{e}:waiting", "test:{e}:life", "test:{e}:polled")
        assert (await near.queue_and_wait("e", b"y")).body == b"Y"
        await until_async(lambda: (len(near._node.tasks), len(far._node.tasks)) == tasks)
        await until_async(lambda: not near._node.calls and not far._node.held)
    await stolen.aclose()


@pytest.mark.full
async def test_a_flood_of_false_ids_keeps_neither_memory_nor_true_calls(redis: RedisServer) -> None:
    import redis.asyncio as library

    stranger = library.Redis(port=redis.port, password=redis.password)
    async with Relay(settings(redis)) as near, Relay(settings(redis)) as far:
        # Listens to the endpoint, and has seen its own part of the flood, before memory is measured.
        await far.dequeue("e", wait=0.1)
        tracemalloc.start()
        try:
            before = reachable()
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
            grown = reachable() - before
        finally:
            tracemalloc.stop()
        with pytest.raises(RelayError):
            await call.response()
    await stranger.aclose()

    # Of twenty megabytes.
    assert grown < 2_000_000
