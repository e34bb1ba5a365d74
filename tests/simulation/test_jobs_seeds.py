"""Many seeds of jobs: nothing is lost, nothing overlaps; and the same seed is the same run."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.jobs import runner
from simulation.jobs.scenario import Kind, scenario
from tests.simulation.many_seeds import many

ROOT = Path(__file__).parents[2]
#: Seeds of `make test`.
_SOME = 50


def found_in(seeds: range, processes: int) -> runner.Result:
    """Run seeds, expect no findings, and return the sums."""
    results = list(runner.results(seeds, processes))
    assert [(result.seed, result.findings) for result in results if result.findings] == []
    return runner.total(results)


def test_some_seeds_lose_nothing_and_overlap_nowhere() -> None:
    sums = found_in(range(1, _SOME + 1), 1)
    # And they are not empty
    assert sums.jobs > 300
    assert min(sums.runs, sums.parked, sums.cancelled, sums.leases_lost, sums.late_handlers, sums.refused) > 0


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", many(), ids=str)
def test_ten_thousand_seeds_lose_nothing_and_overlap_nowhere(seeds: range) -> None:
    sums = found_in(seeds, min(2, os.cpu_count() or 1))
    assert sums.jobs > 6000
    assert sums.refused > 40


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_the_same_seed_is_the_same_run_of_jobs(seed: int) -> None:
    first, second = (runner.run_seed(seed)[0].trace for _ in range(2))
    assert first == second
    assert len(first) > 40


def test_the_same_seed_is_the_same_run_of_jobs_in_another_process() -> None:
    program = (
        "import hashlib; from simulation.jobs import runner\n"
        "trace = '\\n'.join(runner.run_seed(2)[0].trace)\n"
        "print(hashlib.sha256(trace.encode()).hexdigest())\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    here = "\n".join(runner.run_seed(2)[0].trace)
    assert said.stdout.strip() == hashlib.sha256(here.encode()).hexdigest()


def test_there_are_runs_of_jobs_of_every_kind() -> None:
    assert {scenario(seed).kind for seed in range(60)} == set(Kind)


def test_a_seed_that_fails_shows_its_trace_and_the_command_that_repeats_it() -> None:
    program = (
        "import sys; from simulation.jobs import __main__, planted\n"
        "with planted.planted('the newest job runs first'):\n"
        "    sys.exit(__main__.many(2, 1, 1, as_json=False))\n"
    )
    said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert "python -m simulation.jobs --replay 2" in said.stdout
    assert "WRONG: run " in said.stdout
    assert said.stdout.splitlines()[-1].startswith("simulate-jobs: seeds=1 ")
