"""The worker process of `make demo-jobs`: recomputes days of one airport, each as a job.

Reads the WORKER_* variables that the daemon's driver sets, the flights (see `cache`), and JOBS_DATABASE. JOBS_LEASE is
the lease of a run, and JOBS_SECONDS how long a job takes at least, both in seconds. Writes the tables of
`jobs_results`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from datetime import date

# A stop before the worker serves ends this process at once.
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

from examples.airports import cache, day_figures, jobs_results
from examples.airports.jobs_account import Effect
from osrdyne_jobs import JobCancelled, JobType, JobWorker, Run
from osrdyne_worker import environment

#: Recompute the figures of the day that is the payload, for the airport that is the resource.
RECOMPUTE = JobType("recompute-day", payload=date, max_attempts=10)


def main() -> None:
    """Do the jobs of one airport until SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    airport = cache.load(environment().key)
    seconds = float(os.environ["JOBS_SECONDS"])

    def recompute(run: Run) -> None:
        began = time.monotonic()
        figures = day_figures.of_day(airport, run.payload)
        if run.cancelled.wait(seconds):
            raise JobCancelled
        with run.transaction() as connection:
            jobs_results.write(connection, run.resource, run.payload, run.token, figures)
            jobs_results.note(connection, Effect(run.resource, run.token, began, time.monotonic()))

    JobWorker(os.environ["JOBS_DATABASE"], {RECOMPUTE: recompute}, lease=float(os.environ["JOBS_LEASE"])).run()


if __name__ == "__main__":
    main()
