"""Asynchronous jobs that cannot be forgotten: registered in a database, done by a pool's workers.

    jobs = JobClient("postgresql://jobs@db/jobs", [ROUTES], client)
    jobs.submit("rebuild-routes", "region-7", {"year": 2013})

    JobWorker("postgresql://jobs@db/jobs", {ROUTES: rebuild}).run()

`client` registers and casts, `worker` does, `redo` finds what was missed. `job_types` declares what there is to do,
`store` has every change of a job as one transaction, over `tables` in a `database`; `migrations` makes the tables, and
in `sqlite_queue` those that write to one file of SQLite wait for their turn.
`states` and `messages` are pure; `errors` has what is raised. Docs: docs/jobs.md.
"""

from osrdyne_jobs.client import AsyncJobClient, JobClient, Registered
from osrdyne_jobs.database import async_engine_for, engine_for, migrate
from osrdyne_jobs.errors import InvalidJob, JobError, LeaseLost, NoSchema, NotRegistered, UnknownJob, WrongState
from osrdyne_jobs.job_types import JobType
from osrdyne_jobs.redo import Redo, RedoSettings, Scan
from osrdyne_jobs.store import Job
from osrdyne_jobs.worker import JobCancelled, JobWorker, Run

__all__ = [
    "AsyncJobClient",
    "InvalidJob",
    "Job",
    "JobCancelled",
    "JobClient",
    "JobError",
    "JobType",
    "JobWorker",
    "LeaseLost",
    "NoSchema",
    "NotRegistered",
    "Redo",
    "RedoSettings",
    "Registered",
    "Run",
    "Scan",
    "UnknownJob",
    "WrongState",
    "async_engine_for",
    "engine_for",
    "migrate",
]
