"""Jobs in a database: what `submit` costs beside a plain insert, and a scan of a million due jobs.

Each registration and each insert is a transaction of its own, which is on disk when it returns. A plain insert checks
nothing, and its table has no index but for its key. It is made by SQLAlchemy, as a program on the same libraries would,
and once more by the driver alone.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import BigInteger, Column, Engine, Float, Integer, MetaData, Table, Text, create_engine, insert

from benchmarks import rig as rigs
from benchmarks.ratios import Row, Spread, Target, compared
from benchmarks.rig import Rig
from osrdyne_jobs import JobClient, JobType, engine_for, migrate
from osrdyne_jobs.database.addresses import read
from testbed import ROOT
from testbed.postgres import Postgres

TYPE = JobType("echo", payload=dict[str, int])
#: Registrations in one turn.
SUBMITS, QUICK_SUBMITS = 400, 40
#: Due jobs that are scanned, and how many beside them.
DUE, FEW = 1_000_000, 10_000
QUICK_DUE, QUICK_FEW = 20_000, 2_000
MOST_TIME = Target(1.5, at_most=True)
MOST_MEMORY = Target(1.2, at_most=True)

SQLALCHEMY, DRIVER = "SQLAlchemy's plain insert", "the driver's plain insert"
PLAIN = Table(
    "plain_by_sqlalchemy",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
    Column("type", Text),
    Column("resource", Text),
    Column("payload", Text),
    Column("registered_at", Float),
)
_TABLE = "CREATE TABLE plain (id {key}, type TEXT, resource TEXT, payload TEXT, registered_at FLOAT)"
_COLUMNS = "INSERT INTO plain (type, resource, payload, registered_at)"
#: Due jobs, each of a resource of its own.
_FILL = """
INSERT INTO osrdyne_job (type, resource, payload, coalesce, state, max_attempts, registered_at, begin_after, due_at)
SELECT 'echo', 'resource-' || number, '{{"number":1}}', false, 'registered', 5, number, 0, 0
FROM generate_series(1, {due}) AS number
"""

Submit = Callable[[], object]


def measure(rig: Rig) -> list[Row]:
    """Return a row for each database, and those of the scan, which is measured on PostgreSQL once."""
    with Postgres() as server:
        with _on_postgres(server) as sides:
            rows = _submits(rig, "PostgreSQL", *sides)
        with _on_sqlite() as sides:
            rows += _submits(rig, "SQLite", *sides)
        return rows + _scans(rig, server)


def _submits(rig: Rig, database: str, engine: Engine, address: str, by_driver: Submit) -> list[Row]:
    number = QUICK_SUBMITS if rig.quick else SUBMITS
    client = JobClient(engine, [TYPE])

    def submit() -> object:
        return client.submit("echo", "resource", {"number": 1})

    statement = insert(PLAIN).values(registered_at=0.0).returning(PLAIN.c.id)
    values = {"type": "echo", "resource": "resource", "payload": '{"number":1}'}
    plain = create_engine(address)  # WAL of a SQLite file is noted in the file
    PLAIN.create(plain)

    def by_sqlalchemy() -> object:
        with plain.begin() as connection:
            return connection.execute(statement, values).scalar_one()

    sides: dict[str, Submit] = {"submit": submit, SQLALCHEMY: by_sqlalchemy, DRIVER: by_driver}
    seen: dict[str, list[float]] = {name: [] for name in sides}
    for kind in sides.values():
        kind()
    for done, side in enumerate(rigs.in_turns(rig.rounds, list(sides))):
        if done % len(sides) == 0:
            rig.progress(f"submits on {database}: round {done // len(sides) + 1} of {rig.rounds}")
        seen[side].append(1000 * _seconds(sides[side], number) / number)
    plain.dispose()
    measure = f"time of a submit, {database}"
    return [
        compared(measure, "ms", seen["submit"], seen[SQLALCHEMY], SQLALCHEMY, MOST_TIME),
        compared(measure, "ms", seen["submit"], seen[DRIVER], DRIVER),
    ]


def _seconds(one: Submit, times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        one()
    return time.perf_counter() - began


@contextmanager
def _on_postgres(server: Postgres) -> Iterator[tuple[Engine, str, Submit]]:
    with ExitStack() as stack:
        engine = _database(server, "submits")
        stack.callback(engine.dispose)
        address = server.url("submits")
        connection = stack.enter_context(psycopg.connect(**read(address).parameters, autocommit=True))
        connection.execute(_TABLE.format(key="BIGSERIAL PRIMARY KEY"))

        def insert() -> object:
            statement = _COLUMNS + " VALUES (%s, %s, %s, extract(epoch FROM now())) RETURNING id"
            return connection.execute(statement, ("echo", "resource", '{"number":1}')).fetchone()

        yield engine, address, insert


@contextmanager
def _on_sqlite() -> Iterator[tuple[Engine, str, Submit]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="osrdyne-bench-")))
        address = f"sqlite:///{folder / 'jobs.sqlite'}"
        engine = engine_for(address)
        stack.callback(engine.dispose)
        migrate(engine)
        connection = sqlite3.connect(folder / "plain.sqlite", isolation_level=None)
        stack.callback(connection.close)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(_TABLE.format(key="INTEGER PRIMARY KEY AUTOINCREMENT"))

        def insert() -> object:
            statement = _COLUMNS + " VALUES (?, ?, ?, unixepoch('subsec')) RETURNING id"
            return connection.execute(statement, ("echo", "resource", '{"number":1}')).fetchone()

        yield engine, address, insert


def _database(server: Postgres, name: str) -> Engine:
    server.create_database(name)
    engine = engine_for(server.url(name))
    migrate(engine)
    return engine


def _scans(rig: Rig, server: Postgres) -> list[Row]:
    many, few = (QUICK_DUE, QUICK_FEW) if rig.quick else (DUE, FEW)
    seen = {}
    for due in (few, many):
        rig.progress(f"a scan of {due:,} due jobs")
        engine = _database(server, f"due_{due}")
        with engine.begin() as connection:
            connection.exec_driver_sql(_FILL.format(due=due))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE osrdyne_job")
        engine.dispose()
        seen[due] = _scan(server.url(f"due_{due}"), due)
    peer = f"{few:,} due jobs"
    memory = {due: [found["memory_mb"]] for due, found in seen.items()}
    each = {due: [1e6 * found["seconds"] / due] for due, found in seen.items()}
    return [
        compared(f"memory of redo that casts {many:,} due jobs", "MB", memory[many], memory[few], peer, MOST_MEMORY),
        compared(f"time of redo for each of {many:,} due jobs", "µs", each[many], each[few], peer),
        Row(
            measure="longest scan of them",
            unit="s",
            ours=Spread.of([seen[many]["longest"]]),
        ),
    ]


def _scan(database: str, due: int) -> dict[str, Any]:
    """Have a process cast all due jobs, scan by scan; return what it says of itself."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sides.jobs_scan"],
        cwd=ROOT,
        input=json.dumps({"database": database, "due": due}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
