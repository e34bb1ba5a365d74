"""Calls to 20 keys by a client that also calls a key whose queue the broker lost, next to one that does not.

This runs on RabbitMQ 4.0, which loses queues for good, and without a daemon, which would declare the queue again within
seconds. So the queue stays lost all the time. The client calls the lost key again and again with a time limit of a
second.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from benchmarks import rig as rigs
from benchmarks.ratios import Row, Target, compared
from benchmarks.rig import Rig, Side
from benchmarks.sides.turns import BODY
from osrdyne_client import AsyncClient, errors
from testbed.broker import Broker
from testbed.lost_queue import lose
from testbed.peer import make_request_queue
from testbed.pool import Pool

VERSION = "4.0"
OTHERS = [f"key-{number}" for number in range(20)]
LOST = "lost"
#: Callers of the lost key, and seconds after which each gives up and calls again.
LOST_CALLERS, LOST_TIMEOUT = 4, 1.0
#: Callers of each other key.
CALLERS = 2
MOST_SLOWER = Target(0.9)
MOST_LATER = Target(2.0, at_most=True)


@dataclass(slots=True)
class TurnResult:
    """What was seen of the other keys in one turn."""

    seconds: float = 0.0
    #: Of each call, in seconds.
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    @property
    def p99_ms(self) -> float:
        return sorted(self.latencies)[int(len(self.latencies) * 0.99)] * 1000


def measure(rig: Rig) -> list[Row]:
    """Return a row for calls a second and one for the 99th percentile of their times."""
    with Broker(VERSION) as broker, replace(rig, broker=broker).pool() as pool:
        return asyncio.run(_measure(rig, pool))


async def _measure(rig: Rig, pool: Pool) -> list[Row]:
    for key in (LOST, *OTHERS):
        await make_request_queue(pool, key)
    await asyncio.to_thread(lose, pool.broker, pool.vhost, pool.names.request_queue(LOST))
    seen: dict[str, list[TurnResult]] = {"with": [], "without": []}
    with ExitStack() as stack:
        queues = [pool.names.request_queue(key) for key in OTHERS]
        stack.enter_context(Side("echo_worker", rigs.administrator(pool), queues=queues)).wait_ready()
        for done, side in enumerate(rigs.in_turns(rig.rounds, list(seen))):
            if done % len(seen) == 0:
                rig.progress(f"lost queue: round {done // len(seen) + 1} of {rig.rounds}")
            async with AsyncClient(rigs.administrator(pool), pool.names.pool) as client:
                seen[side].append(await _turn(client, 2 * rig.seconds, calls_lost=side == "with"))
    rates = {side: [turn.rate for turn in turns] for side, turns in seen.items()}
    late = {side: [turn.p99_ms for turn in turns] for side, turns in seen.items()}
    return [
        compared(
            "calls to 20 keys beside a lost one", "1/s", rates["with"], rates["without"], "no lost key", MOST_SLOWER
        ),
        compared("their 99th percentile", "ms", late["with"], late["without"], "no lost key", MOST_LATER),
    ]


async def _turn(client: AsyncClient, seconds: float, *, calls_lost: bool) -> TurnResult:
    loop, seen = asyncio.get_running_loop(), TurnResult()
    began = loop.time()

    async def call(key: str) -> None:
        while (now := loop.time()) < began + seconds:
            if (await client.call(key, BODY)).body != BODY:
                raise AssertionError("an answer is not what was sent")
            seen.latencies.append(loop.time() - now)

    async def call_lost() -> None:
        while True:
            with contextlib.suppress(errors.CallTimeout, errors.Nacked):
                await client.call(LOST, BODY, timeout=LOST_TIMEOUT)

    lost = [asyncio.ensure_future(call_lost()) for _ in range(LOST_CALLERS if calls_lost else 0)]
    await asyncio.gather(*(call(key) for key in OTHERS for _ in range(CALLERS)))
    seen.seconds = loop.time() - began
    for queue_name in lost:
        queue_name.cancel()
    await asyncio.gather(*lost, return_exceptions=True)
    return seen
