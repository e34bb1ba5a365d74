"""What all endpoints share: the database, with bounded statements, and the types of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine

from osrdyne_jobs.client import Caster, JobClient
from osrdyne_jobs.database import engines as database
from osrdyne_jobs.job_types import JobType

#: Seconds after which PostgreSQL gives up a statement of the administration.
STATEMENT_TIMEOUT_SECONDS = 15


class Backend:
    """The database of one application."""

    def __init__(self, engine: Engine, types: Iterable[JobType], client: Caster | None) -> None:
        self._engine = engine
        self._checked = False
        self.jobs = JobClient(engine, types, client)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection whose transaction only reads. Raises NoSchema and SQLAlchemyError."""
        self._check()
        with database.reading(self._engine, timeout=STATEMENT_TIMEOUT_SECONDS) as connection:
            _bound(connection)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a connection whose transaction is committed in the end. Raises NoSchema and SQLAlchemyError."""
        self._check()
        with database.writing(self._engine, timeout=STATEMENT_TIMEOUT_SECONDS) as connection:
            _bound(connection)
            yield connection

    def look(self) -> None:
        """Ask the database whether it answers. Raises NoSchema and SQLAlchemyError."""
        with self.reading():
            pass  # which asks for more than a connection

    def _check(self) -> None:
        if not self._checked:
            database.check_tables(self._engine)
            self._checked = True


def _bound(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT_SECONDS}s'")
