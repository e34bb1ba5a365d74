"""Seeds of jobs: what the checker found, in numbers, and where a trace shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from simulation import seeds
from simulation.jobs.checker import Verdict, check
from simulation.jobs.scenario import scenario
from simulation.jobs.world import Outcome, simulate

#: Lines of the end of a trace that a finding shows.
_TRACE = 25


@dataclass(slots=True)
class Result(seeds.SeedResult):
    """What one seed came to."""

    jobs: int = 0
    runs: int = 0
    parked: int = 0
    cancelled: int = 0
    leases_lost: int = 0
    late_handlers: int = 0
    refused: int = 0
    lost: int = 0
    overlapping: int = 0
    trace: list[str] = field(default_factory=list)


def run_seed(seed: int) -> tuple[Outcome, Verdict]:
    """Run and judge one seed."""
    outcome = simulate(scenario(seed))
    return outcome, check(outcome)


def result_of(seed: int) -> Result:
    """Run and judge one seed, and return the numbers. Raises nothing."""
    return seeds.judged(Result, _judge, seed)


def _judge(seed: int) -> Result:
    outcome, verdict = run_seed(seed)
    findings = verdict.findings()
    return Result(
        seed,
        broken=len(verdict.broken),
        findings=findings,
        jobs=verdict.jobs,
        runs=verdict.runs,
        parked=verdict.parked,
        cancelled=verdict.cancelled,
        leases_lost=verdict.leases_lost,
        late_handlers=verdict.late_handlers,
        refused=verdict.refused,
        lost=len(verdict.lost),
        overlapping=len(verdict.overlapping),
        trace=short(outcome.trace) if findings else [],
    )


def short(trace: list[str]) -> list[str]:
    """Return the part of a trace around its first mistake, or else its end."""
    wrong = next((at for at, line in enumerate(trace) if "WRONG" in line), len(trace))
    return trace[max(0, wrong - _TRACE) : wrong + 2]


def results(of: Iterable[int], processes: int) -> Iterator[Result]:
    """Run seeds on some processes; results come in the order of the seeds."""
    return seeds.results(result_of, of, processes)


def total(found: Iterable[Result]) -> Result:
    """Add up results; its seed is the number of seeds."""
    return seeds.total(found, Result(0))
