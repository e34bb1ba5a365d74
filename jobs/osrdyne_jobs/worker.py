"""Do jobs: a handler for `osrdyne_worker`, with one function for each type of job.

A request only says that there is something to do. The worker begins the next job of that type and its own key, in the
database, and goes on until nothing is due. It holds the request meanwhile, so the broker gives it no more than it can
do. A job that takes longer than most of the pool's consumer timeout goes on after the request was acknowledged; redo
then keeps the group from being stopped.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from osrdyne_jobs import messages, states, store
from osrdyne_jobs.database import check_tables, engine_for
from osrdyne_jobs.errors import InvalidJob, LeaseLost
from osrdyne_jobs.job_types import JobType, JobTypes
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_worker import Reject, Request, environment, run

logger = logging.getLogger(__name__)

#: Seconds after which the job of a worker that died is taken over.
LEASE = 30.0
#: Leases are renewed this many times within their length.
RENEWALS = 4
#: Part of the consumer timeout for which a request is held.
HELD = 0.5
#: Pauses in seconds between attempts to write an outcome while the database is away.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


class JobCancelled(Exception):
    """Raise it in a handler that has ended because its run was cancelled."""


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
    _engine: Engine = field(repr=False)
    _ended: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def cancelled(self) -> threading.Event:
        """Set when all jobs of this run were cancelled, or the lease was lost: stop, and write nothing more."""
        return self._ended

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Give a transaction on the jobs' database that is fenced: it commits only while this run has its lock.

        Raises LeaseLost.
        """
        with self._engine.begin() as connection:
            store.hold(connection, self.token)
            yield connection


JobHandler = Callable[[Run], object]


class _Leases:
    """Renews the leases of the runs of one process, in a thread of its own."""

    def __init__(self, engine: Engine, lease: float) -> None:
        self._engine = engine
        self._lease = lease
        self._lock = threading.Lock()
        #: By token: the run, and until when its lease lasts for certain, on this process's monotonic clock.
        self._runs: dict[int, tuple[Run, float]] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._renew_all, name="osrdyne jobs: leases", daemon=True)
        self._thread.start()

    def add(self, run: Run, asked: float) -> None:
        """Renew the lease of a run, which the database was asked for at `asked` of the monotonic clock."""
        with self._lock:
            self._runs[run.token] = run, asked + self._lease

    def remove(self, run: Run) -> None:
        with self._lock:
            self._runs.pop(run.token, None)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _renew_all(self) -> None:
        while not self._closed.wait(self._lease / RENEWALS):
            with self._lock:
                tokens = list(self._runs)
            if not tokens:
                continue
            asked = time.monotonic()
            try:
                with self._engine.begin() as connection:
                    held, cancelled = store.renew(connection, tokens, self._lease)
            except SQLAlchemyError as error:
                logger.warning("the leases of jobs could not be renewed", extra={"reason": _reason(error)})
                held, cancelled = None, set()
            self._note(tokens, held, cancelled, asked)

    def _note(self, tokens: list[int], held: set[int] | None, cancelled: set[int], asked: float) -> None:
        with self._lock:
            for token in tokens:
                if token not in self._runs:  # it has ended meanwhile
                    continue
                run, until = self._runs[token]
                if held is not None and token in held:
                    self._runs[token] = run, asked + self._lease
                elif held is not None or time.monotonic() >= until:
                    run.cancelled.set()
                if token in cancelled:
                    run.cancelled.set()


