"""What the statements of the store share.

Statements that are run for each job are built once: SQLAlchemy takes longer to build one than the database to run it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import BindParameter, Connection, Float, Integer, Row, and_, bindparam, literal_column, select
from sqlalchemy.dialects import postgresql, sqlite

from osrdyne_jobs import states
from osrdyne_jobs.database.engines import now
from osrdyne_jobs.database.tables import job, lock


def is_one_of(names: Collection[str]) -> Any:
    """Return whether a job has one of these states, written so that both databases see that a partial index fits."""
    return job.c.state.in_([literal_column(f"'{name}'") for name in names])


WAITING = is_one_of(states.WAITING)


def insert_or_meet(table: Any, build: Callable[[Any], Any]) -> dict[str, Any]:
    """Return an INSERT that handles a conflict, by the name of its database.

    It is the same for both, and not part of SQLAlchemy's core.
    """
    return {"postgresql": build(postgresql.insert(table)), "sqlite": build(sqlite.insert(table))}


def seconds(name: str) -> BindParameter[float]:
    """Return a parameter that is a number of seconds."""
    return bindparam(name, type_=Float(53))


_TYPE: BindParameter[str] = bindparam("of_type")
_RESOURCE: BindParameter[str] = bindparam("of_resource")
TOKEN: BindParameter[int] = bindparam("token")
IDS: BindParameter[list[int]] = bindparam("ids", expanding=True)
#: How many rows at most.
MOST: BindParameter[int] = bindparam("most", type_=Integer)
#: The lock of a resource.
LOCK_OF_RESOURCE = and_(lock.c.type == _TYPE, lock.c.resource == _RESOURCE)
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
