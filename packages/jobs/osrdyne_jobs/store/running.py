"""Begin, renewal and end of a run: what workers ask of the store."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, and_, bindparam, case, delete, func, insert, or_, select, update

from osrdyne_jobs import states
from osrdyne_jobs.database.engines import now
from osrdyne_jobs.database.tables import attempt, job, lock, run
from osrdyne_jobs.errors import LeaseLost
from osrdyne_jobs.store.outcomes import LOST, end, settle
from osrdyne_jobs.store.records import RunLock, StartedRun
from osrdyne_jobs.store.sql import (
    IDS,
    LOCK_OF_RESOURCE,
    OF_RESOURCE,
    OF_RUN,
    TOKEN,
    WAITING,
    insert_or_meet,
    next_job,
    seconds,
)

#: Seconds for which a begin waits for the transaction of a former run, on PostgreSQL.
LOCK_TIMEOUT_SECONDS = 5
#: Characters of a worker's name that are kept with a lock. A random word follows them.
MOST_NAME = 220

_HOLDERS: BindParameter[list[str]] = bindparam("holders", expanding=True)
#: The lock of one run. Its token alone is not enough: after a restore another run may have it.
_OF_GRIP = and_(lock.c.run_id == TOKEN, lock.c.worker == bindparam("holder"))
#: When a lease ends that begins now.
_UNTIL = now() + seconds("lease")
_LOCK = insert(lock).values(expires_at=_UNTIL)
_TAKE = insert_or_meet(
    lock, lambda insert: insert.values(expires_at=_UNTIL).on_conflict_do_nothing().returning(lock.c.type)
)
_EXPIRED = select(lock.c.run_id).where(LOCK_OF_RESOURCE, lock.c.expires_at <= now())
_DUE = select(job.c.id).where(OF_RESOURCE, WAITING, job.c.begin_after <= now())
_IS_DUE = select(or_(_EXPIRED.exists(), and_(_DUE.exists(), ~select(lock.c.type).where(LOCK_OF_RESOURCE).exists())))
#: Not an update of the lock's row: see `_give_back`.
_TAKE_OVER = delete(lock).where(LOCK_OF_RESOURCE, lock.c.expires_at <= now()).returning(lock.c.run_id)
_OF_RUN_NOW = update(lock).where(LOCK_OF_RESOURCE).values(run_id=TOKEN)
_RENEW = (
    update(lock)
    .where(lock.c.run_id.in_(IDS), lock.c.worker.in_(_HOLDERS))
    .values(expires_at=_UNTIL)
    .returning(lock.c.run_id, lock.c.worker)
)
_CANCELLED = (
    select(job.c.run_id)
    .where(job.c.run_id.in_(IDS), job.c.state == states.RUNNING)
    .group_by(job.c.run_id)
    .having(func.count() == func.sum(case((job.c.cancel, 1), else_=0)))
)
_HOLD = select(lock.c.run_id).where(_OF_GRIP).with_for_update(read=True, key_share=True)
_GIVE_BACK = delete(lock).where(_OF_GRIP).returning(lock.c.run_id)
_BEGIN_RUN = insert(run).values(began_at=now()).returning(run.c.id)
_CLAIMED = {
    "state": states.RUNNING,
    "run_id": TOKEN,
    "attempts": job.c.attempts + 1,
    "cancel": False,
    # Why no worker could begin it is over; why its last attempt failed is not.
    "reason": case((job.c.state == states.REGISTERED, None), else_=job.c.reason),
}
_CLAIM_ONE = (
    update(job)
    .where(job.c.id == bindparam("job"), WAITING)
    .values(_CLAIMED)
    .returning(job.c.id, job.c.payload, job.c.attempts)
)
#: Those that failed too: the run does what they wait for.
_CLAIM_ALL = update(job).where(OF_RESOURCE, job.c.coalesce, WAITING).values(_CLAIMED)
_ATTEMPTS = insert(attempt).from_select(["job_id", "run_id"], select(job.c.id, job.c.run_id).where(OF_RUN))
_LAST = select(job.c.id, job.c.payload, job.c.attempts).where(OF_RUN).order_by(job.c.id.desc()).limit(1)


def begin(connection: Connection, *, type: str, resource: str, worker: str, lease: float) -> StartedRun | None:  # noqa: A002
    """Take the lock and begin the next run of a type and resource, for `lease` seconds.

    Returns None where there is nothing to do now, or another run has the lock. A lock whose lease ran out is taken
    over. Jobs run in the order of their registration; one that failed waits for its time and lets others pass.
    """
    first = next_job(connection, type, resource)
    expired = _expired(connection, type, resource) if first is None else first.expired
    if (first is None and not expired) or expired is False:
        return None
    if connection.dialect.name == "postgresql":
        # A run that ended within a transaction of its own may still hold its lock.
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
    former = None
    which = {"of_type": type, "of_resource": resource}
    if expired:
        former = connection.execute(_TAKE_OVER, which).first()
    holder = _holder(worker)
    values = {"type": type, "resource": resource, "worker": holder, "lease": lease, "run_id": None}
    if connection.execute(_TAKE[connection.dialect.name], values).first() is None:
        return None
    if former is not None:
        settle(connection, former.run_id, states.LOST, LOST)
        first = next_job(connection, type, resource)  # what that run did comes before what was registered since
    # Only now, with the lock: the tokens of later runs are larger.
    token = _begin_run(connection, type, resource, worker)
    connection.execute(_OF_RUN_NOW, {**which, "token": token})
    return _claim_first(connection, RunLock(token, holder), first, type, resource)


def go_on(
    connection: Connection,
    run_lock: RunLock,
    outcome: str,
    reason: str | None = None,
    traceback: str | None = None,
    *,
    type: str,  # noqa: A002
    resource: str,
    worker: str,
    lease: float,
) -> StartedRun | None:
    """End a run as `finish` does, and begin the next one of its type and resource in the same transaction.

    Returns None where nothing is to be done now; the lock is free then. Raises LeaseLost, and writes nothing then.
    """
    _give_back(connection, run_lock)
    end(connection, run_lock.token, outcome, reason, traceback)
    following = next_job(connection, type, resource)
    if following is None:
        return None
    # Until this transaction ends, no other transaction can take the lock.
    after = RunLock(_begin_run(connection, type, resource, worker), _holder(worker))
    values = {"type": type, "resource": resource, "worker": after.holder, "lease": lease, "run_id": after.token}
    connection.execute(_LOCK, values)
    return _claim_first(connection, after, following, type, resource)


def _holder(worker: str) -> str:
    return f"{worker[:MOST_NAME]} {secrets.token_hex(8)}"


def is_due(connection: Connection, *, type: str, resource: str) -> bool:  # noqa: A002
    """Return whether there is something for `begin` to do. Reads only."""
    return bool(connection.execute(_IS_DUE, {"of_type": type, "of_resource": resource}).scalar())


def _expired(connection: Connection, type: str, resource: str) -> bool:  # noqa: A002
    return connection.execute(_EXPIRED, {"of_type": type, "of_resource": resource}).first() is not None


def _begin_run(connection: Connection, type: str, resource: str, worker: str) -> int:  # noqa: A002
    values = {"type": type, "resource": resource, "worker": worker}
    return int(connection.execute(_BEGIN_RUN, values).scalar_one())


def _claim_first(
    connection: Connection,
    run_lock: RunLock,
    first: Row[Any, Any, Any] | None,
    type: str,  # noqa: A002
    resource: str,
) -> StartedRun | None:
    """Give a run its jobs. Where there are none any more, delete it with its lock, and return None."""
    while first is not None:
        begun = _claim(connection, run_lock, first, type, resource)
        if begun is not None:  # else it was cancelled a moment ago
            return begun
        first = next_job(connection, type, resource)
    connection.execute(delete(lock).where(lock.c.run_id == run_lock.token))
    connection.execute(delete(run).where(run.c.id == run_lock.token))
    return None


def _claim(
    connection: Connection,
    run_lock: RunLock,
    first: Row[Any, Any, Any],
    type: str,  # noqa: A002
    resource: str,
) -> StartedRun | None:
    """Make the jobs of a run its own. A job that was cancelled a moment ago is not among them."""
    claimed: dict[str, Any] = {"token": run_lock.token}
    if first.coalesce:
        claimed |= {"of_type": type, "of_resource": resource}
        count = connection.execute(_CLAIM_ALL, claimed).rowcount
        last = connection.execute(_LAST, {"token": run_lock.token}).first()
    else:
        last = connection.execute(_CLAIM_ONE, {**claimed, "job": first.id}).first()
        count = 1
    if last is None:
        return None
    connection.execute(_ATTEMPTS, {"token": run_lock.token})
    return StartedRun(run_lock, type, resource, last.id, last.payload, count, last.attempts)


def renew(connection: Connection, run_locks: Collection[RunLock], lease: float) -> tuple[set[RunLock], set[RunLock]]:
    """Renew the leases of runs. Returns those that still have their lock, and of them those that were cancelled.

    A run is cancelled when all its jobs are.
    """
    which = {"ids": [run_lock.token for run_lock in run_locks], "holders": [run_lock.holder for run_lock in run_locks]}
    held = {RunLock(*row) for row in connection.execute(_RENEW, {**which, "lease": lease})}
    if not held:
        return held, set()
    cancelled = {row.run_id for row in connection.execute(_CANCELLED, {"ids": [run_lock.token for run_lock in held]})}
    return held, {run_lock for run_lock in held if run_lock.token in cancelled}


def hold(connection: Connection, run_lock: RunLock) -> None:
    """Keep the lock of a run until this transaction ends, so that what it writes is fenced. Raises LeaseLost.

    On PostgreSQL its lease can be renewed meanwhile.
    """
    if connection.execute(_HOLD, run_lock._asdict()).first() is None:
        raise LeaseLost


def finish(
    connection: Connection, run_lock: RunLock, outcome: str, reason: str | None = None, traceback: str | None = None
) -> None:
    """End a run as done, failed or cancelled, and give its lock back. Raises LeaseLost, and writes nothing then."""
    _give_back(connection, run_lock)
    settle(connection, run_lock.token, outcome, reason, traceback)


def _give_back(connection: Connection, run_lock: RunLock) -> None:
    # Not an update of the lock's row: only a deletion waits for a transaction of this run (`hold`).
    if connection.execute(_GIVE_BACK, run_lock._asdict()).first() is None:
        raise LeaseLost
