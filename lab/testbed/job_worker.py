"""A worker that does jobs of the types `scripted` and `together`. A payload says what happens.

| field | the run |
|---|---|
| `seconds` | takes so long, unless it is cancelled |
| `until_stop` | takes until its worker stops, where this is not 0 |
| `fails` | fails at so many first attempts |
| `crashes` | ends the process at so many first attempts |

Variables: JOBS_DATABASE, or those of `engine_from_environment`; JOBS_LEASE in seconds; JOBS_RUNS, a file that gets a
line for each begin and end of a run.
"""

from __future__ import annotations

import os
from pathlib import Path

from osrdyne_jobs import JobCancelled, JobType, JobWorker, LeaseLost, Run, engine_from_environment

SCRIPTED = JobType("scripted", payload=dict[str, float])
#: The same, coalesced.
TOGETHER = JobType("together", payload=dict[str, float], coalesce=True)


def note(run: Run, word: str) -> None:
    """Add a line to the file: what, type, resource, job, attempt, token, process."""
    line = f"{word} {run.type} {run.resource} {run.job} {run.attempt} {run.token} {os.getpid()}\n"
    with Path(os.environ["JOBS_RUNS"]).open("a", encoding="utf-8") as file:
        file.write(line)


def do(run: Run) -> None:
    """Do what the payload says."""
    note(run, "begins")
    if run.cancelled.wait(run.payload.get("seconds", 0.0)):
        note(run, "hears")
        raise JobCancelled
    if run.payload.get("until_stop"):
        run.stopping.wait()
    if run.attempt <= run.payload.get("crashes", 0):
        os._exit(1)
    if run.attempt <= run.payload.get("fails", 0):
        raise ValueError(f"asked to fail at attempt {run.attempt}")
    try:
        with run.transaction():
            note(run, "ends")
    except LeaseLost:
        note(run, "refused")
        raise


def main() -> None:
    lease = float(os.environ.get("JOBS_LEASE", "30"))
    database = os.environ.get("JOBS_DATABASE") or engine_from_environment()
    JobWorker(database, {SCRIPTED: do, TOGETHER: do}, lease=lease).run()


if __name__ == "__main__":
    main()
