"""Do jobs: a handler for `osrdyne_worker`, with one function for each type of job.

A request only says that there is something to do. The worker begins the next job of that type and its own key, in the
database, and goes on until nothing is due. It holds the request meanwhile, so the broker gives it no more than it can
do. A job that takes longer than most of the pool's consumer timeout goes on after the request was acknowledged; redo
then keeps the group from being stopped.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_jobs import messages, states
from osrdyne_jobs.database.engines import (
    check_tables,
    engine_for,
    for_one_statement,
    place,
    reading,
    reason,
    refusal,
    writing,
)
from osrdyne_jobs.errors import DatabaseRefused, InvalidJob, LeaseLost
from osrdyne_jobs.job_types import JobType, JobTypes, check_seconds
from osrdyne_jobs.store import records, running, tracebacks
from osrdyne_jobs.waiting import reached, until_signal
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_runtime import log_lines
from osrdyne_runtime.forks import OwnerProcess
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry
from osrdyne_worker import Reject, Request, Requeue, environment, run

log = log_lines.logger(__name__)

#: Seconds after which the job of a worker that died is taken over.
LEASE_SECONDS = 30.0
#: Leases are renewed this many times within their length.
RENEWALS = 4
#: Part of the consumer timeout for which a request is held.
HELD_SHARE = 0.5
#: Pauses in seconds between attempts to write an outcome while the database is away.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0


class JobCancelled(Exception):
    """Raise it in a handler that has ended because its run was cancelled, or because its worker stops."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a handler gets: one run, of one job or of several coalesced ones."""

    type: str
    resource: str
    #: The payload of the job that was registered last, as its type declares it.
    payload: Any
    #: That job.
    job: int
    #: How many jobs this run does.
    jobs: int
    #: The attempt of that job, from 1.
    attempt: int
    #: The fencing token: later runs of this type and resource have larger ones. Give it to whatever you write to, and
    #: let that refuse a token smaller than one it has seen.
    token: int
    #: What this run knows its lock by.
    run_lock: records.RunLock = field(repr=False)
    _engine: Engine = field(repr=False)
    _stopping: threading.Event = field(repr=False)
    _ended: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def cancelled(self) -> threading.Event:
        """Set when all jobs of this run were cancelled, or the lease was lost: stop, and write nothing more."""
        return self._ended

    @property
    def stopping(self) -> threading.Event:
        """Set when the worker of this run stops: finish soon, or keep what is done and raise JobCancelled.

        The next attempt then begins at once, with another worker. A handler that takes longer than the grace of the
        worker's driver is killed.
        """
        return self._stopping

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Give a transaction on the jobs' database that is fenced: it commits only while this run has its lock.

        Raises LeaseLost.
        """
        with self._engine.begin() as connection:
            running.hold(connection, self.run_lock)
            yield connection


JobHandler = Callable[[Run], object]


class RunEnd(NamedTuple):
    """How a run ended, as the store takes it."""

    outcome: str
    reason: str | None = None
    traceback: str | None = None


class _Leases:
    """Renews the leases of the runs of one process, and warns runs whose lease is in doubt.

    Two threads: a database that hangs holds up renewals, and must not hold up the news of it.
    """

    def __init__(self, engine: Engine, lease: float) -> None:
        self._engine = engine
        self._lease = lease
        self._lock = threading.Lock()
        #: Each run, and until when its lease lasts for certain, on this process's monotonic clock.
        self._runs: dict[records.RunLock, tuple[Run, float]] = {}
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"osrdyne jobs: {name}", daemon=True)
            for name, target in (("leases", self._renew_all), ("deadlines", self._watch))
        ]
        for thread in self._threads:
            thread.start()

    def add(self, run: Run, asked: float) -> None:
        """Renew the lease of a run, which the database was asked for at `asked` of the monotonic clock."""
        with self._lock:
            self._runs[run.run_lock] = run, asked + self._lease

    def last(self, run: Run) -> bool:
        """Return whether the lease of a run lasts for certain, at this moment."""
        with self._lock:
            return time.monotonic() < self._runs[run.run_lock][1]

    def remove(self, run: Run) -> None:
        with self._lock:
            self._runs.pop(run.run_lock, None)

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join(CLOSE_SECONDS)  # a database that hangs must not hold up the end

    def _watch(self) -> None:
        """Warn runs whose lease was not renewed in time: another worker may begin their jobs."""
        while not self._closed.wait(self._lease / RENEWALS / 4):
            with self._lock:
                late = [late_run for late_run, until in self._runs.values() if time.monotonic() >= until]
            for late_run in late:
                late_run.cancelled.set()

    def _renew_all(self) -> None:
        where = place(self._engine)
        outage = OutageLog(log, "the database", meanwhile="the leases of jobs are not renewed", database=where)
        pause = self._lease / RENEWALS
        while not self._closed.wait(pause):
            pause = self._lease / RENEWALS
            with self._lock:
                run_locks = list(self._runs)
            if not run_locks:
                outage.over(time.monotonic())
                continue
            asked = time.monotonic()
            try:
                with self._engine.begin() as connection:
                    held, cancelled = running.renew(connection, run_locks, self._lease)
            except Exception as error:  # noqa: BLE001 - without this thread all leases would end
                outage.failed(_reason(error), time.monotonic())
                pause = self._lease / RENEWALS / 4
            else:
                outage.over(time.monotonic())
                self._note(run_locks, held, cancelled, asked)

    def _note(
        self,
        run_locks: list[records.RunLock],
        held: set[records.RunLock],
        cancelled: set[records.RunLock],
        asked: float,
    ) -> None:
        with self._lock:
            for run_lock in run_locks:
                if run_lock not in self._runs:  # it has ended meanwhile
                    continue
                run, _ = self._runs[run_lock]
                if run_lock in held:
                    self._runs[run_lock] = run, asked + self._lease
                if run_lock not in held or run_lock in cancelled:
                    run.cancelled.set()


class JobWorker:
    """Does the jobs of one resource, which is the key of its worker group."""

    def __init__(
        self,
        database: str | Engine,
        handlers: Mapping[JobType, JobHandler],
        *,
        lease: float = LEASE_SECONDS,
        threads: int = 1,
        name: str | None = None,
        held: float | None = None,
    ) -> None:
        """Do the jobs of these types, each by its function.

        `lease`: seconds after which the job of a worker that died is taken over. `threads`: jobs at once, each of
        another type. `name`: what attempts show; by default the worker's id. `held`: seconds for which a request is
        held while its job runs; by default half of the pool's consumer timeout.

        Raises InvalidJob for a time or a number that cannot be, NoSchema where the tables are missing, and
        DatabaseRefused. A PostgreSQL that is away is logged, and `run` waits for it.
        """
        self._types = JobTypes(handlers)
        self._lease = check_seconds("lease", lease)
        if self._lease <= 0 or threads < 1:
            raise InvalidJob("lease" if self._lease <= 0 else "threads", "give it more than 0")
        self._home = OwnerProcess()
        self._engine = engine_for(database) if isinstance(database, str) else database
        self._owned = isinstance(database, str)
        self._looking = for_one_statement(self._engine)
        self._outage = OutageLog(log, "the database", meanwhile="no job is begun here", database=place(self._engine))
        try:
            self._look()
        except BaseException:
            self._dispose()
            raise
        self._handlers = {declared.name: handler for declared, handler in handlers.items()}
        self._threads = threads
        self._name = name
        self._held = held
        self._leases = _Leases(self._engine, lease)
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="osrdyne job")
        #: A run begins only when a thread is free for it.
        self._free = threading.Semaphore(threads)
        self._closing = threading.Event()

    def run(self, **options: Any) -> None:
        """Serve the key of this process's environment until SIGTERM; `options` are those of `osrdyne_worker.run`.

        A PostgreSQL that is away is waited for before the first request is taken. `on_stop` is not one of them:
        `run.stopping` says it. Raises NoSchema where the tables are missing then, and DatabaseRefused: its driver
        starts it again, with another password where there is one by then.
        """
        self._home.check("this JobWorker")
        here = environment()
        self._adopt(here)
        try:
            if self._outage.is_away:
                look = partial(reached, self._check, self._outage, away=OperationalError)
                asyncio.run(until_signal(look))
            if not self._outage.is_away:
                run(self.handle, on_stop=self._closing.set, **{"threads": self._threads, **options})
        finally:
            self.close(None)

    def _look(self) -> None:
        """Check the tables. A PostgreSQL that is away is an outage; a file of SQLite is there, or its name is wrong."""
        try:
            self._check()
        except OperationalError as error:  # not what a user may not read, for example
            if self._engine.dialect.name != "postgresql":
                raise
            self._outage.failed(_reason(error), time.monotonic())

    def _check(self) -> None:
        try:
            check_tables(self._engine)
        except OperationalError as error:
            refused = refusal(error)
            if refused is None:
                raise
            raise DatabaseRefused(f"{place(self._engine)} refuses this worker: {refused}") from error

    def _adopt(self, here: WorkerEnvironment) -> None:
        self._name = self._name or here.id
        if self._held is None and here.consumer_timeout_ms is not None:
            self._held = HELD_SHARE * here.consumer_timeout_ms / 1000

    def handle(self, request: Request) -> None:
        """Handle one request: do what is due of the type that it names. For `osrdyne_worker.run` or `serve`.

        Raises Requeue when this worker was closed, and OtherProcess in a fork, which has not the threads that renew
        leases.
        """
        self._home.check("this JobWorker")
        try:
            named = messages.decode(request.body)
            self._types.get(named)
        except (messages.NotAHint, InvalidJob) as error:
            raise Reject(str(error)) from None
        until = None if self._held is None else time.monotonic() + self._held
        if self._closing.is_set():
            raise Requeue  # what waits would else wait for redo
        if not self._free.acquire(timeout=_left(until)):
            return  # a long job goes on in that thread; redo casts again
        if self._closing.is_set():  # meanwhile
            self._free.release()
            raise Requeue
        doing = self._start(named, request.key, until)
        if doing is not None:
            concurrent.futures.wait([doing], timeout=_left(until))

    def _start(self, named: str, resource: str, until: float | None) -> concurrent.futures.Future[None] | None:
        """Begin the next run in a thread that is free, or give that back and return None."""
        begun = doing = None
        try:
            begun = self._begin(named, resource)
            if begun is not None:
                doing = self._pool.submit(self._do, begun, until)
        except RuntimeError:  # the pool was closed meanwhile
            if begun is not None:
                self._finish(begun, RunEnd(states.CANCELLED, "its worker ended before it began"))
        except SQLAlchemyError as error:
            self._outage.failed(_reason(error), time.monotonic())  # redo casts it again
        finally:
            if doing is None:
                self._free.release()
        return doing

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Begin no more jobs, wait `timeout` seconds at most for those that run, and stop renewing leases.

        None: however long they take. What still runs then goes on, keeps its leases, and holds up the end of the
        process. A driver kills a worker that takes too long; another worker takes its jobs over when their leases end.
        Does nothing in a fork: the threads are the other process's.
        """
        if not self._home.is_here:
            return
        self._closing.set()
        end = threading.Thread(target=self._end, name="osrdyne jobs: end", daemon=True)
        end.start()
        end.join(timeout)

    def _end(self) -> None:
        self._pool.shutdown(wait=True)
        self._leases.close()
        self._dispose()

    def _dispose(self) -> None:
        if self._owned:
            self._engine.dispose()

    @property
    def _called(self) -> str:
        return self._name or "unnamed"

    def _begin(self, named: str, resource: str) -> Run | None:
        # One cast begins all that waits, so those of the jobs behind it find nothing: that is seen by reading alone.
        with reading(self._looking) as connection:
            is_due = running.is_due(connection, type=named, resource=resource)
        self._outage.over(time.monotonic())
        if not is_due:
            return None
        asked = time.monotonic()
        with writing(self._engine) as connection:
            begun = running.begin(connection, type=named, resource=resource, worker=self._called, lease=self._lease)
        return self._run_of(begun, asked)

    def _run_of(self, begun: records.StartedRun | None, asked: float) -> Run | None:
        """Return what a handler gets for a run that began, whose lease was asked for at `asked` of the clock."""
        while begun is not None:
            try:
                payload = self._types.get(begun.type).decode(begun.payload)
            except Exception as error:  # noqa: BLE001 - a validator of the user's may raise anything
                ending = self._failed(error, "its payload does not fit the type of today: ")
                asked, begun = self._write(begun, ending, goes_on=True)
                continue
            made = Run(
                type=begun.type,
                resource=begun.resource,
                payload=payload,
                job=begun.job,
                jobs=begun.jobs,
                attempt=begun.attempts,
                token=begun.token,
                run_lock=begun.run_lock,
                _engine=self._engine,
                _stopping=self._closing,
            )
            self._leases.add(made, asked)
            return made
        return None

    def _do(self, run: Run, until: float | None) -> None:
        """Do a run, and those that follow it while the worker may begin some; `until` of the monotonic clock."""
        doing: Run | None = run
        try:
            while doing is not None:
                ending = self._ending(doing)
                late = until is not None and time.monotonic() >= until
                goes_on = not late and not self._closing.is_set()
                doing = self._finish(doing, ending, goes_on=goes_on)
                if doing is None and goes_on:
                    # Another worker may have heard of a job while this one still had the lock.
                    doing = self._begin(run.type, run.resource)
        except SQLAlchemyError as error:
            self._outage.failed(_reason(error), time.monotonic())  # redo casts it again
        finally:
            self._free.release()

    def _ending(self, run: Run) -> RunEnd:
        """Run the handler. Never raises, whatever the handler raises."""
        if not self._leases.last(run):  # the database, or this process, stood still since it was asked for
            run.cancelled.set()
            return RunEnd(states.CANCELLED, _STOPPED)
        try:
            self._handlers[run.type](run)
        except JobCancelled as error:
            return RunEnd(states.CANCELLED, _said(error) if error.args else None)
        except LeaseLost:
            return RunEnd(states.FAILED, _STOPPED)
        except BaseException as error:
            log.exception("a job failed", extra={"type": run.type, "key": run.resource, "job": run.job})
            return self._failed(error)
        # It is not known whether a handler that was asked to stop has done all of its work.
        return RunEnd(states.CANCELLED, _STOPPED) if run.cancelled.is_set() else RunEnd(states.DONE)

    def _failed(self, error: BaseException, before: str = "") -> RunEnd:
        """Return the end of a run by an exception, without the passwords that this worker was given."""
        given = tracebacks.secrets_of(self._engine)
        return RunEnd(states.FAILED, tracebacks.without(given, before + _said(error)), tracebacks.kept(error, given))

    def _finish(self, run: Run, ending: RunEnd, *, goes_on: bool = False) -> Run | None:
        """Write an outcome, and where the worker `goes_on`, begin and return the next run of the resource."""
        try:
            asked, begun = self._write(run, ending, goes_on=goes_on)
        finally:
            self._leases.remove(run)
        return self._run_of(begun, asked)

    def _write(
        self, run: Run | records.StartedRun, ending: RunEnd, *, goes_on: bool
    ) -> tuple[float, records.StartedRun | None]:
        """Do that in the database, and wait for it while it is away: only the owner of the lock may.

        Returns when that was asked for, by the monotonic clock, and what began.
        """
        retry = Retry(first=FIRST_PAUSE_SECONDS, limit=LONGEST_PAUSE_SECONDS)
        where = place(self._engine)
        outage = OutageLog(
            log, "the database", meanwhile="an outcome waits to be written", database=where, token=run.token
        )
        while True:
            asked, begun = time.monotonic(), None
            try:
                with self._engine.begin() as connection:
                    if goes_on:
                        begun = running.go_on(
                            connection,
                            run.run_lock,
                            *ending,
                            type=run.type,
                            resource=run.resource,
                            worker=self._called,
                            lease=self._lease,
                        )
                    else:
                        running.finish(connection, run.run_lock, *ending)
            except LeaseLost:
                log.warning("a run lost its lease; the job is done again", extra={"token": run.token})
                return asked, None
            except SQLAlchemyError as error:
                outage.failed(_reason(error), time.monotonic())
                time.sleep(retry.failed())
                continue
            outage.over(time.monotonic())
            return asked, begun


_STOPPED = "it was stopped: it was cancelled, or its lease was in doubt"


def _left(until: float | None) -> float | None:
    """Return the seconds until a moment of the monotonic clock."""
    return None if until is None else max(0.0, until - time.monotonic())


def _said(error: BaseException) -> str:
    """Return an exception as a reason, whatever its text is, without the values of an SQL statement."""
    try:
        return f"{type(error).__name__}: {tracebacks.without_values(error, _reason(error))}"
    except Exception:  # noqa: BLE001 - its __str__ raises
        return type(error).__name__


def _reason(error: BaseException) -> str:
    return reason(error) if isinstance(error, SQLAlchemyError) else str(error)
