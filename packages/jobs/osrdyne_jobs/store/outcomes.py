"""How a run ended: what is written to it, to its jobs, and to the job that comes next."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, func, select, update

from osrdyne_jobs import states
from osrdyne_jobs.database.engines import now
from osrdyne_jobs.database.tables import job, run
from osrdyne_jobs.store.sql import OF_RUN, TOKEN, WAITING, next_job, seconds

#: Longest reason that is kept, in characters.
MOST_REASON = 2000
#: Seconds in which the worker of a run goes on with the next job of its resource. After them, redo casts it.
HANDOVER_SECONDS = 5.0
#: Why a run is lost. Only the pool's daemon knows how its worker ended.
LOST = (
    "its worker did not renew the lease: it ended, hung, or could not reach the database; "
    "`osrdyne status --key` of the job's resource says how workers ended"
)

_END_RUN = (
    update(run)
    .where(run.c.id == TOKEN)
    .values(ended_at=now(), outcome=bindparam("ended_as"), reason=bindparam("why"), traceback=bindparam("raised"))
    .returning(run.c.type, run.c.resource)
)
_DONE = update(job).where(OF_RUN).values(state=states.DONE, finished_at=now(), reason=None, cancel=False)
_CANCELLED = (
    update(job).where(OF_RUN, job.c.cancel).values(state=states.CANCELLED, finished_at=now(), reason=bindparam("why"))
)
_PARKED = (
    update(job).where(OF_RUN, job.c.attempts >= job.c.max_attempts).values(state=states.PARKED, reason=bindparam("why"))
)
_MOST_ATTEMPTS = select(func.max(job.c.attempts)).where(OF_RUN)
_LATER = now() + seconds("delay")
_FAILED = (
    update(job)
    .where(OF_RUN)
    .values(state=states.FAILED, reason=bindparam("why"), begin_after=_LATER, due_at=_LATER, casts=0)
)
_DUE_SOON = (
    update(job)
    .where(job.c.id == bindparam("following"), WAITING)
    # Not a condition of the update: one that redo is just putting off would not match it, and be put off.
    .values(
        due_at=case((job.c.due_at < now() + HANDOVER_SECONDS, job.c.due_at), else_=now() + HANDOVER_SECONDS), casts=0
    )
)


def settle(connection: Connection, token: int, outcome: str, reason: str | None, traceback: str | None = None) -> None:
    """Write the outcome of a run to it and to its jobs, and let what waited for it be due soon."""
    which = end(connection, token, outcome, reason, traceback)
    # Redo has put off what waited for this run. The worker goes on with it, unless it ends now.
    following = next_job(connection, which.type, which.resource)
    if following is not None:
        connection.execute(_DUE_SOON, {"following": following.id})


def end(
    connection: Connection, token: int, outcome: str, reason: str | None, traceback: str | None = None
) -> Row[Any, Any]:
    """Write the outcome of a run to it and to its jobs; return its type and resource."""
    reason = None if reason is None else kept(reason)
    raised = None if traceback is None else _storable(traceback)
    which = connection.execute(_END_RUN, {"token": token, "ended_as": outcome, "why": reason, "raised": raised}).one()
    _settle_jobs(connection, token, outcome, reason)
    return which


def kept(reason: str) -> str:
    """Return a reason as it is kept."""
    return _storable(reason)[:MOST_REASON]


def _storable(text: str) -> str:
    whole = text.encode("utf-8", "replace").decode()  # no lone surrogates, of a file's name for example
    return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _settle_jobs(connection: Connection, token: int, outcome: str, reason: str | None) -> None:
    if outcome == states.DONE:
        connection.execute(_DONE, {"token": token})
        return
    connection.execute(_CANCELLED, {"token": token, "why": reason})
    connection.execute(_PARKED, {"token": token, "why": reason})
    attempts = connection.execute(_MOST_ATTEMPTS, {"token": token}).scalar()
    if attempts is not None:
        # The job of a worker that is gone is begun again at once.
        delay = states.retry_delay(attempts) if outcome == states.FAILED else 0.0
        connection.execute(_FAILED, {"token": token, "why": reason, "delay": delay})
