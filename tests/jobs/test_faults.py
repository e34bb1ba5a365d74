"""The runner of faults with jobs, as `make faults-jobs` starts it, on real engines."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import steps
from faults.jobs.kinds import KINDS

pytestmark = pytest.mark.full

LAST_LINE = re.compile(
    r"jobs: injected=(?P<injected>\d+) registered=(?P<registered>\d+) done=(?P<done>\d+) runs=(?P<runs>\d+) "
    r"refused=(?P<refused>\d+) parked=(?P<parked>\d+) lost=(?P<lost>\d+) overlapping=(?P<overlapping>\d+)"
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Each kind takes its turn, also when the time is over."""
    return subprocess.run(
        [sys.executable, "-m", "faults.jobs", "--duration", "10", *arguments],
        cwd=steps.ROOT,
        env=steps.environment(),
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def counts(text: str) -> dict[str, int]:
    found = LAST_LINE.fullmatch(text.strip().splitlines()[-1])
    assert found, text
    return {name: int(number) for name, number in found.groupdict().items()}


def test_no_job_is_lost_and_none_overlaps_whatever_is_killed_or_stopped() -> None:
    done = run("--json")
    found = counts(done.stderr)
    assert done.returncode == 0, done.stderr
    assert found["done"] == found["registered"] > 0
    assert (found["parked"], found["lost"], found["overlapping"]) == (0, 0, 0)
    # each kind has happened, and a worker that woke up was refused
    kinds = json.loads(done.stdout)["kinds"]
    assert {kind: counts["injected"] for kind, counts in kinds.items()} == dict.fromkeys(KINDS, 1)
    assert all(kind["evidence"] for kind in kinds.values())
    assert found["refused"] >= 1
    # jobs that may be coalesced were
    assert found["runs"] < found["registered"]


def test_a_job_that_was_deleted_and_a_write_without_the_fence_are_seen() -> None:
    done = run("--only", "theft,unfenced")
    found = counts(done.stdout)
    assert done.returncode == 1, done.stderr
    assert found["lost"] == 1
    # with each run of those that came while its worker stood still
    assert found["overlapping"] >= 1


def test_an_unknown_fault_is_a_mistake_of_the_command_line() -> None:
    done = run("--only", "earthquake")
    assert done.returncode == 2
    assert "earthquake" in done.stderr
