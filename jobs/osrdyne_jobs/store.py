"""Every change of a job, each within the caller's transaction. This is the only module that writes the tables.

| from | to | by |
|---|---|---|
| (nothing) | registered | `register` |
| registered, failed | running | `begin`, `go_on` |
| running | done, failed, parked, cancelled | `finish`, `go_on`, and `lose` where the lease ran out |
| registered, failed, parked | cancelled | `cancel` |
| failed, parked, cancelled | registered | `redo` |

A run holds the lock of its type and resource: a row of `osrdyne_job_lock`. Whatever a run writes is written in a
transaction that deletes or locks that row, and only if it is still there. So a run whose lease was taken over writes
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BindParameter,
    Connection,
    Float,
    Row,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from osrdyne_jobs import states
from osrdyne_jobs.database import now
from osrdyne_jobs.errors import LeaseLost, UnknownJob, WrongState
from osrdyne_jobs.tables import attempt, job, job_history, leader, lock, run

#: Longest reason that is kept, in characters.
MOST_REASON = 2000
#: Seconds in which the worker of a run goes on with the next job of its resource. After them, redo casts it.
SOON = 5.0
#: Seconds for which a begin waits for the transaction of a former run, on PostgreSQL.
LOCK_PATIENCE = 5
#: Redo casts a job again after this many times the pause, at most.
MOST_PAUSES = 10


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is in the database. Times are seconds since the Unix epoch on the database's clock."""

    id: int
    type: str
    resource: str
    #: JSON.
    payload: str
    coalesce: bool
    state: str
    #: Runs that began.
    attempts: int
    max_attempts: int
    registered_at: float
    #: It does not begin earlier: the pause between two attempts.
    begin_after: float
    #: When it is cast (again), where it waits.
    due_at: float
    #: Its last run.
    run_id: int | None
    #: It was cancelled while it ran.
    cancel: bool
    finished_at: float | None
    #: Why its last attempt failed.
    reason: str | None


