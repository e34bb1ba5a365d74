"""Jobs, runs and types as documents for programs: values of JSON, and times as ISO 8601 texts in UTC. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from osrdyne_jobs.job_types import JobType

if TYPE_CHECKING:
    from osrdyne_jobs.store.records import Job

_TIMES = ("registered_at", "begin_after", "due_at", "finished_at")


def of_job(job: Job) -> dict[str, Any]:
    """Return all fields of a job. `payload` is the value that its JSON stands for."""
    document = asdict(job)
    document["payload"] = json.loads(job.payload)
    return document | {name: moment(document[name]) for name in _TIMES}


def of_run(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run of `administration.attempts` of the store."""
    return dict(run) | {name: moment(run[name]) for name in ("began_at", "ended_at")}


def of_type(declared: JobType) -> dict[str, Any]:
    """Return a type of job, with the JSON schema of its payload."""
    return {
        "name": declared.name,
        "coalesce": declared.coalesce,
        "max_attempts": declared.max_attempts,
        "payload": declared.schema(),
    }


def moment(seconds: float | None) -> str | None:
    """Return a time of the database, in seconds since the Unix epoch, as text."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
