"""A cold start from publish to reply, and its parts, with a worker that starts as fast as Python can.

Real daemon, driver `subprocess`, one process for each key. What a worker loads at its start comes on top, and is the
larger part of any real one.
"""

from __future__ import annotations

import asyncio
import sys
import time

from benchmarks import rig as rigs
from benchmarks.ratios import Row, Spread
from benchmarks.rig import Rig
from benchmarks.watching import Watch, watching
from osrdyne_client import AsyncClient
from osrdyne_protocol import events
from testbed import ROOT

MINIMAL_WORKER = [sys.executable, "-I", "-S", "-E", str(ROOT / "lab/testbed/minimal_worker.py")]
BODY = bytes(100)
#: The events on the way, and what each means. The daemon starts the worker and forwards at the same time.
STEPS = {
    events.ORPHAN_SEEN: "the daemon has the orphan",
    events.QUEUE_READY: "its queue is bound",
    events.GROUP_STARTED: "its process runs",
    events.FORWARDED: "the request is in its queue",
    events.STARTED: "the worker is connected",
    events.REQUEST_RECEIVED: "the worker has the request",
}


def measure(rig: Rig) -> list[Row]:
    """Return the whole, then when each step was done, all from the publish."""
    return asyncio.run(_measure(rig))


async def _measure(rig: Rig) -> list[Row]:
    number = 5 if rig.quick else 20
    wholes: list[float] = []
    parts: dict[str, list[float]] = {step: [] for step in STEPS}
    with rig.pool() as pool, rig.daemon(pool, worker=MINIMAL_WORKER):
        async with watching(pool) as watch, AsyncClient(rigs.administrator(pool), pool.names.pool) as client:
            for key in (f"key-{index}" for index in range(number + 1)):
                rig.progress(f"cold start: {key}")
                whole, steps = await _one(watch, client, key)
                if key == "key-0":
                    continue  # the first one opens channels
                wholes.append(whole)
                for step, moment in steps.items():
                    parts[step].append(moment)
    return [
        Row(measure="cold start, publish to reply", unit="ms", ours=Spread.of(wholes)),
        *(
            Row(measure=f"cold start, until {STEPS[step]}", unit="ms", ours=Spread.of(moments))
            for step, moments in parts.items()
        ),
    ]


async def _one(watch: Watch, client: AsyncClient, key: str) -> tuple[float, dict[str, float]]:
    """Return milliseconds from publish to reply, and to each step."""
    began = time.monotonic()
    await client.call(key, BODY)
    whole = (time.monotonic() - began) * 1000
    await watch.wait([key], tuple(STEPS))
    return whole, {step: (watch.seen[key, step] - began) * 1000 for step in STEPS}
