"""Hundreds of seeds: nothing is lost, no client waits in vain, no invariant breaks; the same seed is the same run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation import runner
from simulation.scenario import Kind, scenario
from simulation.world import simulate
from tests.simulation.many_seeds import many

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", [1, 251, *(pytest.param(first, marks=pytest.mark.full) for first in (501, 751))])
def test_hundreds_of_seeds_lose_nothing_and_break_nothing(first: int) -> None:
    jobs = min(2, os.cpu_count() or 1)
    found = list(runner.results(range(first, first + 250), jobs))
    assert [(verdict.seed, verdict.findings) for verdict in found if verdict.findings] == []
    # And they are not empty
    assert sum(verdict.requests for verdict in found) > 1500


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", many(), ids=str)
def test_ten_thousand_seeds_lose_nothing_and_break_nothing(seeds: range) -> None:
    found = runner.results(seeds, min(2, os.cpu_count() or 1))
    assert [(verdict.seed, verdict.findings) for verdict in found if verdict.findings] == []


@pytest.mark.parametrize("seed", [3, 5, 8, 40])
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    first, second = (list(simulate(scenario(seed)).history.lines()) for _ in range(2))
    assert first == second
    assert len(first) > 100


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    # Sets and dictionaries of text are ordered by a random number of each process, unless it is given.
    program = (
        "import hashlib; from simulation.scenario import scenario; from simulation.world import simulate\n"
        "for seed in range(1, 7):\n"
        "    text = '\\n'.join(simulate(scenario(seed)).history.lines())\n"
        "    print(seed, hashlib.sha256(text.encode()).hexdigest())\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=200,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert len(said[0].splitlines()) == 6


def test_there_are_runs_of_every_kind_on_both_versions() -> None:
    seen = {(scenario_.kind, scenario_.version) for scenario_ in map(scenario, range(200))}
    assert seen == {(kind, version) for kind in Kind for version in ("4.0", "4.3")}
