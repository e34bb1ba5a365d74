"""Runs many seeds, on several processes, and adds up what the checker found."""

from __future__ import annotations

import gc
import multiprocessing
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from simulation.checker import check
from simulation.findings import Verdict
from simulation.scenario import scenario
from simulation.world import Outcome, simulate

#: Seeds that a process takes at a time.
_CHUNK = 8
#: Runs between two collections of garbage.
_COLLECT = 10


@dataclass(slots=True)
class Result:
    """What one seed came to, small enough to send between processes."""

    seed: int
    requests: int = 0
    lost: int = 0
    unanswered: int = 0
    duplicated: int = 0
    broken: int = 0
    lost_by_broker: int = 0
    findings: list[str] = field(default_factory=list)


def run_seed(seed: int) -> tuple[Outcome, Verdict]:
    """Run and judge one seed."""
    outcome = simulate(scenario(seed))
    return outcome, check(outcome)


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
        verdict.requests,
        len(verdict.lost),
        len(verdict.unanswered),
        len(verdict.duplicated),
        len(verdict.broken) + len(verdict.unexpected),
        len(verdict.lost_by_broker),
        verdict.findings(),
    )


def _begin() -> None:
    """Keep the collector of garbage from looking at imported modules: that takes a tenth of the time."""
    gc.freeze()


def results(seeds: Iterable[int], jobs: int) -> Iterator[Result]:
    """Run seeds on `jobs` processes; results come in the order of the seeds."""
    if jobs == 1:
        yield from map(result_of, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, _begin) as pool:
        yield from pool.imap(result_of, seeds, chunksize=_CHUNK)


def total(found: Iterable[Result]) -> Result:
    """Add up results; its seed is the number of seeds."""
    sum_of = Result(0)
    for one in found:
        sum_of.seed += 1
        sum_of.requests += one.requests
        sum_of.lost += one.lost
        sum_of.unanswered += one.unanswered
        sum_of.duplicated += one.duplicated
        sum_of.broken += one.broken
        sum_of.lost_by_broker += one.lost_by_broker
    return sum_of
