"""Asynchronous jobs that cannot be forgotten: registered in a database, done by a pool's workers.

    jobs = JobClient("postgresql://jobs@db/jobs", [ROUTES], client)
    jobs.submit("rebuild-routes", "region-7", {"year": 2013})

    JobWorker("postgresql://jobs@db/jobs", {ROUTES: rebuild}).run()

`client` registers and casts, `worker` does, `redo` finds what was missed. `job_types` declares what there is to do,
`store` has every change of a job as one transaction in the `database`. `commands` is `osrdyne jobs`, and `processes`
runs redo for it. `waiting` is what a process does until it can begin. `http` is the administration over HTTP, and
`figures` is what it shows of all jobs. `documents`, `messages`, `redo_rules` and `states` are pure; `errors` has what
is raised. Docs: docs/howto/jobs.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osrdyne_jobs.client import AsyncJobClient, JobClient, Registered
    from osrdyne_jobs.database.engines import async_engine_for, engine_for, engine_from_environment, migrate
    from osrdyne_jobs.errors import (
        DatabaseRefused,
        InvalidAddress,
        InvalidJob,
        JobError,
        LeaseLost,
        NoAnswer,
        NoSchema,
        NotRegistered,
        UnknownJob,
        WrongState,
    )
    from osrdyne_jobs.job_types import JobType
    from osrdyne_jobs.redo import Redo, Scan
    from osrdyne_jobs.store.records import Job
    from osrdyne_jobs.worker import JobCancelled, JobWorker, Run
    from osrdyne_pool.settings import RedoSettings

__all__ = [
    "AsyncJobClient",
    "DatabaseRefused",
    "InvalidAddress",
    "InvalidJob",
    "Job",
    "JobCancelled",
    "JobClient",
    "JobError",
    "JobType",
    "JobWorker",
    "LeaseLost",
    "NoAnswer",
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
    "engine_from_environment",
    "migrate",
]

#: Where each name is. They are imported at their first use: `osrdyne --help` finds the commands here, and does not wait
#: for SQLAlchemy.
_MODULES = {
    "osrdyne_jobs.client": ("AsyncJobClient", "JobClient", "Registered"),
    "osrdyne_jobs.database.engines": ("async_engine_for", "engine_for", "engine_from_environment", "migrate"),
    "osrdyne_jobs.errors": (
        "DatabaseRefused",
        "InvalidAddress",
        "InvalidJob",
        "JobError",
        "LeaseLost",
        "NoAnswer",
        "NoSchema",
        "NotRegistered",
        "UnknownJob",
        "WrongState",
    ),
    "osrdyne_jobs.job_types": ("JobType",),
    "osrdyne_jobs.redo": ("Redo", "Scan"),
    "osrdyne_jobs.store.records": ("Job",),
    "osrdyne_jobs.worker": ("JobCancelled", "JobWorker", "Run"),
    "osrdyne_pool.settings": ("RedoSettings",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
