"""Seeds of the relay: what the checker found, in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from simulation import seeds
from simulation.relay.checker import Verdict, check
from simulation.relay.scenario import scenario
from simulation.relay.world import World, simulate


@dataclass(slots=True)
class Result(seeds.SeedResult):
    """What one seed came to."""

    calls: int = 0
    answered: int = 0
    failed: int = 0
    orphaned: int = 0
    lost: int = 0
    twice: int = 0


def run_seed(seed: int) -> tuple[World, Verdict]:
    """Run and judge one seed."""
    world = simulate(scenario(seed))
    return world, check(world)


def result_of(seed: int) -> Result:
    """Run and judge one seed, and return the numbers. Raises nothing."""
    return seeds.judged(Result, _judge, seed)


def _judge(seed: int) -> Result:
    _, verdict = run_seed(seed)
    return Result(
        seed,
        broken=len(verdict.broken),
        findings=verdict.findings(),
        calls=verdict.calls,
        answered=verdict.answered,
        failed=verdict.failed,
        orphaned=verdict.orphaned,
        lost=len(verdict.lost),
        twice=len(verdict.twice),
    )


def results(of: Iterable[int], processes: int) -> Iterator[Result]:
    """Run seeds on some processes; results come in the order of the seeds."""
    return seeds.results(result_of, of, processes)


def total(found: Iterable[Result]) -> Result:
    """Add up results; its seed is the number of seeds."""
    return seeds.total(found, Result(0))