_FIELDS = tuple(Job.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that has begun."""

    #: Grows from run to run of one type and resource: the fencing token.
    token: int
    type: str
    resource: str
    #: The job that was registered last of those that this run does.
    job: int
    #: Its payload, as JSON.
    payload: str
    #: How many jobs this run does: one, or several coalesced ones.
    jobs: int
    #: Attempts of that job, this one included.
    attempts: int


@dataclass(frozen=True, slots=True)
class Hint:
    """What is cast: a worker that gets it looks for what is to be done."""

    job: int
    type: str
    resource: str


def _is_one_of(names: Collection[str]) -> Any:
    """Return whether a job has one of these states, written so that both databases see that a partial index fits."""
    return job.c.state.in_([literal_column(f"'{name}'") for name in names])


_WAITING = _is_one_of(states.WAITING)


def _insert(connection: Connection, table: Any) -> Any:
    """Return an INSERT that can handle a conflict: the same for both databases, and not part of SQLAlchemy's core."""
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


# --- statements ------------------------------------------------------------------------------------------------
# Those of each job are built once: SQLAlchemy takes longer to build one than the database to run it.

_TYPE: BindParameter[str] = bindparam("of_type")
_RESOURCE: BindParameter[str] = bindparam("of_resource")
_TOKEN: BindParameter[int] = bindparam("token")
#: When a lease ends that begins now.
_UNTIL = now() + bindparam("lease", type_=Float(53))
_REGISTER = (
    insert(job)
    .values(registered_at=now(), begin_after=now(), due_at=now() + bindparam("cast_after", type_=Float(53)))
    .returning(job.c.id)
)
_OF_RESOURCE = and_(job.c.type == _TYPE, job.c.resource == _RESOURCE)
_NEXT = (
    select(job.c.id, job.c.coalesce, (lock.c.expires_at <= now()).label("expired"))
    .select_from(job.outerjoin(lock, and_(lock.c.type == job.c.type, lock.c.resource == job.c.resource)))
    .where(_OF_RESOURCE, _WAITING, job.c.begin_after <= now())
    .order_by(job.c.id)
    .limit(1)
)
_LOCK = insert(lock).values(expires_at=_UNTIL)
_GIVE_BACK = delete(lock).where(lock.c.run_id == _TOKEN).returning(lock.c.run_id)
_BEGIN_RUN = insert(run).values(began_at=now()).returning(run.c.id)
_END_RUN = (
    update(run)
    .where(run.c.id == _TOKEN)
    .values(ended_at=now(), outcome=bindparam("ended_as"), reason=bindparam("why"))
    .returning(run.c.type, run.c.resource)
)
_CLAIMED = {"state": states.RUNNING, "run_id": _TOKEN, "attempts": job.c.attempts + 1, "cancel": False}
_CLAIM_ONE = (
    update(job)
    .where(job.c.id == bindparam("job"), _WAITING)
    .values(_CLAIMED)
    .returning(job.c.id, job.c.payload, job.c.attempts)
)
#: Those that failed too: the run does what they wait for.
_CLAIM_ALL = update(job).where(_OF_RESOURCE, job.c.coalesce, _WAITING).values(_CLAIMED)
_OF_RUN = and_(job.c.run_id == _TOKEN, job.c.state == states.RUNNING)
_ATTEMPTS = insert(attempt).from_select(["job_id", "run_id"], select(job.c.id, job.c.run_id).where(_OF_RUN))
_LAST = select(job.c.id, job.c.payload, job.c.attempts).where(_OF_RUN).order_by(job.c.id.desc()).limit(1)
_DONE = update(job).where(_OF_RUN).values(state=states.DONE, finished_at=now(), reason=None, cancel=False)


# --- registration -----------------------------------------------------------------------------------------------


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


# --- runs -------------------------------------------------------------------------------------------------------


def begin(connection: Connection, *, type: str, resource: str, worker: str, lease: float) -> Begun | None:  # noqa: A002
    """Take the lock and begin the next run of a type and resource, for `lease` seconds.

    Returns None where there is nothing to do now, or another run has the lock. A lock whose lease ran out is taken
    over. Jobs run in the order of their registration; one that failed waits for its time and lets others pass.
    """
    first = _next(connection, type, resource)
    expired = _expired(connection, type, resource) if first is None else first.expired
    if (first is None and not expired) or expired is False:
        return None
    if connection.dialect.name == "postgresql":
        # A run that ended within a transaction of its own may still hold its lock.
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_PATIENCE}s'")
    former = None
    if expired:
        # Not an update of the lock's row: see `_give_back`.
        gone = delete(lock).where(_is(lock, type, resource), lock.c.expires_at <= now()).returning(lock.c.run_id)
        former = connection.execute(gone).first()
    values = {"type": type, "resource": resource, "worker": worker, "lease": lease, "run_id": None}
    taken = _insert(connection, lock).values(expires_at=_UNTIL).on_conflict_do_nothing().returning(lock.c.type)
    if connection.execute(taken, values).first() is None:
        return None
    if former is not None:
        _settle(connection, former.run_id, states.LOST, _LOST)
        first = _next(connection, type, resource)  # what that run did comes before what was registered since
    # Only now, with the lock: the tokens of later runs are larger.
    token = _begin_run(connection, type, resource, worker)
    connection.execute(update(lock).where(_is(lock, type, resource)).values(run_id=token))
    return _claim_first(connection, token, first, type, resource)


def go_on(
    connection: Connection,
    token: int,
    outcome: str,
    reason: str | None = None,
    *,
    type: str,  # noqa: A002
    resource: str,
    worker: str,
    lease: float,
) -> Begun | None:
    """End a run as `finish` does, and begin the next one of its type and resource in the same transaction.

    Returns None where nothing is to be done now; the lock is free then. Raises LeaseLost, and writes nothing then.
    """
    _give_back(connection, token)
    _end(connection, token, outcome, reason)
    following = _next(connection, type, resource)
    if following is None:
        return None
    # Until this transaction ends, nobody else can take the lock.
    after = _begin_run(connection, type, resource, worker)
    values = {"type": type, "resource": resource, "worker": worker, "lease": lease, "run_id": after}
    connection.execute(_LOCK, values)
    return _claim_first(connection, after, following, type, resource)


_LOST = "its worker did not renew the lease: it ended, hung, or could not reach the database"


def _is(table: Any, type: str, resource: str) -> Any:  # noqa: A002
    return and_(table.c.type == type, table.c.resource == resource)


