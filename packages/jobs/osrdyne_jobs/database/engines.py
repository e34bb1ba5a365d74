"""Engines, and the database's clock.

PostgreSQL is the store for more than one machine. SQLite, in WAL mode, is for one machine: all processes use one file.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import (
    Connection,
    Engine,
    Float,
    Select,
    column,
    create_engine,
    event,
    inspect,
    make_url,
    select,
    table,
)
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from osrdyne_jobs.database import addresses, bounds, forks
from osrdyne_jobs.database.sqlite_queue import BEGIN, WRITE_AHEAD_LOG, QueuedConnection
from osrdyne_jobs.errors import JobError, NoSchema
from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime import log_lines
from osrdyne_runtime.console.imports import extra
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry
from osrdyne_runtime.settings import secrets

# A worker needs neither Alembic nor asyncio of SQLAlchemy: they are imported where they are used.
if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy.ext.asyncio import AsyncEngine

log = log_lines.logger(__name__)

#: Whether the transaction that begins now only reads.
_READS: ContextVar[bool] = ContextVar("osrdyne_jobs_reads", default=False)


class now(FunctionElement[float]):  # noqa: N801 - used as SQL's functions are
    """The database's clock, in seconds since the Unix epoch, at the begin of the statement."""

    type = Float(53)
    inherit_cache = True


@compiles(now, "postgresql")
def _now_of_postgresql(*_: Any, **__: Any) -> str:
    # Not clock_timestamp(): no index can be used with what may change within a statement.
    return "EXTRACT(EPOCH FROM statement_timestamp())::double precision"


@compiles(now, "sqlite")
def _now_of_sqlite(*_: Any, **__: Any) -> str:
    return "osrdyne_now()"


#: The address of a database, or a function that returns the present one.
Address = str | Callable[[], str]
#: By engine: an engine's own URL has no password.
_ADDRESSES: WeakKeyDictionary[Engine, Address] = WeakKeyDictionary()


def address_of(engine: Engine) -> str | None:
    """Return the present address of an engine that was made here. Raises what its function raises."""
    address = _ADDRESSES.get(engine)
    return address() if callable(address) else address


def engine_for(
    address: Address, *, clock: Callable[[], float] = time.time, timeout: float = bounds.CALL_TIMEOUT_SECONDS
) -> Engine:
    """Return an engine for `postgresql://user:password@host/database` or `sqlite:////absolute/path`.

    A function is called at each new connection to PostgreSQL: so a program goes on with a new password. `clock` is
    that of SQLite, which has none of its own: the machine's, or a test's. `timeout`: seconds to wait for a connection
    that others use, and on SQLite for their transactions. In a fork of this process the engine begins with connections
    of its own. Raises InvalidAddress, a JobError.
    """
    made, read = _made(address, create_engine, "pysqlite", timeout)
    engine: Engine = made
    _set_up(engine, address, read, clock)
    return engine


#: Variables of a program: a file that holds the address, which wins, and the address itself.
FILE_VARIABLE, VARIABLE = "OSRDYNE_JOBS_DATABASE_FILE", "OSRDYNE_JOBS_DATABASE"


def engine_from_environment() -> Engine:
    """Return an engine for the address in the file that OSRDYNE_JOBS_DATABASE_FILE names, or in OSRDYNE_JOBS_DATABASE.

    The file is read again at each connection. Raises JobError, also where neither is set.
    """
    file = os.environ.get(FILE_VARIABLE) or None
    try:
        return engine_for(partial(address_from_environment, file) if file else address_from_environment(file))
    except SettingsError as error:
        raise JobError(str(error)) from None


def address_from_environment(file: str | Path | None, file_name: str = FILE_VARIABLE) -> str:
    """Return the address in a file that `file_name` names, or in OSRDYNE_JOBS_DATABASE. Raises SettingsError."""
    return secrets.from_environment(VARIABLE, file, "the database's address", file_name)


def async_engine_for(address: Address, *, timeout: float = bounds.CALL_TIMEOUT_SECONDS) -> AsyncEngine:
    """Return the same for asyncio."""
    from sqlalchemy.ext.asyncio import create_async_engine

    made, read = _made(address, create_async_engine, "aiosqlite", timeout)
    engine: AsyncEngine = made
    _set_up(engine.sync_engine, address, read, time.time)
    return engine


