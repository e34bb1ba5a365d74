"""The endpoints under /api/jobs. `static/openapi.json` describes them; a test makes it from their models."""

from __future__ import annotations

import json

from osrdyne_jobs import client, documents, figures
from osrdyne_jobs.http import models
from osrdyne_jobs.http.backend import Backend
from osrdyne_jobs.http.endpoints import JobEndpoint
from osrdyne_jobs.store import administration


def list_jobs(backend: Backend, asked: models.Question) -> models.Page:
    """List jobs in the order of their registration, without their payloads."""
    with backend.reading() as connection:
        found = administration.listed(connection, **{**asked.model_dump(), "most": asked.most + 1})
    shown = [models.Job.model_validate(job) for job in found[: asked.most]]
    return models.Page(jobs=shown, next=shown[-1].id if len(found) > asked.most else None)


def create_job(backend: Backend, job: models.NewJob) -> models.Registered:
    """Register a job and cast it. An error names the field; nothing was registered then."""
    return models.Registered.model_validate(backend.jobs.submit(job.type, job.resource, job.payload))


def show_figures(backend: Backend) -> models.Figures:
    """Show how many jobs there are in each state, how old and how late they are, and why they fail."""
    with backend.reading() as connection:
        return models.Figures(
            states=[models.InState.model_validate(count) for count in figures.by_state(connection)],
            redo_lag=figures.redo_lag(connection),
            runs=figures.runs(connection),
            expired_leases=figures.expired_leases(connection),
            causes=[models.Cause.model_validate(cause) for cause in figures.causes(connection)],
        )


def list_schemas(backend: Backend) -> list[models.Schema]:
    """List the types of jobs that this server can register, with the schemas of their payloads."""
    return [models.Schema(**documents.of_type(kind)) for kind in backend.jobs.types]


def show_job(backend: Backend, which: models.JobPath) -> models.WholeJob:
    """Show a job with its payload and its attempts, also one of the history."""
    with backend.reading() as connection:
        job = administration.get(connection, which.id)
        runs = [models.Run(**attempt) for attempt in administration.attempts(connection, which.id)]
    short = models.Job.model_validate(job).model_dump()
    return models.WholeJob(**short, payload=json.loads(job.payload), runs=runs)


def redo_job(backend: Backend, which: models.JobPath) -> models.WholeJob:
    """Give a failed, parked or cancelled job all its attempts again, at once."""
    with backend.writing() as connection:
        administration.redo(connection, which.id)
    job = show_job(backend, which)
    backend.jobs.cast(client.Registered(job.id, job.type, job.resource))
    return job


def cancel_job(backend: Backend, which: models.JobPath) -> models.Cancelled:
    """Cancel a job that waits, or have the worker of one that runs hear of it."""
    with backend.writing() as connection:
        return models.Cancelled(id=which.id, cancelled=administration.cancel(connection, which.id))


def delete_job(backend: Backend, which: models.JobPath) -> None:
    """Delete a job and its attempts. It is refused while the job runs."""
    with backend.writing() as connection:
        administration.delete_job(connection, which.id)


_ONE = "/api/jobs/{id:[^/]+}"
#: In this order: `figures` is not an id.
ENDPOINTS = (
    JobEndpoint("GET", "/api/jobs", list_jobs, models.Question),
    JobEndpoint("POST", "/api/jobs", create_job, models.NewJob),
    JobEndpoint("GET", "/api/jobs/figures", show_figures),
    JobEndpoint("GET", "/api/jobs/schemas", list_schemas),
    JobEndpoint("GET", _ONE, show_job, models.JobPath),
    JobEndpoint("POST", f"{_ONE}/redo", redo_job, models.JobPath),
    JobEndpoint("POST", f"{_ONE}/cancel", cancel_job, models.JobPath),
    JobEndpoint("DELETE", _ONE, delete_job, models.JobPath),
)
