"""Redo: casts jobs again that no worker has begun, that failed, or whose worker is gone.

A job whose cast was in vain is also sent as a call: the error reply says why it was not served, and the job keeps that
as its reason.

Any number of these processes may run. One leads, by a lease in the database; the others stand by.
"""

from __future__ import annotations

import concurrent.futures
import queue
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from osrdyne_calls.errors import CallTimeout, RemoteError
from osrdyne_calls.waits import Wait
from osrdyne_client.errors import ClientClosed
from osrdyne_jobs import messages
from osrdyne_jobs.client import CAST_TIMEOUT_SECONDS, Caster
from osrdyne_jobs.database.engines import place, reason
from osrdyne_jobs.redo_rules import Reach
from osrdyne_jobs.store import history, records, scans
from osrdyne_pool.settings import RedoSettings
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime import log_lines
from osrdyne_runtime.outages import OutageLog

log = log_lines.logger(__name__)

#: Most calls that wait for an answer at once: each takes a slot of the client.
MOST_CALLS = 100


class Caller(Caster, Protocol):
    """What redo works with: `osrdyne_client.Client`."""

    def submit(self, key: str, body: bytes, *, timeout: float | None = None) -> Any:
        """Begin to send a request with a reply; return a future, which has all errors of the request, too."""


@dataclass(slots=True)
class Scan:
    """What one scan did."""

    #: Whether this process leads; a standby does nothing else.
    leading: bool = False
    #: Runs that were ended because their worker was gone.
    lost: int = 0
    #: Jobs that were due.
    due: int = 0
    #: Casts that the broker took.
    casts: int = 0
    #: Casts that the broker did not take.
    not_cast: int = 0
    archived: int = 0
    deleted: int = 0