def _made(
    address: Address, make: Callable[..., Any], driver: str, timeout: float
) -> tuple[Any, addresses.DatabaseAddress]:
    """Return an engine that is not set up, and its address. No error of it shows the values of a statement."""
    read = addresses.read(address if isinstance(address, str) else address())
    options: dict[str, Any] = {"hide_parameters": True}
    url = read.url
    if not read.is_postgresql:
        url = url.set(drivername=f"sqlite+{driver}")
        options["connect_args"] = {"timeout": timeout, "factory": QueuedConnection}
    if read.is_postgresql or url.database not in (None, "", ":memory:"):
        options["pool_timeout"] = timeout
    with extra(f"osrdyne-jobs[{'postgresql' if read.is_postgresql else 'sqlite'}]"):
        return make(url, **options), read


def _set_up(engine: Engine, address: Address, read: addresses.DatabaseAddress, clock: Callable[[], float]) -> None:
    forks.follow(engine)
    _ADDRESSES[engine] = address
    if read.is_postgresql:
        from osrdyne_jobs.database import postgresql

        postgresql.set_up(engine, address, read)
    else:
        _set_up_sqlite(engine, clock)


def _set_up_sqlite(engine: Engine, clock: Callable[[], float]) -> None:
    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin where SQLAlchemy says, not at the first write
        connection.create_function("osrdyne_now", 0, clock)
        cursor = connection.cursor()
        cursor.execute(WRITE_AHEAD_LOG)
        # A commit is on disk before it is answered; WAL alone could lose the last ones with the machine's power.
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    dialect = engine.dialect

    def begin(dbapi_connection: Any) -> None:
        # A transaction that begins by reading and then writes would fail where another has written meanwhile.
        cursor = dbapi_connection.cursor()
        try:
            if _READS.get():
                dialect.do_execute(cursor, "BEGIN", ())
            else:
                # As a parameter: where this is asyncio, another thread waits.
                left = bounds.left()
                dialect.do_execute(cursor, BEGIN, () if left is None else (left,))
        finally:
            cursor.close()

    # Not the event `begin`: all else that an engine with a listener does takes longer, too.
    dialect.do_begin = begin  # type: ignore[method-assign]


AnEngine = TypeVar("AnEngine", Engine, "AsyncEngine")


def for_one_statement(engine: AnEngine) -> AnEngine:
    """Return an engine for transactions of one statement: PostgreSQL commits it without being asked to.

    That saves two of three answers to wait for. SQLite answers at once.
    """
    return engine.execution_options(isolation_level="AUTOCOMMIT") if engine.dialect.name == "postgresql" else engine


def begin_reading(connection: Connection) -> None:
    """Begin a transaction that only reads: on SQLite it blocks no other."""
    before = _READS.set(True)
    try:
        connection.begin()
    finally:
        _READS.reset(before)


@contextmanager
def reading(engine: Engine, *, timeout: float = bounds.CALL_TIMEOUT_SECONDS) -> Iterator[Connection]:
    """Give a connection whose transaction only reads, and takes so many seconds at most."""
    with bounds.within(timeout), engine.connect() as connection:
        begin_reading(connection)
        yield connection


@contextmanager
def writing(engine: Engine, *, timeout: float = bounds.CALL_TIMEOUT_SECONDS) -> Iterator[Connection]:
    """Give a connection whose transaction is committed in the end, within so many seconds."""
    with bounds.within(timeout), engine.begin() as connection:
        yield connection


#: The scripts of Alembic.
MIGRATIONS = Path(__file__).parent / "migrations"


@dataclass(frozen=True)
class Chain:
    """Scripts of Alembic that follow each other, in a folder. Their names begin with their revisions, which grow."""

    folder: str
    #: The table where Alembic notes how far the chain is; a program that shares the database has its own.
    noted_in: str

    def revisions(self) -> list[str]:
        """Return its revisions in order, without the second that importing Alembic takes."""
        return sorted(file.name.partition("_")[0] for file in (MIGRATIONS / self.folder).glob("[0-9]*.py"))

    def present(self, connection: Connection) -> str:
        """Return how far the tables of a database are, "" where they have nothing of it."""
        if not inspect(connection).has_table(self.noted_in):
            return ""
        query: Select[tuple[Any]] = select(column("version_num")).select_from(table(self.noted_in))
        return connection.execute(query).scalar() or ""


