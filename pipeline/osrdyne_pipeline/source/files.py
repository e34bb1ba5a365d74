"""Events in files: Parquet and JSON lines, gzipped or not, with the columns key, event, event_id, time_ms, worker_id,
request_id, outcome and duration_ms. Only `event` and `key` must be there; what we do not know is left alone.

A file that ends too early gives what it holds up to there, and a row with the problem. A line that is no event gives a
row with the problem, and the next line is read.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as paj
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from osrdyne_pipeline.errors import SourceError
from osrdyne_pipeline.source import columns
from osrdyne_protocol import foreign_json

PARQUET = ".parquet"
#: gzip is read by one reader alone: nobody can begin within it.
LINES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")

#: What a file may say of an event; the rest of RAW is ours.
COLUMNS = pa.schema([field for field in columns.RAW if field.name not in ("source", "offset", "problem", "raw")])
#: Rows handed on at once, and bytes of lines read at once.
ROWS = 16_384
BLOCK = 4_000_000
#: Bytes of lines for one reader.
SHARE = 64_000_000


@dataclass(frozen=True)
class FilePart(InputPartition):
    """A file, one of the row groups of a Parquet file, or some of the lines of a file."""

    path: str
    #: Number of its first row in the file.
    row: int = 0
    group: int | None = None
    #: Bytes of its lines, from where to before where; without an end, to that of the file.
    start: int = 0
    end: int | None = None


def find(paths: Sequence[str]) -> list[Path]:
    """Return the files that paths name, in folders too, in order. Raises `SourceError` where one is absent."""
    found: set[Path] = set()
    for text in paths:
        path = Path(text).absolute()
        if path.is_dir():
            hidden = ("_", ".")
            below = (one for one in path.rglob("*") if one.name.endswith((PARQUET, *LINES)))
            found |= {one for one in below if not any(part.startswith(hidden) for part in one.relative_to(path).parts)}
        elif path.is_file():
            if not path.name.endswith((PARQUET, *LINES)):
                raise SourceError(f"{path}: events are read from {', '.join((PARQUET, *LINES))}")
            found.add(path)
        else:
            raise SourceError(f"{path}: there is no such file or folder")
    return sorted(found)


def parts(files: Sequence[Path]) -> list[FilePart]:
    """Return what is read at once: row groups of Parquet, shares of long files of lines."""
    return [part for file in files for part in (_groups(file) if file.suffix == PARQUET else _shares(file))]


def _groups(file: Path) -> list[FilePart]:
    try:
        with pq.ParquetFile(file) as opened:
            metadata = opened.metadata
            sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    except (OSError, pa.ArrowException):
        return [FilePart(str(file))]
    return [FilePart(str(file), sum(sizes[:group]), group) for group in range(len(sizes))]


def _shares(file: Path) -> list[FilePart]:
    """Cut a file of lines behind line ends, and count the lines before each cut."""
    if file.suffix == ".gz" or file.stat().st_size <= SHARE:
        return [FilePart(str(file))]
    shares = [FilePart(str(file))]
    place = row = 0
    with file.open("rb") as opened:
        while block := opened.read(BLOCK):
            cut = block.find(b"\n") + 1
            if cut and place + cut - shares[-1].start >= SHARE:
                shares[-1] = replace(shares[-1], end=place + cut)
                shares.append(FilePart(str(file), row + 1, start=place + cut))
            place += len(block)
            row += block.count(b"\n")
    return shares


def read(part: FilePart) -> Iterator[pa.RecordBatch]:
    """Give the rows of a part as batches of RAW."""
    path = Path(part.path)
    return _parquet(path, part) if path.suffix == PARQUET else _lines(path, part)


def _parquet(path: Path, part: FilePart) -> Iterator[pa.RecordBatch]:
    row = part.row
    try:
        with pq.ParquetFile(path) as file:
            groups = None if part.group is None else [part.group]
            wanted = [name for name in COLUMNS.names if name in file.schema_arrow.names]
            if missing := {"key", "event"} - set(wanted):
                yield columns.problem_batch(str(path), row, f"unreadable: no column {', '.join(sorted(missing))}")
                return
            for batch in file.iter_batches(ROWS, row_groups=groups, columns=wanted):
                if batch.num_rows:
                    yield _raw(path, row, batch)
                row += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        yield columns.problem_batch(str(path), row, f"truncated_file: {_line(error)}")


def _raw(path: Path, row: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of a file as RAW; a column of another type is read as the type it should have."""
    given: dict[str, Any] = {
        name: batch.column(name)
        if batch.column(name).type == COLUMNS.field(name).type
        else pc.cast(batch.column(name), COLUMNS.field(name).type)
        for name in batch.schema.names
    }
    given["offset"] = pa.array(range(row, row + batch.num_rows), pa.int64())
    return columns.batch_of(str(path), given, batch.num_rows)


def _lines(path: Path, part: FilePart) -> Iterator[pa.RecordBatch]:
    row = part.row
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            file.seek(part.start)
            for block in _blocks(file, part.end):
                yield from _block(path, row, block)
                row += block.count(b"\n")
    except (OSError, EOFError, zlib.error) as error:
        yield columns.problem_batch(str(path), row, f"truncated_file: {_line(error)}")


def _blocks(file: Any, end: int | None) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time; the last one perhaps without its end."""
    rest = b""
    # One read at a time: what is whole of a damaged file comes before its error.
    while fresh := file.read1(BLOCK if end is None else min(BLOCK, end - file.tell())):
        whole, line_end, after = fresh.rpartition(b"\n")
        if line_end:
            yield rest + whole + line_end
            rest = after
        else:
            rest += fresh
    if rest:
        yield rest


def _block(path: Path, row: int, block: bytes) -> Iterator[pa.RecordBatch]:
    """Lines as RAW: all at once by Arrow; one by one where it cannot, or an empty line would shift the numbers."""
    options = paj.ParseOptions(explicit_schema=COLUMNS, unexpected_field_behavior="ignore")
    try:
        # As one block: Arrow reads none in which a line is longer than a block.
        table = paj.read_json(pa.BufferReader(block), paj.ReadOptions(block_size=len(block) + 1), options)
    except pa.ArrowException:
        table = None
    if table is not None and table.num_rows == block.count(b"\n") + (not block.endswith(b"\n")):
        for batch in table.combine_chunks().to_batches(ROWS):
            yield _raw(path, row, batch)
            row += batch.num_rows
        return
    for number, line in enumerate(io.BytesIO(block), row):
        if line.strip():
            yield _one(path, number, line)


def _one(path: Path, row: int, line: bytes) -> pa.RecordBatch:
    try:
        value = foreign_json.read(line)
        if not isinstance(value, dict):
            raise TypeError("not an object")
        given = {name: pa.array([value[name]], COLUMNS.field(name).type) for name in COLUMNS.names if name in value}
        return columns.batch_of(str(path), {**given, "offset": [row]}, 1)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        # The last line without its end is one that somebody was still writing.
        reason = "unreadable" if line.endswith(b"\n") else "truncated_file"
        return columns.problem_batch(str(path), row, f"{reason}: {_line(error)}", line)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
