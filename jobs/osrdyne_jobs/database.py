"""Engines, and the database's clock.

PostgreSQL is the store for more than one machine. SQLite, in WAL mode, is for one machine: all processes use one file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

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
from sqlalchemy.exc import ArgumentError, DisconnectionError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from osrdyne_jobs import forks
from osrdyne_jobs.errors import JobError, NoSchema
from osrdyne_jobs.sqlite_queue import BEGIN, WRITE_AHEAD_LOG, QueuedConnection
from osrdyne_protocol.errors import OsrdyneError

# A worker needs neither Alembic nor asyncio of SQLAlchemy: they are imported where they are used.
if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

from osrdyne_protocol import log_lines

logger = log_lines.logger(__name__)

#: Seconds for which SQLite waits for another process's transaction.
SQLITE_PATIENCE = 30.0
#: Seconds after which a connection to PostgreSQL that was not used is tried before it is used again.
PING_AFTER = 1.0
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


def engine_for(address: Address, *, clock: Callable[[], float] = time.time) -> Engine:
    """Return an engine for `postgresql://user:password@host/database` or `sqlite:////absolute/path`.

    A function is called at each new connection to PostgreSQL: so a program goes on with a new password. `clock` is
    that of SQLite, which has none of its own: the machine's, or a test's. In a fork of this process the engine begins
    with connections of its own. Raises JobError for another database.
    """
    parsed = _url(address if isinstance(address, str) else address())
    engine = create_engine(parsed, **_options(parsed))
    _set_up(engine, clock)
    if not isinstance(address, str) and engine.dialect.name == "postgresql":
        _follow(engine, address)
    return engine


#: Variables of a program: a file that holds the address, which wins, and the address itself.
FILE_VARIABLE, VARIABLE = "OSRDYNE_JOBS_DATABASE_FILE", "OSRDYNE_JOBS_DATABASE"


def engine_from_environment() -> Engine:
    """Return an engine for the address in the file that OSRDYNE_JOBS_DATABASE_FILE names, or in OSRDYNE_JOBS_DATABASE.

    The file is read again at each connection. Raises JobError where neither is set, and OSError.
    """
    if file := os.environ.get(FILE_VARIABLE):
        return engine_for(lambda: Path(file).read_text(encoding="utf-8").strip())
    if VARIABLE not in os.environ:
        raise JobError(f"no database is named; set {FILE_VARIABLE} or {VARIABLE}")
    return engine_for(os.environ[VARIABLE].strip())


def _follow(engine: Engine, address: Callable[[], str]) -> None:
    """Have each new connection use the present address. Where that cannot be read, the last one is used."""
    known: dict[str, Any] = {}

    @event.listens_for(engine, "do_connect")
    def connects(dialect: Any, _: Any, __: Any, parameters: dict[str, Any]) -> None:
        try:
            known.update(dialect.create_connect_args(_url(address()))[1])
        except (OSError, OsrdyneError) as error:
            logger.warning("the database's address cannot be read", extra={"reason": str(error)})
        parameters.update(known)


def async_engine_for(address: Address) -> AsyncEngine:
    """Return the same for asyncio."""
    from sqlalchemy.ext.asyncio import create_async_engine

    parsed = _url(address if isinstance(address, str) else address(), asynchronous=True)
    engine = create_async_engine(parsed, **_options(parsed))
    _set_up(engine.sync_engine, time.time)
    if not isinstance(address, str) and engine.dialect.name == "postgresql":
        _follow(engine.sync_engine, address)
    return engine


def _url(url: str, *, asynchronous: bool = False) -> Any:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # whose text may have a part of the password
        raise JobError("the database's address is no URL; write postgresql://user:password@host/database") from None
    match parsed.get_backend_name():
        case "postgresql":
            return parsed.set(drivername="postgresql+psycopg")
        case "sqlite":
            return parsed.set(drivername="sqlite+aiosqlite" if asynchronous else "sqlite+pysqlite")
    raise JobError(f"jobs are kept in PostgreSQL or SQLite, not in {parsed.get_backend_name()}")


#: Seconds after which PostgreSQL ends a transaction that does nothing: that of a worker that is gone, or hangs.
IDLE_IN_TRANSACTION = 60
#: Both ends notice within half a minute that the other one is gone.
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


def _options(url: Any) -> dict[str, Any]:
    """Return the options of an engine. No error of it shows the values of a statement."""
    if url.get_backend_name() == "sqlite":
        return {"hide_parameters": True, "connect_args": {"timeout": SQLITE_PATIENCE, "factory": QueuedConnection}}
    server: dict[str, int] = {f"tcp_{name}": value for name, value in _KEEPALIVE.items()}
    server["idle_in_transaction_session_timeout"] = IDLE_IN_TRANSACTION * 1000
    given: dict[str, Any] = {"connect_timeout": 10, "tcp_user_timeout": 30_000, **_KEEPALIVE}
    given["options"] = " ".join(f"-c {name}={value}" for name, value in server.items())
    return {"hide_parameters": True, "connect_args": given}


def _set_up(engine: Engine, clock: Callable[[], float]) -> None:
    forks.follow(engine)
    if engine.dialect.name == "sqlite":
        _set_up_sqlite(engine, clock)
    else:
        _set_up_pings(engine)


def _set_up_pings(engine: Engine) -> None:
    """Have a connection that rested for a while be tried before it is used: the server may have restarted.

    SQLAlchemy's `pool_pre_ping` tries each time, which costs a job a tenth of its time.
    """

    @event.listens_for(engine, "checkin")
    def rests(_: Any, record: Any) -> None:
        record.info["rests_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def wakes(connection: Any, record: Any, _: Any) -> None:
        if time.monotonic() - record.info.get("rests_since", time.monotonic()) < PING_AFTER:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error  # the pool opens another one


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
            dialect.do_execute(cursor, "BEGIN" if _READS.get() else BEGIN, ())
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
    """Begin a transaction that only reads: on SQLite it holds nobody up."""
    before = _READS.set(True)
    try:
        connection.begin()
    finally:
        _READS.reset(before)


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Give a connection whose transaction only reads."""
    with engine.connect() as connection:
        begin_reading(connection)
        yield connection


