"""What people ask of the store: to look at jobs, cancel them, do them again, delete them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, select, update

from osrdyne_jobs import states
from osrdyne_jobs.database.engines import now
from osrdyne_jobs.database.tables import attempt, job, job_history, run
from osrdyne_jobs.errors import UnknownJob, WrongState
from osrdyne_jobs.store.history import forget
from osrdyne_jobs.store.records import FIELDS, Job


def get(connection: Connection, id: int) -> Job:  # noqa: A002
    """Return a job, also one of the history. Raises UnknownJob."""
    for table in (job, job_history):
        row = connection.execute(select(*(table.c[name] for name in FIELDS)).where(table.c.id == id)).first()
        if row is not None:
            return Job(*row)
    raise UnknownJob(f"there is no job {id}: it was deleted, or its time in the history is over")


def attempts(connection: Connection, id: int) -> list[Mapping[str, Any]]:  # noqa: A002
    """Return the runs of a job, oldest first: token, worker, began_at, ended_at, outcome, reason, traceback."""
    ended = (run.c.ended_at, run.c.outcome, run.c.reason, run.c.traceback)
    query = (
        select(run.c.id.label("token"), run.c.worker, run.c.began_at, *ended)
        .join(attempt, attempt.c.run_id == run.c.id)
        .where(attempt.c.job_id == id)
    )
    return [dict(row) for row in connection.execute(query.order_by(run.c.id)).mappings()]


def listed(
    connection: Connection,
    *,
    type: str | None = None,  # noqa: A002
    resource: str | None = None,
    state: str | None = None,
    older_than: float | None = None,
    after: int = 0,
    most: int = 100,
    history: bool = False,
) -> list[Job]:
    """Return jobs in the order of their ids, those behind the id `after`; `older_than` in seconds."""
    table = job_history if history else job
    query = select(*(table.c[name] for name in FIELDS)).where(table.c.id > after)
    for column, wanted in ((table.c.type, type), (table.c.resource, resource), (table.c.state, state)):
        if wanted is not None:
            query = query.where(column == wanted)
    if older_than is not None:
        query = query.where(table.c.registered_at <= now() - older_than)
    return [Job(*row) for row in connection.execute(query.order_by(table.c.id).limit(most))]


def cancel(connection: Connection, id: int) -> bool:  # noqa: A002
    """Cancel a job. Returns True where it is cancelled, False where it runs and hears of it now.

    Raises UnknownJob, and WrongState where it has ended.
    """
    state = connection.execute(select(job.c.state).where(job.c.id == id).with_for_update()).scalar()
    if state in (*states.WAITING, states.PARKED):
        over = {"state": states.CANCELLED, "finished_at": now()}
        connection.execute(update(job).where(job.c.id == id).values(over))
        return True
    if state == states.RUNNING:
        connection.execute(update(job).where(job.c.id == id).values(cancel=True))
        return False
    raise WrongState(f"job {id} is {get(connection, id).state}: there is nothing to cancel")


def redo(connection: Connection, id: int) -> None:  # noqa: A002
    """Give a failed, parked or cancelled job all its attempts again, at once. Raises UnknownJob and WrongState."""
    again = {
        "state": states.REGISTERED,
        "attempts": 0,
        "casts": 0,
        "begin_after": now(),
        "due_at": now(),
        "finished_at": None,
        "cancel": False,
    }
    state = connection.execute(select(job.c.state).where(job.c.id == id).with_for_update()).scalar()
    if state is None:
        found = get(connection, id)
        raise WrongState(f"job {id} is {found.state}, and in the history: register a new one")
    if state not in (states.FAILED, states.PARKED, states.CANCELLED):
        raise WrongState(f"job {id} is {state}: only a failed, parked or cancelled job is done again")
    connection.execute(update(job).where(job.c.id == id).values(again))


def delete_job(connection: Connection, id: int) -> None:  # noqa: A002
    """Delete a job and its attempts. Raises UnknownJob, and WrongState while it runs."""
    for table in (job, job_history):
        query = select(table.c.state).where(table.c.id == id).with_for_update()
        state = connection.execute(query).scalar()
        if state == states.RUNNING:
            raise WrongState(f"job {id} runs: cancel it first, and delete it when it has ended")
        if state is not None:
            forget(connection, table, [id])
            return
    raise UnknownJob(f"there is no job {id}: it was deleted, or its time in the history is over")


def counts(connection: Connection) -> dict[str, int]:
    """Return how many jobs of each state there are, without the history."""
    rows = connection.execute(select(job.c.state, func.count()).group_by(job.c.state)).all()
    return dict.fromkeys(states.STATES, 0) | {state: int(count) for state, count in rows}
