"""Many seeds of the relay: no call is lost, none runs twice; and the same seed is the same run."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.relay import runner
from simulation.relay.scenario import Kind, scenario
from tests.simulation.many_seeds import many

ROOT = Path(__file__).parents[2]
#: Seeds of `make test`: five of each kind.
_SOME = 35


def found_in(seeds: range, processes: int) -> runner.Result:
    """Run seeds, expect no findings, and return the sums."""
    results = list(runner.results(seeds, processes))
    assert [(result.seed, result.findings) for result in results if result.findings] == []
    return runner.total(results)


def test_some_seeds_of_the_relay_lose_nothing_and_run_nothing_twice() -> None:
    sums = found_in(range(1, _SOME + 1), 1)
    # And they are not empty
    assert sums.calls > 250
    assert min(sums.answered, sums.failed) > 100
    assert sums.orphaned > 5


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", many(), ids=str)
def test_ten_thousand_seeds_of_the_relay_lose_nothing_and_run_nothing_twice(seeds: range) -> None:
    sums = found_in(seeds, min(2, os.cpu_count() or 1))
    assert sums.calls > 8000


@pytest.mark.parametrize("seed", [1, 2, 5, 6])
def test_the_same_seed_is_the_same_run_of_the_relay(seed: int) -> None:
    first, second = (runner.run_seed(seed)[0].trace for _ in range(2))
    assert first == second
    assert len(first) > 100


def test_the_same_seed_is_the_same_run_of_the_relay_in_another_process() -> None:
    program = (
        "import hashlib; from simulation.relay import runner\n"
        "print(hashlib.sha256('\\n'.join(runner.run_seed(6)[0].trace).encode()).hexdigest())\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    trace = "\n".join(runner.run_seed(6)[0].trace)
    assert said.stdout.strip() == hashlib.sha256(trace.encode()).hexdigest()


def test_the_first_seeds_of_the_relay_have_every_kind_of_trouble() -> None:
    assert {scenario(seed).kind for seed in range(1, _SOME + 1)} == set(Kind)