class Redo:
    """One redo process."""

    def __init__(self, engine: Engine, caster: Caller, settings: RedoSettings, *, name: str) -> None:
        """`caster` is an open `osrdyne_client.Client` of the pool; `name` distinguishes this process from others."""
        self._engine = engine
        self._caster = caster
        self._settings = settings
        self._name = name
        self._leading = False
        self._broker = OutageLog(log, "the broker")
        # Times of the monotonic clock before which it does not cast for running jobs, end lost runs, or lead.
        self._cast_running_at = self._end_lost_at = self._lead_at = 0.0
        self._reach = Reach(settings.lease)
        self._stop = threading.Event()
        #: Type and resource of the calls that have no answer yet.
        self._called: set[tuple[str, str]] = set()
        #: What no worker began, and why; the next scan writes it.
        self._refused: queue.SimpleQueue[tuple[records.Hint, str]] = queue.SimpleQueue()

    def run(self, stop: threading.Event, *, scanned: Callable[[], object] = lambda: None) -> None:
        """Scan until `stop` is set, which also ends a scan between two batches. Call `scanned` after each scan.

        An outage of database or broker is logged and waited for. When no cast gets through for longer than the
        lease, another process may lead: its way to the broker may be open.

        Raises ClientClosed where the client of the pool was closed: end the process then.
        """
        self._stop = stop
        database = OutageLog(log, "the database", database=place(self._engine))
        while not stop.is_set():
            try:
                scan = self.scan()
            except SQLAlchemyError as error:
                # Workers could not renew their leases either: give them time.
                self._end_lost_at = time.monotonic() + self._settings.patience
                database.failed(reason(error), time.monotonic())
            else:
                database.over(time.monotonic())
                self._log(scan)
                scanned()
            stop.wait(self._settings.interval)
        self._resign()

    def _log(self, scan: Scan) -> None:
        if scan.leading != self._leading:
            log.info("redo leads" if scan.leading else "redo stands by", extra={"holder": self._name})
            self._leading = scan.leading
        if scan.lost:
            log.warning("workers of jobs are gone; their jobs are due again", extra={"runs": scan.lost})
        if scan.not_cast:
            self._broker.failed(f"{scan.not_cast} jobs could not be cast", time.monotonic())
        elif scan.casts:  # without a cast, nothing is known of the broker
            self._broker.over(time.monotonic())

    def _resign(self) -> None:
        try:
            with self._engine.begin() as connection:
                scans.resign(connection, holder=self._name)
        except SQLAlchemyError:
            log.debug("the lease of the leader is left to end by itself", exc_info=True)

    def scan(self) -> Scan:
        """Do all that is due now, if this process leads. Raises SQLAlchemyError."""
        settings, done = self._settings, Scan()
        if time.monotonic() < self._lead_at:
            return done
        with self._engine.begin() as connection:
            done.leading = scans.lead(connection, holder=self._name, lease=settings.lease)
        if not done.leading:
            return done
        if time.monotonic() >= self._end_lost_at:
            done.lost = self._end_lost()
        self._cast_due(done)
        self._note_refused()
        if time.monotonic() >= self._cast_running_at:
            self._cast_running_at = time.monotonic() + settings.alive_interval
            self._cast_running(done)
        self._archive(done)
        if self._reach.note(casts=done.casts, not_cast=done.not_cast, now=time.monotonic()):
            self._step_back(done)
        return done

    def _step_back(self, done: Scan) -> None:
        """Let another process lead. If none does, this one leads again after they have had the time for it."""
        log.warning("the broker takes no cast of this process; another one may lead", extra={"holder": self._name})
        self._lead_at = time.monotonic() + max(self._settings.lease, 2 * self._settings.interval)
        self._resign()
        done.leading = False

    def _end_lost(self) -> int:
        """End the runs whose lease ran out; return how many."""
        lost = 0
        while True:
            with self._engine.begin() as connection:
                some = scans.lose(connection, self._settings.batch)
            lost += some
            if some < self._settings.batch or self._stop.is_set():
                return lost

    def _cast_due(self, done: Scan) -> None:
        settings = self._settings
        while done.due < settings.most and not self._stop.is_set():
            with self._engine.begin() as connection:
                # Another process may lead now and cast the same jobs: a job that is cast twice is begun once.
                leads = scans.lead(connection, holder=self._name, lease=settings.lease)
                room = min(settings.batch, settings.most - done.due)
                due, hints = scans.cast_due(connection, most=room, pause=settings.pause) if leads else (0, [])
            done.due += due
            failed = self._cast(hints, done)
            self._call(hint for hint in hints if hint.casts and hint.job not in failed)
            if failed:
                with self._engine.begin() as connection:
                    scans.put_back(connection, failed, after=settings.interval)
            if due < room or (hints and len(failed) == len(hints)):
                return

    def _call(self, hints: Iterable[records.Hint]) -> None:
        """Send hints as calls, too. A call is given up in time; the cast has no deadline, and goes on waiting."""
        for hint in hints:
            if len(self._called) >= MOST_CALLS:
                return
            if (hint.type, hint.resource) in self._called:
                continue
            self._called.add((hint.type, hint.resource))
            answer = self._caster.submit(
                hint.resource, messages.encode(hint.type, hint.job), timeout=self._settings.pause
            )
            answer.add_done_callback(partial(self._answered, hint))

    def _answered(self, hint: records.Hint, answer: concurrent.futures.Future[object]) -> None:
        """Keep why a call was not served for the next scan. Runs in the client's thread."""
        self._called.discard((hint.type, hint.resource))
        error = answer.exception()
        if isinstance(error, RemoteError):
            self._refused.put((hint, str(error).removesuffix(f" (correlation id {error.correlation_id})")))
        elif isinstance(error, CallTimeout) and error.wait is Wait.CONFIRMED:
            # It waits in the queue behind its cast, which has no deadline, so that nothing answers it.
            advice = f"`osrdyne status --key {shlex.quote(hint.resource)}` says what its workers do"
            self._refused.put((hint, f"no worker began it within {self._settings.pause:g} s: {advice}"))

    def _note_refused(self) -> None:
        while not self._refused.empty():
            hint, why = self._refused.get()
            try:
                with self._engine.begin() as connection:
                    scans.refuse(connection, type=hint.type, resource=hint.resource, reason=why)
            except SQLAlchemyError:
                self._refused.put((hint, why))
                raise

    def _cast_running(self, done: Scan) -> None:
        """Cast for jobs that run, which keeps their keys in use. In these hints, `job` is the token of the run."""
        settings, after = self._settings, 0
        while not self._stop.is_set():
            with self._engine.begin() as connection:
                some = scans.running(connection, since=settings.alive_interval, after=after, most=settings.batch)
            failed = self._cast(some, done)
            if len(some) < settings.batch or len(failed) == len(some):
                return
            after = some[-1].job

    def _cast(self, hints: Sequence[records.Hint], done: Scan) -> list[int]:
        """Cast a batch and wait until the broker has it, so that few casts wait at once. Return what it did not take.

        Raises ClientClosed.
        """
        casts: dict[int, Any] = {}
        failed: list[int] = []
        for hint in hints:
            try:
                body = messages.encode(hint.type, hint.job)
                casts[hint.job] = self._caster.start_cast(hint.resource, body, timeout=CAST_TIMEOUT_SECONDS)
            except ClientClosed:
                raise
            except OsrdyneError as error:
                log.debug("a job could not be cast", extra={"job": hint.job, "reason": str(error)})
                failed.append(hint.job)
        concurrent.futures.wait(casts.values())
        failed += [number for number, cast in casts.items() if cast.exception() is not None]
        if any(isinstance(cast.exception(), ClientClosed) for cast in casts.values()):
            raise ClientClosed
        done.casts += len(hints) - len(failed)
        done.not_cast += len(failed)
        return failed

    def _archive(self, done: Scan) -> None:
        settings, until = self._settings, time.monotonic() + self._settings.interval
        while time.monotonic() < until and not self._stop.is_set():  # the rest is for the next scan
            with self._engine.begin() as connection:
                moved, deleted = history.archive(
                    connection, after=settings.archive_after, keep=settings.keep, most=settings.batch
                )
            done.archived += moved
            done.deleted += deleted
            if max(moved, deleted) < settings.batch:
                return
