"""The pipeline's tables by one thread of plain Python, from Parquet files to Parquet files; see pipeline_plain.

    python -m benchmarks.sides.pipeline_plain_run EVENTS OUT

Prints one JSON line with the seconds it took.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.sides import pipeline_plain as plain
from benchmarks.sides import pipeline_plain_gold as gold
from benchmarks.sides.pipeline_plain import Event
from osrdyne_pipeline import schemas
from osrdyne_pipeline.judging import ALLOWANCE_MS, KNOWN
from osrdyne_protocol.keys import SHORT_STRING_BYTES

_READ = ["key", "event", "event_id", "time_ms", "worker_id", "request_id", "outcome", "duration_ms"]
#: Rows of a table that become columns at once.
_ROWS = 200_000


def read(folder: Path) -> Iterator[Event]:
    """Yield what is an event of ours."""
    latest = int(time.time() * 1000) + ALLOWANCE_MS
    for path in sorted(folder.glob("*.parquet")):
        row = 0
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=_READ):
                for values in zip(*(batch.column(name).to_pylist() for name in _READ), strict=True):
                    if _is_good(values, latest):
                        key, event, event_id, *rest = values
                        yield Event(path.name, row, key, event, event_id or f"{path.name}:{row}", *rest)
                    row += 1


def _is_good(one: Sequence[Any], latest: int) -> bool:
    key, event, _, at, _, _, _, ran = one
    return (
        event in KNOWN
        and key is not None
        and len(key.encode()) <= SHORT_STRING_BYTES
        and "\0" not in key
        and at is not None
        and 0 <= at <= latest
        and (ran is None or ran >= 0)
    )


def write(out: Path, name: str, rows: Sequence[Sequence[Any]]) -> None:
    """Write a table with the columns and types that ours has."""
    schema = schemas.TABLES[name]
    with pq.ParquetWriter(out / f"{name.rpartition('/')[2]}.parquet", schema, compression="zstd") as file:
        for begin in range(0, len(rows), _ROWS):
            columns = zip(*rows[begin : begin + _ROWS], strict=True)
            arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
            file.write_table(pa.table(arrays, schema=schema))


def main() -> None:
    """Read, make the tables, and print how long it took."""
    events, out = Path(sys.argv[1]), Path(sys.argv[2])
    begun = time.perf_counter()
    # Nothing here refers to itself, and to look for that among so many tuples takes its time.
    gc.disable()
    bronze = list(read(events))
    write(out, "bronze", [(*row, plain.day_of(row.time_ms)) for row in bronze])
    distinct = plain.events_of(bronze)
    del bronze
    write(out, "silver/events", [(*event, plain.day_of(event.time_ms)) for event in distinct])
    requests = plain.requests_of(distinct)
    write(out, "silver/requests", requests)
    lives = plain.lives_of(distinct, requests)
    write(out, "silver/lives", lives)
    write(out, "gold/demand", gold.demand_of(requests))
    write(out, "gold/cold_starts", gold.cold_starts_of(requests, lives))
    write(out, "gold/latency", gold.latency_of(requests))
    write(out, "gold/worker_hours", gold.worker_hours_of(lives))
    write(out, "gold/key_classes", gold.key_classes_of(requests))
    print(json.dumps({"seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main()
