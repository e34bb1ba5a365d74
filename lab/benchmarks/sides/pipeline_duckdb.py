"""The pipeline's tables by DuckDB, in SQL; the peer that uses every core as Spark does.

    python -m benchmarks.sides.pipeline_duckdb EVENTS OUT

Reads a folder of Parquet files of events, writes a Parquet file a table into OUT, and prints one JSON line with the
seconds it took. The queries are those of the pipeline's small engine, without its reading of streams and hostile files
and its folders by day. What plain Python does not make here is left out.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from osrdyne_pipeline.judging import ALLOWANCE_MS, KNOWN
from osrdyne_pipeline.small import engine as small
from osrdyne_pipeline.small.parts import day_of

# Imported only where it is used: a process that has imported it may end with pages of "nanobind: leaked 27 instances!",
# and the tests import all benchmarks.
if TYPE_CHECKING:
    import duckdb

_OTHERS = ("gold/causes", "gold/starts", "gold/bill", "gold/failures", "gold/forecast", "gold/keep_alive")

BRONZE = f"""
    select parse_filename(filename) as source, file_row_number as "offset", key, event,
        coalesce(nullif(event_id, ''), parse_filename(filename) || ':' || file_row_number) as event_id,
        time_ms, worker_id, request_id, outcome, duration_ms, caller, error, detail, output, log, began,
        {day_of("time_ms")} as day
    from read_parquet($events, filename = true, file_row_number = true)
    where event in ({", ".join(f"'{event}'" for event in sorted(KNOWN))})
      and key is not null and strlen(key) <= 255 and not contains(key, chr(0))
      and time_ms >= 0 and time_ms <= $latest and coalesce(duration_ms, 0) >= 0
"""

#: Table -> query, each of tables further up.
QUERIES = {name.rpartition("/")[2]: query for name, query in small.QUERIES.items() if name not in _OTHERS}


def make(connection: duckdb.DuckDBPyConnection, out: Path) -> None:
    """Make every table of the connection's table `bronze`, and write each to a file in `out`."""
    for name, query in QUERIES.items():
        connection.execute(f"create table {name} as {query}")
        connection.execute(f"copy {name} to '{out / name}.parquet' (format parquet, compression zstd)")


def main() -> None:
    """Read, make the tables, and print how long it took."""
    events, out = sys.argv[1], Path(sys.argv[2])
    import duckdb

    begun = time.perf_counter()
    with duckdb.connect() as connection:
        connection.execute("set enable_progress_bar = false")
        latest = int(time.time() * 1000) + ALLOWANCE_MS
        connection.execute(f"create table bronze as {BRONZE}", {"events": f"{events}/*.parquet", "latest": latest})
        connection.execute(f"copy bronze to '{out}/bronze.parquet' (format parquet, compression zstd)")
        make(connection, out)
    print(json.dumps({"seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main()