def _next(connection: Connection, type: str, resource: str) -> Row[Any, Any, Any] | None:  # noqa: A002
    """Return the next job of a resource; its `expired` is None where no run has the lock."""
    return connection.execute(_NEXT, {"of_type": type, "of_resource": resource}).first()


def _expired(connection: Connection, type: str, resource: str) -> bool:  # noqa: A002
    query = select(lock.c.run_id).where(_is(lock, type, resource), lock.c.expires_at <= now())
    return connection.execute(query).first() is not None


def _begin_run(connection: Connection, type: str, resource: str, worker: str) -> int:  # noqa: A002
    values = {"type": type, "resource": resource, "worker": worker}
    return int(connection.execute(_BEGIN_RUN, values).scalar_one())


def _claim_first(
    connection: Connection,
    token: int,
    first: Row[Any, Any, Any] | None,
    type: str,  # noqa: A002
    resource: str,
) -> Begun | None:
    """Give a run its jobs. Where there are none any more, delete it with its lock, and return None."""
    while first is not None:
        begun = _claim(connection, token, first, type, resource)
        if begun is not None:  # else it was cancelled a moment ago
            return begun
        first = _next(connection, type, resource)
    connection.execute(delete(lock).where(lock.c.run_id == token))
    connection.execute(delete(run).where(run.c.id == token))
    return None


def _claim(
    connection: Connection,
    token: int,
    first: Row[Any, Any, Any],
    type: str,  # noqa: A002
    resource: str,
) -> Begun | None:
    """Make the jobs of a run its own. A job that was cancelled a moment ago is not among them."""
    claimed: dict[str, Any] = {"token": token}
    if first.coalesce:
        claimed |= {"of_type": type, "of_resource": resource}
        count = connection.execute(_CLAIM_ALL, claimed).rowcount
        last = connection.execute(_LAST, {"token": token}).first()
    else:
        last = connection.execute(_CLAIM_ONE, {**claimed, "job": first.id}).first()
        count = 1
    if last is None:
        return None
    connection.execute(_ATTEMPTS, {"token": token})
    return Begun(token, type, resource, last.id, last.payload, count, last.attempts)


def renew(connection: Connection, tokens: Collection[int], lease: float) -> tuple[set[int], set[int]]:
    """Renew the leases of runs. Returns those that still have their lock, and of them those that were cancelled.

    A run is cancelled when all its jobs are.
    """
    renewed = update(lock).where(lock.c.run_id.in_(tokens)).values(expires_at=now() + lease).returning(lock.c.run_id)
    held = {int(one.run_id) for one in connection.execute(renewed)}
    if not held:
        return held, set()
    query = select(job.c.run_id).where(job.c.run_id.in_(held), job.c.state == states.RUNNING).group_by(job.c.run_id)
    cancelled = connection.execute(query.having(func.count() == func.sum(case((job.c.cancel, 1), else_=0))))
    return held, {int(one.run_id) for one in cancelled}


def hold(connection: Connection, token: int) -> None:
    """Keep the lock of a run until this transaction ends, so that what it writes is fenced. Raises LeaseLost.

    On PostgreSQL its lease can be renewed meanwhile.
    """
    query = select(lock.c.run_id).where(lock.c.run_id == token).with_for_update(read=True, key_share=True)
    if connection.execute(query).first() is None:
        raise LeaseLost


def finish(connection: Connection, token: int, outcome: str, reason: str | None = None) -> None:
    """End a run as done, failed or cancelled, and give its lock back. Raises LeaseLost, and writes nothing then."""
    _give_back(connection, token)
    _settle(connection, token, outcome, reason)


def _give_back(connection: Connection, token: int) -> None:
    # Not an update of the lock's row: only a deletion waits for a transaction of this run (`hold`).
    if connection.execute(_GIVE_BACK, {"token": token}).first() is None:
        raise LeaseLost