class JobWorker:
    """Does the jobs of one resource, which is the key of its worker group."""

    def __init__(
        self,
        database: str | Engine,
        handlers: Mapping[JobType, JobHandler],
        *,
        lease: float = LEASE,
        threads: int = 1,
        name: str | None = None,
        held: float | None = None,
    ) -> None:
        """Do the jobs of these types, each by its function.

        `lease`: seconds after which the job of a worker that died is taken over. `threads`: jobs at once, each of
        another type. `name`: what attempts show; by default the worker's id. `held`: seconds for which a request is
        held while its job runs; by default half of the pool's consumer timeout.

        Raises NoSchema where the tables are missing.
        """
        self._engine = engine_for(database) if isinstance(database, str) else database
        self._owned = isinstance(database, str)
        try:
            check_tables(self._engine)
        except BaseException:
            self._dispose()
            raise
        self._types = JobTypes(handlers)
        self._handlers = {one.name: handler for one, handler in handlers.items()}
        self._lease = lease
        self._threads = threads
        self._name = name
        self._held = held
        self._leases = _Leases(self._engine, lease)
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="osrdyne job")

    def run(self, **options: Any) -> None:
        """Serve the key of this process's environment until SIGTERM; options are those of `osrdyne_worker.run`."""
        here = environment()
        self._adopt(here)
        try:
            run(self.handle, **{"threads": self._threads, **options})
        finally:
            self.close()

    def _adopt(self, here: WorkerEnvironment) -> None:
        self._name = self._name or here.id
        if self._held is None and here.consumer_timeout_ms is not None:
            self._held = HELD * here.consumer_timeout_ms / 1000

    def handle(self, request: Request) -> None:
        """Handle one request: do what is due of the type that it names. For `osrdyne_worker.run` or `serve`."""
        try:
            named = messages.decode(request.body)
            self._types.get(named)
        except (messages.NotAHint, InvalidJob) as error:
            raise Reject(str(error)) from None
        until = None if self._held is None else time.monotonic() + self._held
        while True:
            try:
                begun = self._begin(named, request.key)
            except SQLAlchemyError as error:
                logger.warning("no job could be begun", extra={"reason": _reason(error)})
                return  # redo casts it again
            if begun is None:
                return
            doing = self._pool.submit(self._do, begun)
            concurrent.futures.wait([doing], timeout=None if until is None else max(0.0, until - time.monotonic()))
            if not doing.done() or (until is not None and time.monotonic() >= until):
                return

    def close(self) -> None:
        """Begin no more jobs, wait for those that run, and stop renewing leases.

        A driver kills a worker that takes too long; another worker takes its jobs over when their leases end.
        """
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._leases.close()
        self._dispose()

    def _dispose(self) -> None:
        if self._owned:
            self._engine.dispose()

    def _begin(self, named: str, resource: str) -> Run | None:
        asked = time.monotonic()
        with self._engine.begin() as connection:
            begun = store.begin(
                connection, type=named, resource=resource, worker=self._name or "unnamed", lease=self._lease
            )
        if begun is None:
            return None
        try:
            payload = self._types.get(named).decode(begun.payload)
        except InvalidJob as error:
            self._finish(begun.token, states.FAILED, f"its payload does not fit the type of today: {error}")
            return self._begin(named, resource)
        made = Run(named, resource, payload, begun.job, begun.jobs, begun.attempts, begun.token, self._engine)
        self._leases.add(made, asked)
        return made

    def _do(self, run: Run) -> None:
        try:
            self._handlers[run.type](run)
            outcome, reason = states.DONE, None
        except JobCancelled as error:
            outcome, reason = states.CANCELLED, str(error) or None
        except LeaseLost:
            outcome, reason = states.FAILED, "its lease was lost"
        except BaseException as error:
            logger.exception("a job failed", extra={"type": run.type, "key": run.resource, "job": run.job})
            outcome, reason = states.FAILED, f"{type(error).__name__}: {error}"
        try:
            self._finish(run.token, outcome, reason)
        finally:
            self._leases.remove(run)

    def _finish(self, token: int, outcome: str, reason: str | None) -> None:
        """Write an outcome, and wait for a database that is away: only the owner of the lock may."""
        pause = FIRST_PAUSE
        while True:
            try:
                with self._engine.begin() as connection:
                    store.finish(connection, token, outcome, reason)
            except LeaseLost:
                logger.warning("a run lost its lease; the job is done again", extra={"token": token})
            except SQLAlchemyError as error:
                logger.warning("the outcome of a job could not be written", extra={"reason": _reason(error)})
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            return


def _reason(error: SQLAlchemyError) -> str:
    # Only the driver's own words: SQLAlchemy's text has the statement with its values.
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
