"""Runs many seeds, on several processes, and adds up what the checker found."""

from __future__ import annotations

import gc
import multiprocessing
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields

from simulation.relay.checker import Verdict, check
from simulation.relay.scenario import scenario
from simulation.relay.world import World, simulate

_CHUNK = 8
#: Runs between two collections of garbage.
_COLLECT = 10


@dataclass(slots=True)
class Result:
    """What one seed came to, small enough to send between processes."""

    seed: int
    calls: int = 0
    answered: int = 0
    failed: int = 0
    orphaned: int = 0
    lost: int = 0
    twice: int = 0
    broken: int = 0
    findings: list[str] = field(default_factory=list)


def run_seed(seed: int) -> tuple[World, Verdict]:
    """Run and judge one seed."""
    world = simulate(scenario(seed))
    return world, check(world)


def result_of(seed: int) -> Result:
    """Run and judge one seed; what the simulation itself fails on is a finding, too."""
    if seed % _COLLECT == 0:
        gc.collect()
    try:
        _, verdict = run_seed(seed)
    except Exception:  # noqa: BLE001 - a seed that cannot be run is a finding, and the others go on
        return Result(seed, broken=1, findings=[f"the run failed:\n{traceback.format_exc()}"])
    return Result(
        seed,
        verdict.calls,
        verdict.answered,
        verdict.failed,
        verdict.orphaned,
        len(verdict.lost),
        len(verdict.twice),
        len(verdict.broken),
        verdict.findings(),
    )


def _begin() -> None:
    """Keep the collector of garbage from looking at imported modules: that takes a tenth of the time."""
    gc.freeze()


def results(seeds: Iterable[int], processes: int) -> Iterator[Result]:
    """Run seeds on some processes; results come in the order of the seeds."""
    if processes == 1:
        yield from map(result_of, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, _begin) as pool:
        yield from pool.imap(result_of, seeds, chunksize=_CHUNK)


def total(found: Iterable[Result]) -> Result:
    """Add up results; its seed is the number of seeds."""
    sums = Result(0)
    for one in found:
        sums.seed += 1
        for number in fields(Result):
            if number.type == "int" and number.name != "seed":
                setattr(sums, number.name, getattr(sums, number.name) + getattr(one, number.name))
    return sums
