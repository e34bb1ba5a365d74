"""The pipeline as its commands call it, from files of events to the tables that all sides make.

    python -m benchmarks.sides.pipeline_ours EVENTS OUT [MEMORY]

EVENTS is a folder of Parquet files. Prints one JSON line: `seconds` without the start of Java, which is `start`, and
the seconds of each part.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.sides.pipeline_duckdb import QUERIES
from osrdyne_pipeline.commands.options import DEFAULT_MEMORY
from osrdyne_pipeline.ingest import ingest_files
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.session import session
from osrdyne_pipeline.spark.tables import STEPS

POOL = "bench"


def main() -> None:
    """Read, make the tables, and print how long it took."""
    events, out, *memory = sys.argv[1:]
    begun = time.perf_counter()
    spark = session("bench", memory=memory[0] if memory else DEFAULT_MEMORY)
    # The first job starts the threads that all later ones use.
    spark.range(1).count()
    started = time.perf_counter()
    lake, parts = Lake(out, POOL), {}
    ingest_files(spark, lake, [Path(events)])
    before = time.perf_counter()
    parts["ingest"] = before - started
    for name, (make, sources) in STEPS.items():
        if name.rpartition("/")[2] in QUERIES:
            lake.write(name, make(*(lake.read(spark, source) for source in sources)))
            after = time.perf_counter()
            parts[name] = after - before
            before = after
    print(json.dumps({"seconds": before - started, "start": started - begun, "parts": parts}))


if __name__ == "__main__":
    main()
