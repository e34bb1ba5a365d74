"""The endpoints under /api/jobs."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from osrdyne_jobs import client, documents, figures
from osrdyne_jobs.http import models
from osrdyne_jobs.http.backend import Backend, TheBackend
from osrdyne_jobs.http.bodies import ForeignRoute
from osrdyne_jobs.http.problems import Problem
from osrdyne_jobs.job_types import MOST_ID
from osrdyne_jobs.store import administration

Id = Annotated[int, Path(ge=1, le=MOST_ID, description="The id of a job.")]

_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"model": Problem, "description": "There is no such job."}}
_STATE: dict[int | str, dict[str, Any]] = {409: {"model": Problem, "description": "The state of the job forbids it."}}
_ALWAYS: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "The token is missing or wrong."},
    422: {"model": Problem, "description": "Something in the request is wrong; `field` names it."},
    503: {"model": Problem, "description": "The database is away, slow, or has no tables."},
}

router = APIRouter(prefix="/api/jobs", responses=_ALWAYS, route_class=ForeignRoute)


@router.get("")
def list_jobs(
    backend: TheBackend,
    type: Annotated[models.Name | None, Query()] = None,  # noqa: A002 - the parameter's name in the address
    resource: Annotated[models.Name | None, Query()] = None,
    state: Annotated[models.State | None, Query()] = None,
    older_than: Annotated[
        float | None, Query(ge=0, allow_inf_nan=False, description="Seconds since the registration.")
    ] = None,
    history: Annotated[bool, Query(description="Look into the history, where jobs move after their end.")] = False,
    after: Annotated[int, Query(ge=0, le=MOST_ID, description="Only jobs with a larger id.")] = 0,
    most: Annotated[int, Query(ge=1, le=1000, description="Most jobs of an answer.")] = 100,
) -> models.Page:
    """List jobs in the order of their registration, without their payloads."""
    with backend.reading() as connection:
        found = administration.listed(
            connection,
            type=type,
            resource=resource,
            state=state,
            older_than=older_than,
            history=history,
            after=after,
            most=most + 1,
        )
    shown = [models.Job.model_validate(one) for one in found[:most]]
    return models.Page(jobs=shown, next=shown[-1].id if len(found) > most else None)


@router.post("", status_code=201)
def create_job(backend: TheBackend, job: models.NewJob, response: Response) -> models.Registered:
    """Register a job and cast it. An error names the field; nothing was registered then."""
    registered = backend.jobs.submit(job.type, job.resource, job.payload)
    response.headers["location"] = f"/api/jobs/{registered.id}"
    return models.Registered.model_validate(registered)


@router.get("/figures")
def show_figures(backend: TheBackend) -> models.Figures:
    """Show how many jobs there are in each state, how old and how late they are, and why they fail."""
    with backend.reading() as connection:
        return models.Figures(
            states=[models.InState.model_validate(one) for one in figures.by_state(connection)],
            redo_lag=figures.redo_lag(connection),
            runs=figures.runs(connection),
            expired_leases=figures.expired_leases(connection),
            causes=[models.Cause.model_validate(one) for one in figures.causes(connection)],
        )


@router.get("/schemas")
def list_schemas(backend: TheBackend) -> list[models.Schema]:
    """List the types of jobs that this server can register, with the schemas of their payloads."""
    return [models.Schema(**documents.of_type(one)) for one in backend.jobs.types]


@router.get("/{id}", responses=_UNKNOWN)
def show_job(backend: TheBackend, id: Id) -> models.WholeJob:  # noqa: A002 - the parameter's name in the address
    """Show a job with its payload and its attempts, also one of the history."""
    return _whole(backend, id)


@router.post("/{id}/redo", responses=_UNKNOWN | _STATE)
def redo_job(backend: TheBackend, id: Id) -> models.WholeJob:  # noqa: A002
    """Give a failed, parked or cancelled job all its attempts again, at once."""
    with backend.writing() as connection:
        administration.redo(connection, id)
    job = _whole(backend, id)
    backend.jobs.cast(client.Registered(job.id, job.type, job.resource))
    return job


@router.post("/{id}/cancel", responses=_UNKNOWN | _STATE)
def cancel_job(backend: TheBackend, id: Id) -> models.Cancelled:  # noqa: A002
    """Cancel a job that waits, or have the worker of one that runs hear of it."""
    with backend.writing() as connection:
        return models.Cancelled(id=id, cancelled=administration.cancel(connection, id))


@router.delete("/{id}", status_code=204, responses=_UNKNOWN | _STATE)
def delete_job(backend: TheBackend, id: Id) -> None:  # noqa: A002
    """Delete a job and its attempts. It is refused while the job runs."""
    with backend.writing() as connection:
        administration.delete_job(connection, id)


def _whole(backend: Backend, id: int) -> models.WholeJob:  # noqa: A002
    with backend.reading() as connection:
        job = administration.get(connection, id)
        runs = [models.Run(**one) for one in administration.attempts(connection, id)]
    short = models.Job.model_validate(job).model_dump()
    return models.WholeJob(**short, payload=json.loads(job.payload), runs=runs)
