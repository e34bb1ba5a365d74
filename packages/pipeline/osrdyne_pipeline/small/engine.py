"""DuckDB within this process: it takes in the events of each pool, and makes the tables of a small one, without a Java.

Tables are made in the order of `QUERIES`, each of those further up. What DuckDB keeps meanwhile is in memory, and
beyond that in files of a folder of its own, which it removes.
"""

from __future__ import annotations

import contextlib
import glob
import signal
import tempfile
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from osrdyne_pipeline.errors import LakeError
from osrdyne_pipeline.lake import BY_DAY, Lake
from osrdyne_pipeline.schemas import TABLES
from osrdyne_pipeline.small.bill import BILL
from osrdyne_pipeline.small.causes import CAUSES, STARTS
from osrdyne_pipeline.small.events_and_requests import EVENTS, REQUESTS
from osrdyne_pipeline.small.failures import FAILURES
from osrdyne_pipeline.small.gold import COLD_STARTS, DEMAND, KEY_CLASSES, LATENCY, WORKER_HOURS
from osrdyne_pipeline.small.lives import LIVES
from osrdyne_pipeline.small.outlook import FORECAST, KEEP_ALIVE
from osrdyne_pipeline.small.parts import day_of

# Imported where an engine is opened: to import it takes time that no other command should need.
if TYPE_CHECKING:
    import duckdb

    from osrdyne_pipeline.store.lake import StoreLake
    from osrdyne_pipeline.store.opening import AnyLake

#: Table -> query, each of tables further up; a query knows a table by the last part of its name.
QUERIES = {
    "silver/events": EVENTS,
    "silver/requests": REQUESTS,
    "silver/lives": LIVES,
    "gold/demand": DEMAND,
    "gold/cold_starts": COLD_STARTS,
    "gold/latency": LATENCY,
    "gold/worker_hours": WORKER_HOURS,
    "gold/failures": FAILURES,
    "gold/causes": CAUSES,
    "gold/starts": STARTS,
    "gold/bill": BILL,
    "gold/key_classes": KEY_CLASSES,
    "gold/forecast": FORECAST,
    "gold/keep_alive": KEEP_ALIVE,
}
#: Tables by day -> the column of which that is the day.
_DAY_OF = {"bronze": "time_ms", "silver/events": "time_ms", "silver/requests": "seen_ms", "silver/lives": "started_ms"}
#: Rows of a batch that is handed to Arrow.
_ROWS = 65_536
#: Letters of an error of DuckDB that are shown.
_LONGEST = 400


class SmallEngine:
    """A database in memory, which ends with its `with`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    @classmethod
    @contextlib.contextmanager
    def open(cls, memory: str) -> Iterator[SmallEngine]:
        """Give an engine that uses at most `memory`, such as `2g`. Raises `LakeError` for an error of DuckDB."""
        import duckdb

        with tempfile.TemporaryDirectory(prefix="osrdyne-pipeline-") as folder, duckdb.connect() as connection:
            try:
                connection.execute("set enable_progress_bar = false")
                connection.execute("set preserve_insertion_order = false")
                # All that is used is in the package: nothing is fetched.
                connection.execute("set autoinstall_known_extensions = false")
                connection.execute(f"set memory_limit = '{memory[:-1]}{memory[-1].upper()}iB'")
                connection.execute("set temp_directory = $folder", {"folder": folder})
                with _interrupted(connection):
                    yield cls(connection)
            except duckdb.OutOfMemoryException as error:
                raise LakeError(f"DuckDB ran out of memory: give more by --memory ({_line(error)})") from error
            except duckdb.Error as error:
                raise LakeError(f"DuckDB could not do it: {_line(error)}") from error
            except RuntimeError as error:
                # What DuckDB makes of a Ctrl-C, which it takes from Python.
                if str(error) == "Query interrupted":
                    raise KeyboardInterrupt from error
                raise

    @staticmethod
    def check(lake: AnyLake) -> None:
        """Raise `LakeError` for a folder that DuckDB cannot reach: a backslash is a slash to it, and it reads UTF-8."""
        if not isinstance(lake, Lake):
            return
        for path in map(str, (lake.home, lake.home.resolve())):
            if "\\" in path or path != path.encode(errors="replace").decode():
                raise LakeError(f"DuckDB cannot reach {path}, which has a backslash or is not UTF-8: give another path")

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        found: list[dict[str, Any]] = self.table(query).to_pylist()
        return found

    def table(self, query: str) -> pa.Table:
        """Return the rows of a query as Arrow has them."""
        return self.connection.sql(query).to_arrow_table()

    def show(self, lake: AnyLake, *names: str, key: str | None = None, prefix: str = "") -> None:
        """Let queries know tables of the lake, by the last part of their names; without rows where there are none.

        They are tables as they are now, whatever is written later. With a key, queries see its rows alone, and no row
        of a table that has no keys. Failures are counted again, from its requests and events: name those tables before
        it.
        """
        self.check(lake)
        for name in names:
            reading = _reading(lake, name) if isinstance(lake, Lake) else self._stored(lake, name, prefix)
            if key is not None:
                reading = _of_key(name, reading, key)
            self.connection.execute(f"create or replace temp view {prefix}{short(name)} as {reading}")

    def _stored(self, lake: StoreLake, name: str, prefix: str) -> str:
        """Return the query of a table in an object store. Arrow reads it: of DuckDB's own reader nothing is fetched."""
        rows = lake.read(name)
        if rows is None:
            return _nothing(name)
        self.connection.register(f"{prefix}stored_{short(name)}", rows)
        return f"select {', '.join(map(_name, TABLES[name].names))} from {prefix}stored_{short(name)}"

    @contextlib.contextmanager
    def kept(self, name: str, query: str) -> Iterator[None]:
        """Let queries know the rows of a query by a name meanwhile, so that they are computed once."""
        self.connection.execute(f"create or replace temp table {name} as {query}")
        try:
            yield
        finally:
            self.connection.execute(f"drop table {name}")

    def keep(self, name: str, query: str) -> None:
        """Let queries know the rows of a query as they are now."""
        self.connection.execute(f"create or replace temp table kept_{name} as {query}")
        self.connection.execute(f"create or replace temp view {name} as from kept_{name}")

    def make(self, name: str) -> None:
        """Let queries know as `making` what the tables that they know make of a table."""
        self.connection.execute(f"create or replace temp view making as {QUERIES[name]}")

    def write(self, lake: AnyLake, name: str, query: str, days: Collection[str] | None = None) -> None:
        """Replace a table of the lake, or some days of it, by the rows of a query."""
        if isinstance(lake, Lake):
            with lake.version(name, days) as aside:
                self.copy(name, query, aside)
        else:
            lake.replace(name, self.reader(name, query), days)

    def copy(self, name: str, query: str, folder: Path) -> None:
        """Write the rows of a query as files of the table `name`, by day where it is kept so.

        Raises `LakeError` where the columns are not those of the table, or a required value is missing.
        """
        rows = self._enforced(name, query)
        how = "format parquet, compression zstd"
        place = folder if name in BY_DAY else folder / "part.parquet"
        folder.mkdir(parents=True, exist_ok=True)
        self.connection.execute(f"copy ({rows}) to {_quoted(place)} ({how}{by_day(name)})")

    def reader(self, name: str, query: str) -> pa.RecordBatchReader:
        """Return the rows of a query as batches of the table `name`, to be read before anything else is asked.

        Raises as `copy` does, and in reading where a required value is missing.
        """
        schema = TABLES[name]
        found = self.connection.sql(self._enforced(name, query)).to_arrow_reader(_ROWS)
        given = (pa.RecordBatch.from_arrays(rows.columns, schema=schema) for rows in found)
        return pa.RecordBatchReader.from_batches(schema, given)

    def _enforced(self, name: str, query: str) -> str:
        """Return a query of the same rows that fails where a required value is missing. Raises `LakeError`."""
        schema = TABLES[name]
        have = self.connection.sql(f"from ({query}) limit 0").to_arrow_table().schema
        want = pa.schema([pa.field(field.name, field.type) for field in schema])
        if not have.equals(want):
            raise LakeError(f"these rows do not fit the table {name}: they have {have}, not {want}")
        return f"select {', '.join(_required(name, field) for field in schema)} from ({query})"


