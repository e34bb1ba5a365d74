"""`python -m benchmarks` as far as it goes without a broker."""

import subprocess
import sys
from pathlib import Path

from benchmarks.__main__ import MEASUREMENTS
from benchmarks.engines import ENGINES

ROOT = Path(__file__).parents[3]


def run(*arguments: str, program: str = "benchmarks") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_it_lists_what_it_can_measure_and_measures_nothing() -> None:
    listed = run("--quick", "--list")

    assert listed.returncode == 0, listed.stderr
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(MEASUREMENTS)
    assert all(line.endswith(".") for line in listed.stdout.splitlines())
    assert listed.stderr == ""


def test_an_unknown_measurement_is_refused_with_those_there_are() -> None:
    refused = run("speed")

    assert refused.returncode == 2
    assert "calls" in refused.stderr


def test_a_driver_without_an_engine_is_refused_with_those_that_are_measured() -> None:
    refused = run("noop", program="benchmarks.drivers")

    assert refused.returncode == 2
    assert all(engine in refused.stderr for engine in ENGINES)


def test_the_benchmarks_are_imported_without_duckdb_which_speaks_of_leaks_when_a_process_ends() -> None:
    code = "import benchmarks.__main__, benchmarks.sides.pipeline_duckdb, sys; sys.exit('duckdb' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