#: What programs must know, and what those of the release before need not know: see `migrations`.
VERSIONS = Chain("versions", "osrdyne_job_version")
ADDITIONS = Chain("additions", "osrdyne_job_additions")
#: Seconds for which a migration waits for other transactions, while all later ones wait behind it; and seconds in which
#: it tries again.
LOCK_SECONDS, LOCKED_SECONDS = 2.0, 300.0


def migrate(engine: Engine) -> None:
    """Make the tables, or bring them to this version. Does nothing where they are. Two at once do no harm.

    Programs that work with them go on. Raises JobError where a later version of this package has changed the tables,
    and where other transactions hold them for five minutes.
    """
    until = time.monotonic() + LOCKED_SECONDS
    retry = Retry(first=1.0, limit=5.0)
    outage = OutageLog(log, "the tables", meanwhile="trying again, and programs go on", database=place(engine))
    while True:
        try:
            with engine.begin() as connection:
                _migrate(connection)
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            if time.monotonic() > until:
                raise JobError(
                    "other transactions hold the tables, those of a back-up for example; try again when they have ended"
                ) from error
            outage.failed(reason(error), time.monotonic())
            time.sleep(retry.failed())
        else:
            outage.over(time.monotonic())
            return


#: PostgreSQL's code for that.
_LOCK_NOT_AVAILABLE = "55P03"


def _migrate(connection: Connection) -> None:
    from alembic import command

    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('osrdyne_jobs'))")
    present = {chain: chain.present(connection) for chain in (VERSIONS, ADDITIONS)}
    if present[VERSIONS] in ADDITIONS.revisions():
        # A state of the project between two releases noted it there, and programs of the release before refuse it.
        present = {VERSIONS: _newest_before(present[VERSIONS]), ADDITIONS: present[VERSIONS]}
        for chain, revision in present.items():
            command.stamp(_config(connection, chain), revision, purge=True)
    if present[VERSIONS] > VERSIONS.revisions()[-1]:
        raise JobError(f"the tables are of a version that this osrdyne_jobs does not know: {present[VERSIONS]}")
    missing = [(revision, chain) for chain in present for revision in chain.revisions() if revision > present[chain]]
    # In the order of their numbers: later ones of either chain build on earlier ones of both
    for revision, chain in sorted(missing, key=itemgetter(0)):
        command.upgrade(_config(connection, chain), revision)


def _newest_before(addition: str) -> str:
    return max(revision for revision in VERSIONS.revisions() if revision < addition)


def _config(connection: Connection, chain: Chain) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", str(MIGRATIONS / chain.folder))
    config.attributes.update(connection=connection, chain=chain)
    return config


def check_tables(engine: Engine) -> None:
    """Raise NoSchema unless the tables are those of this version; what was added later does not matter."""
    with reading(engine) as connection:
        check_tables_over(connection)


def check_tables_over(connection: Connection) -> None:
    """Do what `check_tables` does, over a connection."""
    if VERSIONS.present(connection) != VERSIONS.revisions()[-1]:
        raise NoSchema
    if ADDITIONS.present(connection) < ADDITIONS.revisions()[-1]:
        raise NoSchema


def present_version(engine: Engine) -> str | None:
    """Return the version of the tables with what was added to them, or None where there are none."""
    with reading(engine) as connection:
        return max(VERSIONS.present(connection), ADDITIONS.present(connection)) or None


def newest_version() -> str:
    """Return the version that `migrate` brings the tables to."""
    return max(VERSIONS.revisions()[-1], ADDITIONS.revisions()[-1])


def reason(error: SQLAlchemyError) -> str:
    """Return why a statement failed, in the driver's own words: SQLAlchemy's text has the statement with its values."""
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]


#: How PostgreSQL and PgBouncer refuse a log-in. The library that connects to them passes on no codes, so a server that
#: speaks another language is waited for.
_REFUSALS = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|is not permitted to log in"
    r'|(role|database) ".*" does not exist|permission denied for database|no such (user|database)'
)


def refusal(error: OperationalError) -> str | None:
    """Return with which words PostgreSQL refused a log-in; None where it is away or has no place, which may pass.

    Of several hosts it is enough that one refuses: all have the same users.
    """
    lines = str(error.orig).splitlines()
    return next((line.strip() for line in lines if _REFUSALS.search(line)), None)


def place(engine: Engine) -> str:
    """Return which database this is, for a person; without password and options."""
    url = engine.url  # whose own `set` cannot take a password away
    return (
        make_url(f"{url.get_backend_name()}://")
        .set(username=url.username, host=url.host, port=url.port, database=url.database)
        .render_as_string()
    )
