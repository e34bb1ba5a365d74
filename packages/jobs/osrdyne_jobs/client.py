"""Register jobs: from threads, and from asyncio.

A job is registered in one transaction, and then cast to the pool, whose daemon starts the worker group of the resource.
The cast is only a hint: where it is lost, refused, or the broker is away, redo casts the job again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_jobs import messages
from osrdyne_jobs.database import bounds
from osrdyne_jobs.database.engines import (
    async_engine_for,
    begin_reading,
    check_tables,
    check_tables_over,
    engine_for,
    for_one_statement,
    reading,
    reason,
    writing,
)
from osrdyne_jobs.errors import InvalidJob, NoAnswer, NotRegistered
from osrdyne_jobs.job_types import JobType, JobTypes, check_id, check_resource, check_seconds
from osrdyne_jobs.store import administration, records, registration
from osrdyne_runtime import log_lines
from osrdyne_runtime.forks import OwnerProcess, keep
from osrdyne_runtime.outages import OutageLog

# A worker imports this module, too, and needs no asyncio of SQLAlchemy.
if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

log = log_lines.logger(__name__)

#: Seconds for which a cast may wait for the broker. Later, redo is as quick.
CAST_TIMEOUT_SECONDS = 5.0
#: Seconds after which redo casts a job that has not begun.
CAST_AFTER_SECONDS = 10.0
#: Most casts that wait for the broker. What comes then is left to redo.
MOST_CASTS = 10_000

Outcome = concurrent.futures.Future[None] | asyncio.Future[None]


class Caster(Protocol):
    """What jobs are cast with: `osrdyne_client.Client` or `AsyncClient`."""

    def start_cast(self, key: str, body: bytes, *, timeout: float | None = None) -> Any:
        """Begin to send a request without a reply; return a future."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A job that is registered."""

    id: int
    type: str
    resource: str


class _Casts:
    """Casts jobs without waiting, and logs an outage while it cannot."""

    def __init__(self, caster: Caster | None) -> None:
        self._caster = caster
        self._home = OwnerProcess()
        self._waiting: set[Any] = set()
        self._outage = OutageLog(log, "the pool", meanwhile="redo casts what is submitted here")

    @property
    def waiting(self) -> set[Any]:
        """Casts that wait for the broker."""
        if not self._home.is_here:
            # Those of another process end there. Nothing of them is touched: their locks may be held for ever here.
            keep(self._waiting)
            self._waiting, self._home = set(), OwnerProcess()
        return self._waiting

    def start(self, job: Registered) -> None:
        if self._caster is None or len(self.waiting) >= MOST_CASTS:
            return
        try:
            body = messages.encode(job.type, job.id)
            outcome: Outcome = self._caster.start_cast(job.resource, body, timeout=CAST_TIMEOUT_SECONDS)
        except Exception as error:  # noqa: BLE001 - the job is registered, whatever this is
            self._ended(error)
        else:
            self.waiting.add(outcome)
            outcome.add_done_callback(self._done)

    def _done(self, outcome: Outcome) -> None:
        self.waiting.discard(outcome)
        self._ended(None if outcome.cancelled() else outcome.exception())

    def _ended(self, error: BaseException | None) -> None:
        if error is not None:
            self._outage.failed(str(error), time.monotonic())
        else:
            self._outage.over(time.monotonic())


class _Base:
    """What both clients share."""

    def __init__(self, types: Iterable[JobType], caster: Caster | None, cast_after: float, timeout: float) -> None:
        self.types = JobTypes(types)
        self._timeout = check_seconds("timeout", timeout)
        if self._timeout <= 0:
            raise InvalidJob("timeout", "give it more than 0")
        self._cast_after = check_seconds("cast_after", cast_after)
        self._casts = _Casts(caster)
        self._checked = False

    def cast(self, job: Registered) -> None:
        """Cast a job that was registered in a transaction of the caller's, once that is committed. Never raises.

        Without it, redo casts the job some seconds later.
        """
        self._casts.start(job)

    def _values(self, type: str, resource: str, payload: Any) -> dict[str, Any]:  # noqa: A002
        """Return what `registration.register` takes. Raises InvalidJob, before a connection is taken."""
        declared = self.types.get(type)
        return {
            "type": type,
            "resource": check_resource(resource),
            "payload": declared.encode(payload),
            "coalesce": declared.coalesce,
            "max_attempts": declared.max_attempts,
            "cast_after": self._cast_after,
        }


def _register(connection: Connection, values: dict[str, Any]) -> Registered:
    return Registered(registration.register(connection, **values), values["type"], values["resource"])


