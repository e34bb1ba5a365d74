"""The real SQLite and SQLAlchemy engine, in virtual time: each statement and each commit is a step of its process.

As in SQLite, one transaction writes at a time: the others wait for it in virtual time, and give up as SQLite does.
Each simulated process has an engine. Engines are kept from seed to seed, with the statements that SQLAlchemy compiled.
The database file is in memory if the machine has such a folder.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from osrdyne_jobs.database.bounds import CALL_TIMEOUT_SECONDS
from osrdyne_jobs.database.engines import engine_for, migrate
from simulation.jobs.scheduler import Process, Scheduler
from simulation.jobs.threads import Semaphore

#: A folder whose files are in memory, on Linux.
_MEMORY_FOLDER = Path("/dev/shm")
_OWN_TABLES = """
CREATE TABLE simulated_effect (id INTEGER PRIMARY KEY, type TEXT, resource TEXT, token INTEGER, last INTEGER);
CREATE TABLE simulated_note (number INTEGER PRIMARY KEY);
"""


class Database:
    """The database of one run."""

    def __init__(self, scheduler: Scheduler, file: Path, *, away: Callable[[], bool], cut: Callable[[], bool]) -> None:
        """`away` returns whether the database is unreachable now, `cut` whether the connection breaks in a commit."""
        self.file = file
        self._scheduler = scheduler
        self._away = away
        self._cut = cut
        #: Called where a connection breaks in a commit.
        self.on_cut: Callable[[], None] = lambda: None
        #: Called after each commit.
        self.on_commit: Callable[[], None] = lambda: None
        #: The connection that holds the write lock.
        self._writer: Any = None
        self._write_lock = Semaphore(scheduler, 1)
        self._engines: dict[Process, Engine] = {}

    def engine(self, process: Process) -> Engine:
        """Return the engine of a process. The process keeps it until it ends."""
        if process not in self._engines:
            self._engines[process] = engine = _spare_engines.pop() if _spare_engines else _make_engine()
            process.at_end.append(lambda: self._take_back(process, engine))
        return self._engines[process]

    def close(self) -> None:
        """Close all connections."""
        for process, engine in list(self._engines.items()):
            self._take_back(process, engine)

    def _take_back(self, process: Process, engine: Engine) -> None:
        if self._engines.pop(process, None) is not None:
            engine.dispose()
            _spare_engines.append(engine)

    def clock(self) -> float:
        return self._scheduler.now

    def execute(self, connection: Any, statement: str, call: Callable[[], None]) -> None:
        """Execute a statement as a step of its process."""
        if statement == "BEGIN IMMEDIATE":
            self._scheduler.step("begin")
            self._check_reachable()
            self._become_writer(connection)
        elif statement == "BEGIN":
            self._scheduler.step("read")
            self._check_reachable()
        elif self._scheduler.current is not None:
            self._scheduler.may_end(statement.partition("\n")[0][:60])
        call()

    def commit(self, connection: Any, call: Callable[[], None]) -> None:
        """Commit. If the connection breaks, the process does not know whether the commit happened."""
        if connection is not self._writer:
            call()
            return
        self._scheduler.step("commit")
        lost = self._away() or self._cut()
        if lost:
            self._scheduler.note("the connection breaks in a commit")
            self.on_cut()
        if lost and self._scheduler.random.random() < 0.5:
            raise sqlite3.OperationalError("the connection broke before the commit")
        call()
        self.release(connection)
        self.on_commit()
        if lost:
            raise sqlite3.OperationalError("the connection broke after the commit")
        self._scheduler.step("committed")

    def release(self, connection: Any) -> None:
        """Let the next transaction write."""
        if self._writer is connection:
            self._writer = None
            self._write_lock.release()

    def _check_reachable(self) -> None:
        if self._away():
            raise sqlite3.OperationalError("the database is away")

    def _become_writer(self, connection: Any) -> None:
        if not self._write_lock.acquire(timeout=CALL_TIMEOUT_SECONDS):
            raise sqlite3.OperationalError("database is locked")
        self._writer = connection


#: The database of the present run.
_current: Database | None = None


@contextmanager
def database(
    scheduler: Scheduler, *, away: Callable[[], bool], cut: Callable[[], bool] = lambda: False
) -> Iterator[Database]:
    """Give an empty database with all tables. A process of the machine can have one at a time."""
    global _current  # noqa: PLW0603 - engines outlive a run
    _folder().mkdir(exist_ok=True)
    try:
        _file().write_bytes(_empty())
        _current = Database(scheduler, _file(), away=away, cut=cut)
        yield _current
    finally:
        if _current is not None:
            _current.close()
        _current = None
        shutil.rmtree(_folder(), ignore_errors=True)


def _folder() -> Path:
    parent = (
        _MEMORY_FOLDER
        if _MEMORY_FOLDER.is_dir() and os.access(_MEMORY_FOLDER, os.W_OK)
        else Path(tempfile.gettempdir())
    )
    return parent / f"osrdyne-jobs-simulation-{os.getpid()}"


def _file() -> Path:
    return _folder() / "jobs.sqlite"


@cache
def _empty() -> bytes:
    """Make a database file with the tables of the product's migrations, once."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "empty.sqlite")
        engine = engine_for(f"sqlite:///{file}")
        migrate(engine)
        engine.dispose()
        raw = sqlite3.connect(file)
        raw.executescript(_OWN_TABLES)
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        raw.close()
        return file.read_bytes()


#: Engines that no simulated process uses now.
_spare_engines: list[Engine] = []


def _make_engine() -> Engine:
    made = engine_for(f"sqlite:///{_file()}", clock=lambda: _running().clock())
    _hook(made)
    return made


def _running() -> Database:
    assert _current is not None, "no simulation runs"
    return _current


def _hook(engine: Engine) -> None:
    """Have an engine do everything in virtual time. SQLAlchemy calls SQLite through the methods of its dialect."""
    dialect = engine.dialect
    execute, commit, rollback = dialect.do_execute, dialect.do_commit, dialect.do_rollback
    close, terminate = dialect.do_close, dialect.do_terminate

    def do_execute(cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        _running().execute(cursor.connection, statement, lambda: execute(cursor, statement, parameters, context))

    def do_commit(connection: Any) -> None:
        _running().commit(_raw(connection), lambda: commit(connection))

    def releasing(call: Callable[[Any], None]) -> Callable[[Any], None]:
        def released(connection: Any) -> None:
            call(connection)
            if _current is not None:
                _current.release(_raw(connection))

        return released

    hooks = {
        "do_execute": do_execute,
        "do_commit": do_commit,
        "do_rollback": releasing(rollback),
        "do_close": releasing(close),
        "do_terminate": releasing(terminate),
    }
    for name, hook in hooks.items():
        setattr(dialect, name, hook)


def _raw(connection: Any) -> Any:
    """Return the connection of sqlite3. SQLAlchemy sometimes gives a connection of its pool instead."""
    return getattr(connection, "dbapi_connection", connection)
