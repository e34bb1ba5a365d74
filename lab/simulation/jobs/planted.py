"""Deliberate mistakes, planted into the product's own code for the length of a run: the checker must see each.

Each is one that a developer might make one day. Where no seed notices a mistake, the simulation is blind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from sqlalchemy import Connection, and_, delete, select, update

from osrdyne_jobs import states, worker
from osrdyne_jobs.database.engines import now
from osrdyne_jobs.database.tables import job, lock, run
from osrdyne_jobs.store import history, outcomes, registration, running, scans, sql
from osrdyne_jobs.store.records import Hint, RunLock

#: Where mistakes are planted: the modules of the store, and a class of the worker.
PLACES = (history, outcomes, registration, running, scans, sql, worker._Leases)
#: Names of these, and what stands there instead.
Patches = dict[str, Any]

_register, _begin, _cast_due = registration.register, running.begin, scans.cast_due
_claim, _settle_jobs = running._claim, outcomes._settle_jobs


def _of(table: Any, type: str, resource: str) -> Any:  # noqa: A002
    return and_(table.c.type == type, table.c.resource == resource)


def _finish_without_fence() -> Patches:
    def give_back(connection: Connection, run_lock: RunLock) -> None:
        connection.execute(delete(lock).where(lock.c.run_id == run_lock.token))

    def go_on(connection: Connection, run_lock: RunLock, outcome: str, reason: str | None = None, **_: Any) -> None:
        running.finish(connection, run_lock, outcome, reason)

    return {"_give_back": give_back, "go_on": go_on}


def _transaction_without_fence() -> Patches:
    return {"hold": lambda connection, run_lock: None}


def _never_cast_again() -> Patches:
    return {"cast_due": lambda connection, *, most, pause: (0, [])}


def _taken_over_early() -> Patches:
    def begin(connection: Connection, *, type: str, resource: str, **options: Any) -> Any:  # noqa: A002
        early = and_(_of(lock, type, resource), lock.c.expires_at <= now() + 20)
        connection.execute(update(lock).where(early).values(expires_at=now()))
        return _begin(connection, type=type, resource=resource, **options)

    return {"begin": begin}


def _begun_without_lock() -> Patches:
    def begin(connection: Connection, *, type: str, resource: str, **options: Any) -> Any:  # noqa: A002
        if sql.next_job(connection, type, resource) is not None:
            connection.execute(delete(lock).where(_of(lock, type, resource)))
        return _begin(connection, type=type, resource=resource, **options)

    return {"begin": begin}


def _late_job_counts_as_done() -> Patches:
    def settle(connection: Connection, token: int, outcome: str, reason: str | None) -> None:
        _settle_jobs(connection, token, outcome, reason)
        if outcome == states.DONE:
            ended = connection.execute(select(run.c.type, run.c.resource).where(run.c.id == token)).one()
            same = and_(_of(job, *ended), job.c.coalesce, sql.WAITING)
            connection.execute(update(job).where(same).values(state=states.DONE, finished_at=now()))

    return {"_settle_jobs": settle}


def _failed_starve() -> Patches:
    def cast_due(connection: Connection, *, most: int, pause: float) -> tuple[int, list[Hint]]:
        with mock.patch.object(scans, "_DUE", scans._DUE.where(job.c.state == states.REGISTERED)):
            due, hints = _cast_due(connection, most=most, pause=pause)
        if due < most:
            more, others = _cast_due(connection, most=most - due, pause=pause)
            return due + more, hints + others
        return due, hints

    return {"cast_due": cast_due}


def _cancel_not_heard() -> Patches:
    renew = running.renew
    return {"renew": lambda connection, run_locks, lease: (renew(connection, run_locks, lease)[0], set())}


def _cancel_forgotten() -> Patches:
    def settle(connection: Connection, token: int, outcome: str, reason: str | None) -> None:
        connection.execute(update(job).where(job.c.run_id == token).values(cancel=False))
        _settle_jobs(connection, token, outcome, reason)

    return {"_settle_jobs": settle}


def _left_running() -> Patches:
    def lose(connection: Connection, most: int) -> int:
        return connection.execute(delete(lock).where(lock.c.expires_at <= now())).rowcount

    return {"lose": lose}


def _never_renewed() -> Patches:
    def renew(
        connection: Connection, run_locks: Collection[RunLock], lease: float
    ) -> tuple[set[RunLock], set[RunLock]]:
        return set(run_locks), set()

    return {"renew": renew}


def _lost_runs_do_not_count() -> Patches:
    def settle(connection: Connection, token: int, outcome: str, reason: str | None) -> None:
        if outcome == states.LOST:
            mine = and_(job.c.run_id == token, job.c.state == states.RUNNING)
            connection.execute(update(job).where(mine).values(attempts=job.c.attempts - 1))
        _settle_jobs(connection, token, outcome, reason)

    return {"_settle_jobs": settle}


def _newest_first() -> Patches:
    return {"_NEXT": sql._NEXT.order_by(None).order_by(job.c.id.desc())}


def _one_job_a_run() -> Patches:
    def claim(connection: Connection, run_lock: RunLock, first: Any, *of: str) -> Any:
        return _claim(connection, run_lock, SimpleNamespace(id=first.id, coalesce=False), *of)  # type: ignore[arg-type]

    return {"_claim": claim}


def _retried_at_once() -> Patches:
    return {"states": SimpleNamespace(**{**vars(states), "retry_delay": lambda attempts: 0.0})}


def _stopped_is_cancelled() -> Patches:
    def settle(connection: Connection, token: int, outcome: str, reason: str | None) -> None:
        if outcome == states.CANCELLED:
            connection.execute(update(job).where(job.c.run_id == token).values(cancel=True))
        _settle_jobs(connection, token, outcome, reason)

    return {"_settle_jobs": settle}


def _lost_is_done() -> Patches:
    def settle(connection: Connection, token: int, outcome: str, reason: str | None) -> None:
        _settle_jobs(connection, token, states.DONE if outcome == states.LOST else outcome, reason)

    return {"_settle_jobs": settle}


def _registered_at_once() -> Patches:
    def register(connection: Connection, **values: Any) -> int:
        number = _register(connection, **values)
        connection.connection.commit()
        connection.connection.cursor().execute("BEGIN IMMEDIATE")
        return number

    return {"register": register}


def _begun_late() -> Patches:
    return {"last": lambda leases, run: True}


MISTAKES: dict[str, Callable[[], Patches]] = {
    "a run that lost its lock writes its outcome": _finish_without_fence,
    "a run that lost its lock writes its effects": _transaction_without_fence,
    "redo casts nothing again": _never_cast_again,
    "a lock is taken over before its lease ended": _taken_over_early,
    "a run begins without the lock": _begun_without_lock,
    "a job that was registered during a run is taken for done by it": _late_job_counts_as_done,
    "failed jobs wait until no new ones are due": _failed_starve,
    "a running job does not hear that it was cancelled": _cancel_not_heard,
    "a job that was cancelled is begun again": _cancel_forgotten,
    "a job stays running when its worker dies": _left_running,
    "leases are not renewed": _never_renewed,
    "a run that was lost is not an attempt": _lost_runs_do_not_count,
    "the newest job runs first": _newest_first,
    "jobs that coalesce have a run each": _one_job_a_run,
    "a job that failed is due at once": _retried_at_once,
    "a run that its worker stopped counts as cancelled by a person": _stopped_is_cancelled,
    "a run whose lease ended counts as done": _lost_is_done,
    "a job is committed before the caller's transaction is": _registered_at_once,
    "a handler begins whatever has become of its lease": _begun_late,
}


@contextmanager
def planted(mistake: str) -> Iterator[None]:
    """Run with one mistake in the product."""
    with ExitStack() as patches:
        for name, value in MISTAKES[mistake]().items():
            # Everywhere: a module that imports a name from another one has it, too.
            having = [place for place in PLACES if hasattr(place, name)]
            assert having, f"nothing has {name}"
            for place in having:
                patches.enter_context(mock.patch.object(place, name, value))
        yield
