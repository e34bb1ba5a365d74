"""The pipeline as its commands call it, from files of events to the tables that all sides make.

    python -m benchmarks.sides.pipeline_ours EVENTS OUT ENGINE MEMORY

EVENTS is a folder of Parquet files, and ENGINE is `spark` or `duckdb`, which makes the tables. Prints one JSON line:
`seconds` without the start of Java, which is `start`, and the seconds of each part. Spark makes the tables twice: at
first Java loads and compiles Spark's code. `seconds` are those of the second time, and `first` those of the first.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.sides.pipeline_duckdb import QUERIES
from osrdyne_pipeline.ingest import ingest_files
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.session import session
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.spark.tables import STEPS, SparkMaker

POOL = "bench"


def main() -> None:
    """Read, make the tables, and print how long it took."""
    events, out, engine, memory = sys.argv[1:]
    lake = Lake(out, POOL)
    parts: dict[str, float] = {}
    start, first, before = 0.0, 0.0, time.perf_counter()

    def part(name: str) -> None:
        nonlocal before
        before, begun = time.perf_counter(), before
        parts[name] = before - begun

    with SmallEngine.open(memory) as duckdb:
        ingest_files(duckdb, lake, [Path(events)])
        part("ingest")
        if engine == "duckdb":
            _make(duckdb, lake, part)
    if engine == "spark":
        spark = session("bench", memory=memory)
        # The first job starts the threads that all later ones use.
        spark.range(1).count()
        start, before = time.perf_counter() - before, time.perf_counter()
        _make(SparkMaker(spark), lake, part)
        first = sum(parts.values())
        _make(SparkMaker(spark), lake, part)
    print(json.dumps({"seconds": sum(parts.values()), "first": first, "start": start, "parts": parts}))


def _make(maker: SmallEngine | SparkMaker, lake: Lake, part: Callable[[str], None]) -> None:
    """Make the tables that all sides make."""
    maker.show(lake, "bronze")
    for name in STEPS:
        if name.rpartition("/")[2] in QUERIES:
            maker.make(name)
            maker.write(lake, name, "select * from making")
            maker.show(lake, name)
            part(name)


if __name__ == "__main__":
    main()
