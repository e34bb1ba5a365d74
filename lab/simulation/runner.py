"""Seeds of the daemon: what the checker found, in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from simulation import seeds
from simulation.checker import check
from simulation.findings import Verdict
from simulation.scenario import scenario
from simulation.world import Outcome, simulate


@dataclass(slots=True)
class Result(seeds.SeedResult):
    """What one seed came to."""

    requests: int = 0
    lost: int = 0
    unanswered: int = 0
    duplicated: int = 0
    lost_by_broker: int = 0


def run_seed(seed: int) -> tuple[Outcome, Verdict]:
    """Run and judge one seed."""
    outcome = simulate(scenario(seed))
    return outcome, check(outcome)


def result_of(seed: int) -> Result:
    """Run and judge one seed, and return the numbers. Raises nothing."""
    return seeds.judged(Result, _judge, seed)


def _judge(seed: int) -> Result:
    _, verdict = run_seed(seed)
    return Result(
        seed,
        broken=len(verdict.broken) + len(verdict.unexpected),
        findings=verdict.findings(),
        requests=verdict.requests,
        lost=len(verdict.lost),
        unanswered=len(verdict.unanswered),
        duplicated=len(verdict.duplicated),
        lost_by_broker=len(verdict.lost_by_broker),
    )


def results(of: Iterable[int], processes: int) -> Iterator[Result]:
    """Run seeds on some processes; results come in the order of the seeds."""
    return seeds.results(result_of, of, processes)


def total(found: Iterable[Result]) -> Result:
    """Add up results; its seed is the number of seeds."""
    return seeds.total(found, Result(0))
