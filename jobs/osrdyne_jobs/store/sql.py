"""What the statements of the store share.

Statements that are run for each job are built once: SQLAlchemy takes longer to build one than the database to run it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, and_, bindparam, literal_column, select
from sqlalchemy.dialects import postgresql, sqlite

from osrdyne_jobs import states
from osrdyne_jobs.database import now
from osrdyne_jobs.tables import job, lock


def is_one_of(names: Collection[str]) -> Any:
    """Return whether a job has one of these states, written so that both databases see that a partial index fits."""
    return job.c.state.in_([literal_column(f"'{name}'") for name in names])


WAITING = is_one_of(states.WAITING)


def insert_or_meet(connection: Connection, table: Any) -> Any:
    """Return an INSERT that can handle a conflict: the same for both databases, and not part of SQLAlchemy's core."""
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


def of(table: Any, type: str, resource: str) -> Any:  # noqa: A002
    """Return whether a row of a table is of this type and resource."""
    return and_(table.c.type == type, table.c.resource == resource)


_TYPE: BindParameter[str] = bindparam("of_type")
_RESOURCE: BindParameter[str] = bindparam("of_resource")
TOKEN: BindParameter[int] = bindparam("token")
OF_RESOURCE = and_(job.c.type == _TYPE, job.c.resource == _RESOURCE)
#: A job that this run does.
OF_RUN = and_(job.c.run_id == TOKEN, job.c.state == states.RUNNING)
_NEXT = (
    select(job.c.id, job.c.coalesce, (lock.c.expires_at <= now()).label("expired"))
    .select_from(job.outerjoin(lock, and_(lock.c.type == job.c.type, lock.c.resource == job.c.resource)))
    .where(OF_RESOURCE, WAITING, job.c.begin_after <= now())
    .order_by(job.c.id)
    .limit(1)
)


def next_job(connection: Connection, type: str, resource: str) -> Row[Any, Any, Any] | None:  # noqa: A002
    """Return the next job of a resource; its `expired` is None where no run has the lock."""
    return connection.execute(_NEXT, {"of_type": type, "of_resource": resource}).first()
