"""Two thousand endpoints on one node: few connections, few commands, and each of them answers."""

from __future__ import annotations

import asyncio

import pytest

from osrdyne_relay import Relay
from testbed.redis import RedisServer
from testbed.waiting import until_async
from tests.relay.nodes import serving, settings

ENDPOINTS = [f"pool/key-{number}" for number in range(2000)]
SECONDS = 20.0


def calls_of(redis: RedisServer, command: str) -> int:
    """How often a command was executed."""
    found = redis.run("INFO", "commandstats").get(f"cmdstat_{command}", {"calls": 0})
    return int(found["calls"])


def idle_calls(redis: RedisServer) -> int:
    """How many commands were executed that an idle endpoint may cost, those of transactions included."""
    return sum(calls_of(redis, command) for command in ("lrange", "set", "publish", "multi", "exec"))


@pytest.mark.full
async def test_two_thousand_endpoints_share_few_connections_and_idle_ones_cost_8_commands_a_minute(
    redis: RedisServer,
) -> None:
    defaults = {"beat_every": 15.0, "server_gone_after": 60.0, "caller_gone_after": 90.0, "look_every": 15.0}
    node = settings(redis, timings={**defaults, "look_first": 1.0})
    async with Relay(node) as near, Relay(node) as far, asyncio.TaskGroup() as tasks:
        stop = asyncio.Event()

        async def serve(endpoint: str) -> None:
            async with serving(far, endpoint):
                await stop.wait()

        for endpoint in ENDPOINTS:
            tasks.create_task(serve(endpoint))
        await until_async(lambda: redis.run("PUBSUB", "NUMSUB", f"test:{{{ENDPOINTS[-1]}}}:pulse")[1] == 1)
        answers = await asyncio.gather(*(near.queue_and_wait(endpoint, endpoint.encode()) for endpoint in ENDPOINTS))
        assert [answer.body for answer in answers] == [endpoint.upper().encode() for endpoint in ENDPOINTS]

        # Each node: those of the settings, and one for pulses. One more is this test's.
        assert len(redis.run("CLIENT", "LIST").splitlines()) <= 2 * (8 + 1) + 1

        # When the endpoints have come to rest: after 1, 2, 4 and 8 seconds, and then every 15.
        await asyncio.sleep(45)
        before, began = idle_calls(redis), asyncio.get_running_loop().time()
        await asyncio.sleep(SECONDS)
        minutes = (asyncio.get_running_loop().time() - began) / 60
        per_endpoint = (idle_calls(redis) - before) / len(ENDPOINTS) / minutes
        stop.set()
    # A minute has four pauses of 15 s; each endpoint may be met once more in the time.
    # At each it looks, and says that it is polled.
    assert 0 < per_endpoint <= 2 * (4 + 1 / minutes)