class JobClient(_Base):
    """Registers jobs, from any number of threads."""

    def __init__(
        self,
        database: str | Engine,
        types: Iterable[JobType],
        client: Caster | None = None,
        *,
        cast_after: float = CAST_AFTER_SECONDS,
        timeout: float = bounds.CALL_TIMEOUT_SECONDS,
    ) -> None:
        """Register jobs of these types in a database, an address or an engine of `osrdyne_jobs.engine_for`.

        `client`: an open `osrdyne_client.Client` of the pool. Without one, redo casts all jobs.
        `cast_after`: seconds after which redo casts a job that has not begun; 0 or less for at once.
        `timeout`: seconds after which a call gives the database up, whatever it waits for; at least two where it must
        connect.
        """
        super().__init__(types, client, cast_after, timeout)
        self._engine = engine_for(database, timeout=timeout) if isinstance(database, str) else database
        self._registering = for_one_statement(self._engine)
        self._owned = isinstance(database, str)

    def submit(self, type: str, resource: str, payload: Any) -> Registered:  # noqa: A002
        """Register a job and cast it. Once this returns, the job will be done.

        Raises InvalidJob, which names the field, before anything is written; NotRegistered where the database refuses,
        is away, or does not answer in time; NoSchema.
        """
        values = self._values(type, resource, payload)
        try:
            with bounds.within(self._timeout):
                if not self._checked:
                    check_tables(self._engine)
                    self._checked = True
                with self._registering.begin() as connection:
                    job = _register(connection, values)
        except SQLAlchemyError as error:
            raise _not_registered(error) from error
        self.cast(job)
        return job

    def register(self, connection: Connection, type: str, resource: str, payload: Any) -> Registered:  # noqa: A002
        """Register a job within the caller's transaction on the same database: both are committed, or neither is.

        Call `cast` after the commit. Raises InvalidJob, and what SQLAlchemy raises.
        """
        values = self._values(type, resource, payload)
        with bounds.within(self._timeout):
            return _register(connection, values)

    def get(self, id: int) -> records.Job:  # noqa: A002
        """Return a job. Raises InvalidJob, UnknownJob and NoAnswer."""
        number = check_id(id)
        with _answering(), reading(self._engine, timeout=self._timeout) as connection:
            return administration.get(connection, number)

    def cancel(self, id: int) -> bool:  # noqa: A002
        """Cancel a job; as `administration.cancel` of the store. Raises InvalidJob and NoAnswer, too."""
        number = check_id(id)
        with _answering(), writing(self._engine, timeout=self._timeout) as connection:
            return administration.cancel(connection, number)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Wait `timeout` seconds at most until the broker has the casts, and close the connections to the database.

        Redo casts what the broker does not have by then. Close it before the client of the pool. An engine of the
        caller's stays open.
        """
        concurrent.futures.wait(set(self._casts.waiting), timeout=timeout)
        if self._owned:
            self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncJobClient(_Base):
    """Registers jobs, from asyncio."""

    def __init__(
        self,
        database: str | AsyncEngine,
        types: Iterable[JobType],
        client: Caster | None = None,
        *,
        cast_after: float = CAST_AFTER_SECONDS,
        timeout: float = bounds.CALL_TIMEOUT_SECONDS,
    ) -> None:
        """Do what `JobClient` does; `client` is an `osrdyne_client.AsyncClient`."""
        super().__init__(types, client, cast_after, timeout)
        self._engine = async_engine_for(database, timeout=timeout) if isinstance(database, str) else database
        self._registering = for_one_statement(self._engine)
        self._owned = isinstance(database, str)

    async def submit(self, type: str, resource: str, payload: Any) -> Registered:  # noqa: A002
        """Register a job and cast it; as `JobClient.submit`."""
        values = self._values(type, resource, payload)
        try:
            with bounds.within(self._timeout):
                if not self._checked:
                    async with self._reading() as connection:
                        await connection.run_sync(check_tables_over)
                    self._checked = True
                async with self._registering.begin() as connection:
                    job = await connection.run_sync(_register, values)
        except SQLAlchemyError as error:
            raise _not_registered(error) from error
        self.cast(job)
        return job

    async def register(
        self,
        connection: AsyncConnection,
        type: str,  # noqa: A002
        resource: str,
        payload: Any,
    ) -> Registered:
        """Register a job within the caller's transaction; as `JobClient.register`."""
        values = self._values(type, resource, payload)
        with bounds.within(self._timeout):
            return await connection.run_sync(_register, values)

    async def get(self, id: int) -> records.Job:  # noqa: A002
        """Return a job. Raises InvalidJob, UnknownJob and NoAnswer."""
        number = check_id(id)
        with _answering(), bounds.within(self._timeout):
            async with self._reading() as connection:
                return await connection.run_sync(partial(administration.get, id=number))

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[AsyncConnection]:
        async with self._engine.connect() as connection:
            await connection.run_sync(begin_reading)
            yield connection

    async def cancel(self, id: int) -> bool:  # noqa: A002
        """Cancel a job; as `administration.cancel` of the store. Raises InvalidJob and NoAnswer, too."""
        number = check_id(id)
        with _answering(), bounds.within(self._timeout):
            async with self._engine.begin() as connection:
                return await connection.run_sync(partial(administration.cancel, id=number))

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Wait for the casts and close the connections; as `JobClient.close`."""
        if self._casts.waiting:
            await asyncio.wait(set(self._casts.waiting), timeout=timeout)
        if self._owned:
            await self._engine.dispose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@contextmanager
def _answering() -> Iterator[None]:
    """Word the errors of the database."""
    try:
        yield
    except SQLAlchemyError as error:
        raise NoAnswer(f"the database did not do what it was asked: {reason(error)}. Ask again later") from error


def _not_registered(error: SQLAlchemyError) -> NotRegistered:
    return NotRegistered(
        f"the database did not take the job: {reason(error)}. Submit it again once the database answers"
    )
