"""What the daemon costs where it is not needed: processor time while warm calls run, and memory by number of keys.

Requests and replies of a warm key do not pass the daemon. It only receives the workers' events, two a request.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from benchmarks import rig as rigs
from benchmarks.ratios import Row, Spread, compared
from benchmarks.rig import OUTSTANDING, Daemon, Rig, Side
from benchmarks.watching import watching
from osrdyne_protocol.events import FORWARDED
from testbed.pool import Pool

#: Requests under way at once.
LOADS = (OUTSTANDING, 1)
#: Keys that are new at once while memory is measured.
BATCH = 100
MEGABYTE = 1024 * 1024


def measure(rig: Rig) -> list[Row]:
    """Return a row for each load and each number of keys."""
    with rig.pool() as pool, rig.daemon(pool) as daemon:
        return _processor(rig, pool, daemon) + _memory(rig)


def _processor(rig: Rig, pool: Pool, daemon: Daemon) -> list[Row]:
    rows = []
    with ExitStack() as stack:
        worker = stack.enter_context(rigs.our_worker(pool, "steady", prefetch=OUTSTANDING, threads=0))
        client = stack.enter_context(rigs.client("our_client", pool, "steady"))
        client.turn(rig.seconds)
        for outstanding in LOADS:
            rig.progress(f"steady: {outstanding} at once")
            turns = [_turn(rig, daemon, client, worker, outstanding) for _ in range(rig.rounds)]
            rows.append(
                compared(
                    f"steady path, daemon's CPU per 1,000 requests, {outstanding} at once",
                    "s",
                    [daemon_seconds for daemon_seconds, _ in turns],
                    [others for _, others in turns],
                    "client + worker",
                )
            )
    return rows


def _turn(rig: Rig, daemon: Daemon, client: Side, worker: Side, outstanding: int) -> tuple[float, float]:
    """Return CPU seconds per 1,000 requests of the daemon, and of client and worker together."""
    before = rigs.cpu_seconds(daemon.process), rigs.cpu_seconds(worker.process)
    turn = client.turn(2 * rig.seconds, outstanding)
    used = rigs.cpu_seconds(daemon.process) - before[0], rigs.cpu_seconds(worker.process) - before[1]
    return used[0] * 1000 / turn.calls, (used[1] + turn.cpu) * 1000 / turn.calls


def _memory(rig: Rig) -> list[Row]:
    """Return the daemon's resident memory. A daemon of its own: what calls leave behind is not of the keys."""
    sizes = (0, 100) if rig.quick else (0, 100, 1000)
    with rig.pool() as pool, rig.daemon(pool) as daemon:
        return asyncio.run(_grow(rig, pool, daemon, sizes))


async def _grow(rig: Rig, pool: Pool, daemon: Daemon, sizes: tuple[int, ...]) -> list[Row]:
    rows, keys = [], 0
    async with watching(pool) as watch:
        for size in sizes:
            rig.progress(f"memory: {size} keys")
            while keys < size:
                fresh = [f"key-{number}" for number in range(keys, min(keys + BATCH, size))]
                keys += len(fresh)
                watch.cast(fresh, b"")
                await watch.wait(fresh, (FORWARDED,))
            resident = daemon.process.memory_info().rss / MEGABYTE
            rows.append(Row(measure=f"daemon's memory, {size:,} keys", unit="MB", ours=Spread.of([resident])))
    return rows
