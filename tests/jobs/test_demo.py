"""`make demo-jobs`, with few jobs: all of it on real engines, with a kill of each kind."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import steps

#: A job takes long enough for each kill to find processes that work.
SMALL = (
    "--airports",
    "6",
    "--days",
    "5",
    "--seconds",
    "2",
    "--worker-kills",
    "2",
    "--broker-kills",
    "1",
    "--redo-kills",
    "1",
)


@pytest.mark.full
@pytest.mark.parametrize("database", [(), ("--postgres",)], ids=["sqlite", "postgresql"])
def test_the_demo_loses_no_job_while_it_kills_workers_broker_and_redo(database: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.airports.jobs_demo", *SMALL, *database],
        cwd=steps.ROOT,
        env=steps.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    found = re.fullmatch(r"jobs: registered=30 done=30 runs=(\d+) parked=0 lost=0 overlapping=0", last)
    assert found, last
    killed = re.findall(r"killed the (worker|broker|redo)", done.stderr)
    assert sorted(killed) == ["broker", "redo", "worker", "worker"]