@contextlib.contextmanager
def _interrupted(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Let Ctrl-C, and the time limit of a run, end a query in all of DuckDB's threads.

    By itself DuckDB ends what the calling thread does, and waits until its other threads have done their parts.
    """

    def interrupt(*_: object) -> None:
        connection.interrupt()
        raise KeyboardInterrupt

    # The time limit of a run comes as SIGUSR1.
    signals = (signal.SIGINT, signal.SIGUSR1) if threading.current_thread() is threading.main_thread() else ()
    handled = [number for number in signals if signal.getsignal(number) is signal.default_int_handler]
    for number in handled:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.default_int_handler)


def short(name: str) -> str:
    """Return the name by which queries know a table."""
    return name.rpartition("/")[2]


def by_day(name: str) -> str:
    """Return how DuckDB writes a table that has a folder for each day."""
    return ", partition_by (day)" if name in BY_DAY else ""


def _reading(lake: Lake, name: str) -> str:
    """Return the query of what the lake has of a table. Its folders have days and batches; columns say the day, too."""
    schema, path = TABLES[name], lake.path(name)
    found = sorted(path.resolve().rglob("*.parquet")) if path.is_dir() else []
    if not found:
        return _nothing(name)
    files = ", ".join(_quoted(glob.escape(str(file))) for file in found)
    columns = ", ".join(
        f"{day_of(_DAY_OF[name])} as day" if field.name == "day" and name in _DAY_OF else f'"{field.name}"'
        for field in schema
    )
    # Columns that an older version did not write are null, as for Spark.
    rows = f"from read_parquet([{files}], hive_partitioning = false, union_by_name = true)"
    return f"select {columns} from ({_nothing(name)} union all by name {rows})"


def _of_key(name: str, reading: str, key: str) -> str:
    if name == "gold/failures":
        return QUERIES[name]
    return f"from ({reading}) where {f'key = {_quoted(key)}' if 'key' in TABLES[name].names else 'false'}"


def _nothing(name: str) -> str:
    nothing = ", ".join(f"null::{_type(field.type)} as {_name(field.name)}" for field in TABLES[name])
    return f"select {nothing} where false"


def _name(column: str) -> str:
    return f'"{column}"'


def _required(name: str, field: pa.Field) -> str:
    if field.nullable:
        return f'"{field.name}"'
    missing = _quoted(f"table {name}: a row without {field.name}, which is required")
    return f'case when "{field.name}" is null then error({missing}) else "{field.name}" end as "{field.name}"'


def _type(kind: pa.DataType) -> str:
    names = {"string": "varchar", "int64": "bigint", "int32": "integer", "bool": "boolean", "date32[day]": "date"}
    if pa.types.is_list(kind):
        inner = ", ".join(f'"{field.name}" {_type(field.type)}' for field in kind.value_type)
        return f"struct({inner})[]"
    return {**names, "double": "double", "binary": "blob"}[str(kind)]


def _quoted(text: Path | str) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST]