def lose(connection: Connection, most: int) -> int:
    """End the runs whose lease ran out, at most so many; return how many. Their jobs are due at once."""
    query = select(lock.c.run_id).where(lock.c.expires_at <= now()).order_by(lock.c.expires_at).limit(most)
    ended = 0
    for (token,) in connection.execute(query.with_for_update(skip_locked=True)).all():
        gone = delete(lock).where(lock.c.run_id == token, lock.c.expires_at <= now()).returning(lock.c.run_id)
        if connection.execute(gone).first() is not None:
            _settle(connection, token, states.LOST, _LOST)
            ended += 1
    return ended


def _settle(connection: Connection, token: int, outcome: str, reason: str | None) -> None:
    """Write the outcome of a run to it and to its jobs, and let what waited for it be due soon."""
    which = _end(connection, token, outcome, reason)
    # Redo has put off what waited for this run. The worker goes on with it, unless it ends now.
    following = _next(connection, which.type, which.resource)
    if following is not None:
        # Not a condition of the update: one that redo is just putting off would not match it, and be put off.
        soon = case((job.c.due_at < now() + SOON, job.c.due_at), else_=now() + SOON)
        connection.execute(update(job).where(job.c.id == following.id, _WAITING).values(due_at=soon, casts=0))


def _end(connection: Connection, token: int, outcome: str, reason: str | None) -> Row[Any, Any]:
    """Write the outcome of a run to it and to its jobs; return its type and resource."""
    if reason is not None:
        whole = reason.encode("utf-8", "replace").decode()  # no lone surrogates, of a file's name for example
        reason = whole.replace("\0", "\N{REPLACEMENT CHARACTER}")[:MOST_REASON]
    which = connection.execute(_END_RUN, {"token": token, "ended_as": outcome, "why": reason}).one()
    _settle_jobs(connection, token, outcome, reason)
    return which


def _settle_jobs(connection: Connection, token: int, outcome: str, reason: str | None) -> None:
    if outcome == states.DONE:
        connection.execute(_DONE, {"token": token})
        return
    mine = and_(job.c.run_id == token, job.c.state == states.RUNNING)
    over = {"state": states.CANCELLED, "finished_at": now(), "reason": reason}
    connection.execute(update(job).where(mine, job.c.cancel).values(over))
    parked = {"state": states.PARKED, "reason": reason}
    connection.execute(update(job).where(mine, job.c.attempts >= job.c.max_attempts).values(parked))
    attempts = connection.execute(select(func.max(job.c.attempts)).where(mine)).scalar()
    if attempts is not None:
        # The job of a worker that is gone is begun again at once.
        delay = states.retry_delay(attempts) if outcome == states.FAILED else 0.0
        again = {"begin_after": now() + delay, "due_at": now() + delay, "casts": 0}
        failed = {"state": states.FAILED, "reason": reason, **again}
        connection.execute(update(job).where(mine).values(failed))


# --- redo -------------------------------------------------------------------------------------------------------


def cast_due(connection: Connection, *, most: int, pause: float) -> tuple[int, list[Hint]]:
    """Take at most so many due jobs, oldest first. Returns their number, and what to cast.

    One cast is enough for all jobs of a type and resource, and none where a run has the lock: it goes on with the next
    job when it ends. Each job is due again after `pause` seconds, then after twice and three times as many.
    """
    query = select(job.c.id, job.c.type, job.c.resource, lock.c.run_id).select_from(
        job.outerjoin(lock, and_(lock.c.type == job.c.type, lock.c.resource == job.c.resource))
    )
    query = query.where(_WAITING, job.c.due_at <= now()).order_by(job.c.due_at, job.c.id)
    due = connection.execute(query.limit(most).with_for_update(of=job, skip_locked=True)).all()
    if due:
        pauses = case((job.c.casts >= MOST_PAUSES, MOST_PAUSES), else_=job.c.casts + 1)
        again = {"due_at": now() + pause * pauses, "casts": job.c.casts + 1}
        ids = [one.id for one in due]
        connection.execute(update(job).where(job.c.id.in_(ids), _WAITING).values(again))
    hints = {(one.type, one.resource): Hint(one.id, one.type, one.resource) for one in reversed(due) if not one.run_id}
    return len(due), list(reversed(hints.values()))


def put_back(connection: Connection, jobs: Collection[int], *, after: float) -> None:
    """Let jobs whose cast failed be due again in `after` seconds."""
    again = {"due_at": now() + after, "casts": case((job.c.casts > 0, job.c.casts - 1), else_=0)}
    connection.execute(update(job).where(job.c.id.in_(jobs), _WAITING).values(again))


