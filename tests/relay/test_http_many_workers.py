"""Two thousand workers poll at one node: bounded memory, few connections to Redis, and each of them answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from testbed.redis import RedisServer
from testbed.waiting import until_async
from tests.relay.http_nodes import GRANTS, Raw, http_settings, raw
from tests.relay.http_processes import NodeProcess

WORKERS = 2000


@pytest.mark.full
async def test_two_thousand_workers_poll_at_one_node(redis: RedisServer, tmp_path: Path) -> None:
    grants = {
        **GRANTS,
        "worker": {"serve": ["key-*"], "most": WORKERS + 10},
        "caller": {"call": ["key-*"], "most": WORKERS + 10},
    }
    # This process needs longer than the short times of other tests for an answer to each.
    times = {"beat_every": 15.0, "server_gone_after": 60.0, "caller_gone_after": 90.0, "pickup_timeout": 120.0}
    node = http_settings(
        redis, tmp_path, grants=grants, timings=times, serve={"longest_poll": 300.0, "stranger_timeout": 120.0}
    )
    with NodeProcess(node, tmp_path) as process:
        async with raw(await process.url()) as http:
            before = process.memory()

            async def work(number: int) -> None:
                request, body = await http.poll("worker", f"key-{number}", wait=300)
                status, _, _ = await http.ask("worker", "POST", f"/v1/requests/{request}/response", body.upper())
                assert status == 204

            workers = [asyncio.create_task(work(number)) for number in range(WORKERS)]
            await until_async(lambda: _polls(http))
            waiting = process.memory()
            calls = [
                http.ask("caller", "POST", f"/v1/call?endpoint=key-{number}", b"x%d" % number)
                for number in range(WORKERS)
            ]
            answers = await asyncio.gather(*calls)
            assert [(status, body) for status, _, body in answers] == [
                (200, b"X%d" % number) for number in range(WORKERS)
            ]
            await asyncio.gather(*workers)
            after = process.memory()
            # Those of the settings, one for pulses, and this test's.
            assert len(redis.run("CLIENT", "LIST").splitlines()) <= 8 + 1 + 1
    print(f"a waiting worker takes {(waiting - before) / WORKERS / 1024:.0f} KiB; {after / 2**20:.0f} MiB at the end")
    assert (waiting - before) / WORKERS < 100_000
    assert after - before < 400 * 2**20


async def _polls(http: Raw) -> bool:
    return f"osrdyne_relay_polls {WORKERS}.0" in (await http.ask("monitor", "GET", "/metrics"))[2].decode().splitlines()
