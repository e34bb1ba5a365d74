"""A worker that does jobs, with the libraries of the daemon's installation; for the key `first`, the plain worker."""

from __future__ import annotations

import os
import runpy

from osrdyne_jobs import JobType, JobWorker, Run, engine_from_environment

NOTED = JobType("noted")


def do(run: Run) -> None:
    """Write into the jobs' database, within the lock of the run."""
    with run.transaction():
        pass


if __name__ == "__main__":
    if os.environ["WORKER_KEY"] == "first":
        runpy.run_path("/opt/osrdyne/worker.py", run_name="__main__")
    else:
        JobWorker(engine_from_environment(), {NOTED: do}).run()
