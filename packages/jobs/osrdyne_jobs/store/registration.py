"""Registering a job: what clients ask of the store."""

from __future__ import annotations

from sqlalchemy import Connection, insert

from osrdyne_jobs import states
from osrdyne_jobs.database.engines import now
from osrdyne_jobs.database.tables import job
from osrdyne_jobs.store.sql import seconds

_REGISTER = (
    insert(job).values(registered_at=now(), begin_after=now(), due_at=now() + seconds("cast_after")).returning(job.c.id)
)


def register(
    connection: Connection,
    *,
    type: str,  # noqa: A002 - the field's name
    resource: str,
    payload: str,
    coalesce: bool,
    max_attempts: int,
    cast_after: float,
) -> int:
    """Register a job and return its id. Redo casts it in `cast_after` seconds if it has not begun by then."""
    values = {
        "type": type,
        "resource": resource,
        "payload": payload,
        "coalesce": coalesce,
        "state": states.REGISTERED,
        "max_attempts": max_attempts,
        "cast_after": cast_after,
    }
    return int(connection.execute(_REGISTER, values).scalar_one())
