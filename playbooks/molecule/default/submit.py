"""Registers a job that only redo casts, and waits until a worker has done it."""

from __future__ import annotations

import sys
import time

from osrdyne_jobs import JobClient, JobType, engine_from_environment

#: Seconds.
PATIENCE_SECONDS = 90


def main() -> None:
    """Prints the state that the job has in the end."""
    with JobClient(engine_from_environment(), [JobType("noted")]) as jobs:
        number = jobs.submit("noted", "JFK", {}).id
        until = time.monotonic() + PATIENCE_SECONDS
        while (state := jobs.get(number).state) != "done" and time.monotonic() < until:
            time.sleep(0.5)
        sys.stdout.write(f"{state}\n")


if __name__ == "__main__":
    main()