def running(connection: Connection, *, since: float, after: int, most: int) -> Sequence[Hint]:
    """Return runs that began `since` seconds ago or earlier, in the order of their tokens, which follow `after`.

    `Hint.job` is the token.
    """
    query = select(lock.c.run_id, lock.c.type, lock.c.resource).join(run, run.c.id == lock.c.run_id)
    query = query.where(lock.c.run_id > after, run.c.began_at <= now() - since)
    rows = connection.execute(query.order_by(lock.c.run_id).limit(most))
    return [Hint(one.run_id, one.type, one.resource) for one in rows]


def lead(connection: Connection, *, holder: str, lease: float) -> bool:
    """Lead the redo processes for `lease` seconds, or go on leading. Returns False where another one leads."""
    mine = _insert(connection, leader).values(name="redo", holder=holder, expires_at=now() + lease)
    mine = mine.on_conflict_do_update(
        index_elements=[leader.c.name],
        set_={"holder": holder, "expires_at": now() + lease},
        where=or_(leader.c.holder == holder, leader.c.expires_at <= now()),
    )
    return connection.execute(mine.returning(leader.c.name)).first() is not None


def resign(connection: Connection, *, holder: str) -> None:
    """Lead no longer, so that a standby takes over at once."""
    connection.execute(delete(leader).where(leader.c.holder == holder))


def archive(connection: Connection, *, after: float, keep: float, most: int) -> tuple[int, int]:
    """Move jobs that ended `after` seconds ago to the history, and delete what has been there for `keep` seconds.

    At most so many of each; returns both numbers.
    """
    # Only a job that is done or cancelled has this time. Its state is not asked for: it would suggest another index.
    old = select(job.c.id).where(job.c.finished_at <= now() - after)
    old = old.order_by(job.c.finished_at).limit(most).with_for_update(skip_locked=True)
    ids = list(connection.execute(old).scalars())
    if ids:
        rows = select(*job.c).where(job.c.id.in_(ids))
        connection.execute(insert(job_history).from_select([one.name for one in job.c], rows))
        connection.execute(delete(job).where(job.c.id.in_(ids)))
    older = select(job_history.c.id).where(job_history.c.finished_at <= now() - keep)
    older = older.order_by(job_history.c.finished_at).limit(most).with_for_update(skip_locked=True)
    gone = list(connection.execute(older).scalars())
    _forget(connection, job_history, gone)
    return len(ids), len(gone)


def _forget(connection: Connection, table: Any, ids: Sequence[int]) -> None:
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


# --- administration ---------------------------------------------------------------------------------------------


def get(connection: Connection, id: int) -> Job:  # noqa: A002
    """Return a job, also one of the history. Raises UnknownJob."""
    for table in (job, job_history):
        row = connection.execute(select(*(table.c[name] for name in _FIELDS)).where(table.c.id == id)).first()
        if row is not None:
            return Job(*row)
    raise UnknownJob(f"there is no job {id}: it was deleted, or its time in the history is over")


def attempts(connection: Connection, id: int) -> list[Mapping[str, Any]]:  # noqa: A002
    """Return the runs of a job, oldest first: token, worker, began_at, ended_at, outcome, reason."""
    columns = (run.c.id.label("token"), run.c.worker, run.c.began_at, run.c.ended_at, run.c.outcome, run.c.reason)
    query = select(*columns).join(attempt, attempt.c.run_id == run.c.id).where(attempt.c.job_id == id)
    return [dict(one) for one in connection.execute(query.order_by(run.c.id)).mappings()]


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
    query = select(*(table.c[name] for name in _FIELDS)).where(table.c.id > after)
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
            _forget(connection, table, [id])
            return
    raise UnknownJob(f"there is no job {id}: it was deleted, or its time in the history is over")


def counts(connection: Connection) -> dict[str, int]:
    """Return how many jobs of each state there are, without the history."""
    rows = connection.execute(select(job.c.state, func.count()).group_by(job.c.state)).all()
    return dict.fromkeys(states.STATES, 0) | {state: int(count) for state, count in rows}
