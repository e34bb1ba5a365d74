"""Runs many seeds, on several processes, and adds up what the checker found."""

from __future__ import annotations

import gc
import multiprocessing
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields

from simulation.jobs.checker import Verdict, check
from simulation.jobs.scenario import scenario
from simulation.jobs.world import Outcome, simulate

#: Seeds that a process takes at a time.
_CHUNK = 8
#: Runs between two collections of garbage.
_COLLECT = 10
#: Lines of the end of a trace that a finding shows.
_TRACE = 25


@dataclass(slots=True)
class Result:
    """What one seed came to, small enough to send between processes."""

    seed: int
    jobs: int = 0
    runs: int = 0
    parked: int = 0
    cancelled: int = 0
    leases_lost: int = 0
    late_handlers: int = 0
    refused: int = 0
    lost: int = 0
    overlapping: int = 0
    broken: int = 0
    findings: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)


def run_seed(seed: int) -> tuple[Outcome, Verdict]:
    """Run and judge one seed."""
    outcome = simulate(scenario(seed))
    return outcome, check(outcome)


def result_of(seed: int) -> Result:
    """Run and judge one seed; what the simulation itself fails on is a finding, too."""
    gc.disable()  # it would take a tenth of the time
    if seed % _COLLECT == 0:
        gc.collect()
    try:
        outcome, verdict = run_seed(seed)
    except Exception:  # noqa: BLE001 - a seed that cannot be run is a finding, and the others go on
        return Result(seed, broken=1, findings=[f"the run failed:\n{traceback.format_exc()}"])
    findings = verdict.findings()
    return Result(
        seed,
        jobs=verdict.jobs,
        runs=verdict.runs,
        parked=verdict.parked,
        cancelled=verdict.cancelled,
        leases_lost=verdict.leases_lost,
        late_handlers=verdict.late_handlers,
        refused=verdict.refused,
        lost=len(verdict.lost),
        overlapping=len(verdict.overlapping),
        broken=len(verdict.broken),
        findings=findings,
        trace=short(outcome.trace) if findings else [],
    )


def short(trace: list[str]) -> list[str]:
    """Return the part of a trace around its first mistake, or else its end."""
    wrong = next((at for at, line in enumerate(trace) if "WRONG" in line), len(trace))
    return trace[max(0, wrong - _TRACE) : wrong + 2]


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
