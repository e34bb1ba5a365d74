"""What redo asks of the store: which runs are lost, which jobs are due, which process leads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, delete, or_, select, update

from osrdyne_jobs import states
from osrdyne_jobs.database.engines import now
from osrdyne_jobs.database.tables import job, leader, lock, run
from osrdyne_jobs.store.outcomes import LOST, kept, settle
from osrdyne_jobs.store.records import Hint
from osrdyne_jobs.store.sql import IDS, MOST, OF_RESOURCE, TOKEN, WAITING, insert_or_meet, seconds

#: Redo casts a job again after this many times the pause, at most.
MOST_PAUSES = 10

_EXPIRED = (
    select(lock.c.run_id)
    .where(lock.c.expires_at <= now())
    .order_by(lock.c.expires_at)
    .limit(MOST)
    .with_for_update(skip_locked=True)
)
_END_EXPIRED = delete(lock).where(lock.c.run_id == TOKEN, lock.c.expires_at <= now()).returning(lock.c.run_id)
_DUE = (
    select(job.c.id, job.c.type, job.c.resource, job.c.casts, lock.c.run_id)
    .select_from(job.outerjoin(lock, and_(lock.c.type == job.c.type, lock.c.resource == job.c.resource)))
    .where(WAITING, job.c.due_at <= now())
    .order_by(job.c.due_at, job.c.id)
    .limit(MOST)
    .with_for_update(of=job, skip_locked=True)
)
_PUT_OFF = (
    update(job)
    .where(job.c.id.in_(IDS), WAITING)
    .values(
        due_at=now() + seconds("pause") * case((job.c.casts >= MOST_PAUSES, MOST_PAUSES), else_=job.c.casts + 1),
        casts=job.c.casts + 1,
    )
)
# Not of one that failed: its reason is that of the attempt.
_REFUSED = update(job).where(OF_RESOURCE, WAITING, job.c.state == states.REGISTERED).values(reason=bindparam("why"))


def _leading(insert: Any) -> Any:
    mine = insert.values(name="redo", expires_at=now() + seconds("lease"))
    return mine.on_conflict_do_update(
        index_elements=[leader.c.name],
        set_={"holder": mine.excluded.holder, "expires_at": mine.excluded.expires_at},
        where=or_(leader.c.holder == mine.excluded.holder, leader.c.expires_at <= now()),
    ).returning(leader.c.name)


_LEAD = insert_or_meet(leader, _leading)


def lose(connection: Connection, most: int) -> int:
    """End the runs whose lease ran out, at most so many; return how many. Their jobs are due at once."""
    ended = 0
    for (token,) in connection.execute(_EXPIRED, {"most": most}).all():
        if connection.execute(_END_EXPIRED, {"token": token}).first() is not None:
            settle(connection, token, states.LOST, LOST)
            ended += 1
    return ended


def cast_due(connection: Connection, *, most: int, pause: float) -> tuple[int, list[Hint]]:
    """Take at most so many due jobs, oldest first. Returns their number, and what to cast.

    One cast is enough for all jobs of a type and resource, and none where a run has the lock: it goes on with the next
    job when it ends. Each job is due again after `pause` seconds, then after twice and three times as many.
    """
    due = connection.execute(_DUE, {"most": most}).all()
    if due:
        connection.execute(_PUT_OFF, {"ids": [row.id for row in due], "pause": pause})
    hints = {
        (row.type, row.resource): Hint(row.id, row.type, row.resource, row.casts)
        for row in reversed(due)
        if not row.run_id
    }
    return len(due), list(reversed(hints.values()))


def put_back(connection: Connection, jobs: Collection[int], *, after: float) -> None:
    """Let jobs whose cast failed be due again in `after` seconds."""
    again = {"due_at": now() + after, "casts": case((job.c.casts > 0, job.c.casts - 1), else_=0)}
    connection.execute(update(job).where(job.c.id.in_(jobs), WAITING).values(again))


def refuse(connection: Connection, *, type: str, resource: str, reason: str) -> None:  # noqa: A002
    """Note why no worker could begin the registered jobs of a type and resource."""
    connection.execute(_REFUSED, {"of_type": type, "of_resource": resource, "why": kept(reason)})


def running(connection: Connection, *, since: float, after: int, most: int) -> Sequence[Hint]:
    """Return runs that began `since` seconds ago or earlier, in the order of their tokens, which follow `after`.

    `Hint.job` is the token.
    """
    query = select(lock.c.run_id, lock.c.type, lock.c.resource).join(run, run.c.id == lock.c.run_id)
    query = query.where(lock.c.run_id > after, run.c.began_at <= now() - since)
    rows = connection.execute(query.order_by(lock.c.run_id).limit(most))
    return [Hint(row.run_id, row.type, row.resource) for row in rows]


def lead(connection: Connection, *, holder: str, lease: float) -> bool:
    """Lead the redo processes for `lease` seconds, or go on leading. Returns False where another one leads."""
    mine = connection.execute(_LEAD[connection.dialect.name], {"holder": holder, "lease": lease})
    return mine.first() is not None


def resign(connection: Connection, *, holder: str) -> None:
    """Lead no longer, so that a standby takes over at once."""
    connection.execute(delete(leader).where(leader.c.holder == holder))
