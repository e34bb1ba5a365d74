"""From orphan to forwarded and start called: the daemon next to a bare script that only forwards.

Each round sends requests of keys that have no group: some one after the other, then 64 at once. The end of one is when
its forward is confirmed and its orphan acknowledged, and for the daemon also when the driver was called; both sides
report that on the activity exchange, so both times hold the same three hops through the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count
from statistics import median

from benchmarks import rig as rigs
from benchmarks.ratios import Row, Target, compared
from benchmarks.rig import OUTSTANDING, Rig, Side
from benchmarks.watching import Watch, watching
from osrdyne_protocol.events import FORWARDED, GROUP_STARTED

BODY = bytes(100)
TARGET = Target(2.0, at_most=True)
BARE = "bare script"
#: Starts nothing that would cost anything: a process that only exists.
IDLE_PROCESS = ["/bin/sleep", "3600"]

#: Workers here show no sign of life, and by default eight starts without one hold up further starts for 10 s.
STARTS_IN_FLIGHT = 1_000_000

#: Side -> the events that end an orphan there.
ENDS = {"daemon": (FORWARDED, GROUP_STARTED), "bare": (FORWARDED,), "processes": (FORWARDED, GROUP_STARTED)}


def measure(rig: Rig) -> list[Row]:
    """Return a row for one at a time and one for many at once, each with two drivers."""
    return asyncio.run(_measure(rig))


async def _measure(rig: Rig) -> list[Row]:
    singles: dict[str, list[float]] = {side: [] for side in ENDS}
    bursts: dict[str, list[float]] = {side: [] for side in ENDS}
    async with AsyncExitStack() as stack:
        watches: dict[str, Watch] = {}
        for side in ENDS:
            pool = stack.enter_context(rig.pool())
            if side == "bare":
                forwarder = Side("bare_forwarder", rigs.administrator(pool), pool=pool.names.pool)
                stack.enter_context(forwarder).wait_ready()
            else:
                program = "benchmarks.sides.instant_daemon" if side == "daemon" else "osrdyne.cli"
                # The settings of the instant daemon name a driver too, which it does not use.
                stack.enter_context(
                    rig.daemon(pool, worker=IDLE_PROCESS, module=program, starts_in_flight=STARTS_IN_FLIGHT)
                )
            watches[side] = await stack.enter_async_context(watching(pool))
        keys = (f"key-{number}" for number in count())
        for side in ENDS:
            await _one_by_one(watches[side], side, keys, 3)  # the first ones open channels
        for done, side in enumerate(rigs.in_turns(rig.rounds, list(ENDS))):
            if done % len(ENDS) == 0:
                rig.progress(f"orphans: round {done // len(ENDS) + 1} of {rig.rounds}")
            singles[side].append(await _one_by_one(watches[side], side, keys, 5 if rig.quick else 20))
            bursts[side].append(await _at_once(watches[side], side, keys, OUTSTANDING))
    return _rows("one at a time", singles) + _rows(f"{OUTSTANDING} at once", bursts)


def _rows(how: str, taken: dict[str, list[float]]) -> list[Row]:
    bare = taken["bare"]
    return [
        compared(f"orphan to forwarded and start called, {how}", "ms", taken["daemon"], bare, BARE, TARGET),
        compared(f"orphan to forwarded and process started, {how}", "ms", taken["processes"], bare, BARE),
    ]


async def _one_by_one(watch: Watch, side: str, keys: Iterator[str], number: int) -> float:
    """Return the median of so many orphans, in milliseconds."""
    return median([await _at_once(watch, side, keys, 1) for _ in range(number)])


async def _at_once(watch: Watch, side: str, keys: Iterator[str], number: int) -> float:
    """Return milliseconds from the first publish to the end of the last."""
    fresh = [next(keys) for _ in range(number)]
    began = watch.cast(fresh, BODY)
    return (await watch.wait(fresh, ENDS[side]) - began) * 1000