#: The scripts of Alembic. Their names begin with their revisions, which grow.
MIGRATIONS = Path(__file__).parent / "migrations"
#: Where Alembic notes which version the tables have; a program that shares the database has its own.
VERSION_TABLE = "osrdyne_job_version"


def migrate(engine: Engine) -> None:
    """Make the tables, or bring them to this version. Does nothing where they are. Two at once do no harm.

    Raises JobError where a later version of this package has changed them.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('osrdyne_jobs'))")
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise JobError(f"the tables are of a version that this osrdyne_jobs does not know: {error}") from error


def check_tables(engine: Engine) -> None:
    """Raise NoSchema unless the tables are those of this version."""
    with reading(engine) as connection:
        check_tables_over(connection)


def check_tables_over(connection: Connection) -> None:
    """Do what `check_tables` does, over a connection."""
    if _version(connection) != newest_version():
        raise NoSchema


def present_version(engine: Engine) -> str | None:
    """Return the version of the tables, or None where there are none."""
    with reading(engine) as connection:
        return _version(connection)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    query: Select[tuple[Any]] = select(column("version_num")).select_from(table(VERSION_TABLE))
    return connection.execute(query).scalar()


def newest_version() -> str:
    """Return the version that `migrate` brings the tables to, without the second that importing Alembic takes."""
    return max(file.name for file in MIGRATIONS.glob("versions/[0-9]*.py")).partition("_")[0]


def reason(error: SQLAlchemyError) -> str:
    """Return why a statement failed, in the driver's own words: SQLAlchemy's text has the statement with its values."""
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]


def place(engine: Engine) -> str:
    """Return which database this is, for a person; without password and options."""
    url = engine.url  # whose own `set` cannot take a password away
    return (
        make_url(f"{url.get_backend_name()}://")
        .set(username=url.username, host=url.host, port=url.port, database=url.database)
        .render_as_string()
    )
