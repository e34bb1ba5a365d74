"""Take events out of the lake again: those that a clock, a file or a program was wrong about.

Bronze and rejects are written as another version of the table: files without such rows are the same files under
a second name, of the others the remaining rows are copied. The notes of the batches stay as they are, so what was
forgotten is not read again. The version before is removed at once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from osrdyne_pipeline.lake import IN_BATCHES, Lake, undamaged

if TYPE_CHECKING:
    from osrdyne_pipeline.store.opening import AnyLake

ROWS = 65_536


@dataclass(frozen=True, kw_only=True)
class ForgetSelection:
    """Which rows are meant; one of the three."""

    #: As the column `source` has it: a stream's name, or a file's.
    sources: frozenset[str] = frozenset()
    #: Earlier than this, in milliseconds since the Unix epoch.
    before_ms: int | None = None
    event_ids: frozenset[str] = frozenset()

    def among(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether it is meant."""
        if self.before_ms is not None:
            found = pc.less(rows.column("time_ms"), self.before_ms)
        else:
            name, values = ("source", self.sources) if self.sources else ("event_id", self.event_ids)
            found = pc.is_in(rows.column(name), pa.array(sorted(values), pa.string()))
        return pc.fill_null(found, False)

    def condition(self) -> str:
        """Return the same as a condition in SQL."""
        if self.before_ms is not None:
            return f"time_ms < {self.before_ms}"
        name, values = ("source", self.sources) if self.sources else ("event_id", self.event_ids)
        listed = ", ".join("'" + value.replace("'", "''") + "'" for value in sorted(values))
        return f"{name} in ({listed})"


@dataclass
class ForgetCounts:
    """What is, or was, there of it."""

    #: Table -> rows, of `bronze` and `rejects`.
    rows: Counter[str] = field(default_factory=Counter)
    #: Source -> rows.
    sources: Counter[str] = field(default_factory=Counter)
    first_ms: int | None = None
    last_ms: int | None = None


def find(lake: AnyLake, wanted: ForgetSelection) -> ForgetCounts:
    """Return what the lake has of it. Changes nothing."""
    found = ForgetCounts()
    for name in sorted(IN_BATCHES):
        for rows in _rows(lake, name):
            mine = rows.filter(wanted.among(rows))
            if not mine.num_rows:
                continue
            found.rows[name] += mine.num_rows
            found.sources.update(mine.column("source").to_pylist())
            known = (found.first_ms, found.last_ms, *mine.column("time_ms").to_pylist())
            times = [time for time in known if time is not None]
            found.first_ms, found.last_ms = min(times, default=None), max(times, default=None)
    return found


def forget(lake: AnyLake, wanted: ForgetSelection) -> None:
    """Remove it from bronze and rejects. The caller is the lake's writer of `ingest` and `tables`."""
    for name in sorted(IN_BATCHES):
        if not lake.exists(name):
            continue
        if not isinstance(lake, Lake):
            lake.delete(name, wanted.condition())
            continue
        with lake.version(name) as aside:
            _copy(lake.path(name).resolve(), aside, wanted)
        lake.remove_older_versions(name)


def _rows(lake: AnyLake, name: str) -> Iterator[pa.RecordBatch]:
    if not isinstance(lake, Lake):
        if (rows := lake.read(name)) is not None:
            yield from rows.to_batches(batch_size=ROWS)
    elif lake.exists(name):
        for file in sorted(lake.path(name).resolve().glob("batch=*/**/*.parquet")):
            yield from _batches(file)


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    with undamaged(file), pq.ParquetFile(file) as opened:
        yield from opened.iter_batches(ROWS)


def _copy(before: Path, after: Path, wanted: ForgetSelection) -> None:
    written = set()
    for folder, _, names in os.walk(before):
        there = after / Path(folder).relative_to(before)
        there.mkdir(exist_ok=True)
        for name in sorted(names, reverse=True):
            file = Path(folder, name)
            if name.endswith(".parquet") and any(pc.any(wanted.among(rows)).as_py() for rows in _batches(file)):
                _rewrite(file, there / name, wanted)
                # Hadoop's sum of the old file, which it would compare.
                written.add(there / f".{name}.crc")
            elif there / name not in written:
                os.link(file, there / name)


def _rewrite(before: Path, after: Path, wanted: ForgetSelection) -> None:
    """Copy the rows that stay; no file where none does."""
    writer: pq.ParquetWriter | None = None
    try:
        for rows in _batches(before):
            rest = rows.filter(pc.invert(wanted.among(rows)))
            if rest.num_rows:
                writer = writer or pq.ParquetWriter(after, rows.schema, compression="zstd")
                writer.write_batch(rest)
    finally:
        if writer is not None:
            writer.close()
