"""Jobs that have ended: they move to the history, and are deleted with their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, delete, insert, select

from osrdyne_jobs.database.engines import now
from osrdyne_jobs.database.tables import attempt, job, job_history, run
from osrdyne_jobs.store.sql import IDS, MOST, seconds


def _ended_before(table: Table, age: str) -> Select[Any]:
    """Lock the oldest jobs that ended so many seconds ago and more.

    Only a job that is done or cancelled has this time. Its state is not asked for: it would suggest another index.
    """
    return (
        select(table.c.id)
        .where(table.c.finished_at <= now() - seconds(age))
        .order_by(table.c.finished_at)
        .limit(MOST)
        .with_for_update(skip_locked=True)
    )


_ENDED = _ended_before(job, "after")
_KEEP = insert(job_history).from_select([column.name for column in job.c], select(*job.c).where(job.c.id.in_(IDS)))
_GONE = delete(job).where(job.c.id.in_(IDS))
_OLD = _ended_before(job_history, "keep")


def archive(connection: Connection, *, after: float, keep: float, most: int) -> tuple[int, int]:
    """Move jobs that ended `after` seconds ago to the history, and delete what has been there for `keep` seconds.

    At most so many of each; returns both numbers.
    """
    ids = list(connection.execute(_ENDED, {"after": after, "most": most}).scalars())
    if ids:
        connection.execute(_KEEP, {"ids": ids})
        connection.execute(_GONE, {"ids": ids})
    gone = list(connection.execute(_OLD, {"keep": keep, "most": most}).scalars())
    forget(connection, job_history, gone)
    return len(ids), len(gone)


def forget(connection: Connection, table: Any, ids: Sequence[int]) -> None:
    """Delete jobs with their attempts, and the runs that no job has any more."""
    if not ids:
        return
    of_these = select(attempt.c.run_id).where(attempt.c.job_id.in_(ids))
    # Locked: of two deletions at once, each would see the other's attempts, and both would leave the run.
    query = select(run.c.id).where(run.c.id.in_(of_these)).order_by(run.c.id).with_for_update()
    runs = list(connection.execute(query).scalars())
    connection.execute(delete(attempt).where(attempt.c.job_id.in_(ids)))
    connection.execute(delete(table).where(table.c.id.in_(ids)))
    used = select(attempt.c.run_id).where(attempt.c.run_id == run.c.id).exists()
    connection.execute(delete(run).where(run.c.id.in_(runs), ~used))
