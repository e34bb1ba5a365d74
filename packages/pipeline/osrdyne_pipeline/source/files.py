"""Events in files: Parquet and JSON lines, gzipped or not, with columns such as key, event, event_id and time_ms, which
are all in `values.COLUMNS`. Only `event` and `key` must be there; what we do not know is left alone.

A file that ends too early gives what it holds up to there, and a row with the problem. A line that is not an event
gives a row with the problem, and the next line is read.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import itertools
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as paj
import pyarrow.parquet as pq

from osrdyne_pipeline import places
from osrdyne_pipeline.errors import SourceError
from osrdyne_pipeline.schemas import RAW
from osrdyne_pipeline.source import columns, values
from osrdyne_protocol import foreign_json

PARQUET = ".parquet"
#: Folders that only tables of a format have: of their Parquet files, some are of former versions.
LOGS = ("_delta_log", ".hoodie")
NOT_FILES = (
    "{path} is a table that keeps its versions in {log}, and not a folder of files: write its rows as Parquet, as by "
    "DuckDB's copy (from delta_scan('...')) to 'events.parquet', and read that"
)
#: A gzip file is read by one reader alone: reading cannot begin within it.
LINES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")

#: Rows handed on at once, and bytes of lines read at once.
ROWS = 16_384
BLOCK = 4_000_000
#: Bytes of lines for one reader.
SHARE = 64_000_000
#: Bytes of one line, without its end. A longer one is unreadable, and not parsed. No event of a stream is longer: its
#: headers have two frames of 128 KiB at most (`frames.longest_read`), and JSON may write six bytes for one.
MOST_LINE = 1_600_000


@dataclass(frozen=True)
class EventFile:
    """A file that may be read."""

    #: Its path, or its address in an object store.
    name: str
    size: int
    #: By which its content is known again.
    digest: str


@dataclass(frozen=True)
class FilePart:
    """A file, one of the row groups of a Parquet file, or some of the lines of a file."""

    path: str
    #: Number of its first row in the file.
    row: int = 0
    group: int | None = None
    #: Bytes of its lines, from where to before where; without an end, to that of the file.
    start: int = 0
    end: int | None = None
    #: What the column `source` says; its path by default.
    name: str = ""

    @property
    def source(self) -> str:
        return self.name or name_of(Path(self.path))


def find(paths: Sequence[str]) -> list[Path]:
    """Return the files that paths name, in folders too, in order. Raises `SourceError` where one is absent."""
    found: set[Path] = set()
    for text in paths:
        if wrong := places.problem(text):
            raise SourceError(f"no events can be read there: {wrong}")
        path = Path(text).absolute()
        if path.is_dir():
            if log := next((log for log in LOGS if (path / log).is_dir()), None):
                raise SourceError(NOT_FILES.format(path=path, log=log))
            hidden = ("_", ".")
            # What Spark writes is a folder that is named like a file.
            below = (file for file in path.rglob("*") if file.name.endswith((PARQUET, *LINES)) and file.is_file())
            found |= {
                file for file in below if not any(part.startswith(hidden) for part in file.relative_to(path).parts)
            }
        elif path.is_file():
            if not path.name.endswith((PARQUET, *LINES)):
                raise SourceError(f"{path}: events are read from {', '.join((PARQUET, *LINES))}")
            found.add(path)
        else:
            raise SourceError(f"{path}: there is no such file or folder")
    return sorted(found)


def name_of(path: Path) -> str:
    """Return a file's name for the column `source`; bytes that are not UTF-8 as their numbers."""
    return os.fsencode(path).decode(errors="backslashreplace")


def parts(files: Sequence[Path]) -> list[FilePart]:
    """Return what is read at once: row groups of Parquet, shares of long files of lines."""
    return [part for file in files for part in (_groups(file) if file.suffix == PARQUET else _shares(file))]


def _groups(file: Path) -> list[FilePart]:
    try:
        with pq.ParquetFile(file) as opened:
            metadata = opened.metadata
            sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    except Exception:  # noqa: BLE001 -- of a strange file Arrow raises what it meets; reading it says what that is
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
    row, source = part.row, part.source
    try:
        with pq.ParquetFile(path) as file:
            groups = None if part.group is None else [part.group]
            wanted = [name for name in values.COLUMNS.names if name in file.schema_arrow.names]
            if missing := {"key", "event"} - set(wanted):
                yield columns.problem_batch(source, row, f"unreadable: no column {', '.join(sorted(missing))}")
                return
            for batch in file.iter_batches(ROWS, row_groups=groups, columns=wanted):
                if batch.num_rows:
                    yield _raw(source, row, batch)
                row += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        yield columns.problem_batch(source, row, f"truncated_file: {_line(error)}")
    except Exception as error:  # noqa: BLE001 -- of a strange file Arrow raises what it meets, and others are to be read
        yield columns.problem_batch(source, row, f"unreadable: {_line(error)}")


def _raw(source: str, row: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of a file as RAW."""
    given = values.of_batch(batch)
    given["offset"] = pa.array(range(row, row + batch.num_rows), pa.int64())
    return columns.batch_of(source, given, batch.num_rows)


def _lines(path: Path, part: FilePart) -> Iterator[pa.RecordBatch]:
    row, source = part.row, part.source
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            file.seek(part.start)
            for block in _blocks(file, part.end):
                yield from _block(source, row, block if row else block.removeprefix(codecs.BOM_UTF8))
                row += block.count(b"\n")
    except (OSError, EOFError, zlib.error) as error:
        yield columns.problem_batch(source, row, f"truncated_file: {_line(error)}")


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
            rest = (rest + fresh)[: MOST_LINE + 1]
    if rest:
        yield rest


def _block(source: str, row: int, block: bytes) -> Iterator[pa.RecordBatch]:
    """Lines as RAW: all at once by Arrow; one by one where it cannot, or an empty line would shift the numbers."""
    options = paj.ParseOptions(explicit_schema=values.COLUMNS, unexpected_field_behavior="ignore")
    table = None
    if _is_plain(block):
        # As one block: Arrow reads none in which a line is longer than a block.
        with contextlib.suppress(pa.ArrowException):
            table = paj.read_json(pa.BufferReader(block), paj.ReadOptions(block_size=len(block) + 1), options)
    if table is not None and table.num_rows == block.count(b"\n") + (not block.endswith(b"\n")):
        for batch in table.combine_chunks().to_batches(ROWS):
            yield _raw(source, row, batch)
            row += batch.num_rows
        return
    lines = ((number, line) for number, line in enumerate(io.BytesIO(block), row) if line.strip())
    while some := [{"offset": number, **_one(line)} for number, line in itertools.islice(lines, ROWS)]:
        given = {name: [event.get(name) for event in some] for name in RAW.names if name != "source"}
        yield columns.batch_of(source, given, len(some))


def _is_plain(block: bytes) -> bool:
    """Say whether Arrow refuses of these lines what `foreign_json` refuses: it minds no depth, no NaN and no bytes."""
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    if b"NaN" in block or b"Infinity" in block:
        return False
    # A line of an event has one bracket.
    deep = block.count(b"[") + block.count(b"{") - block.count(b"\n") > foreign_json.MOST_DEPTH
    if not deep and len(block) <= MOST_LINE:
        return True
    lines = block.split(b"\n")
    return all(
        len(line) <= MOST_LINE and line.count(b"[") + line.count(b"{") <= foreign_json.MOST_DEPTH for line in lines
    )


def _one(line: bytes) -> dict[str, Any]:
    """The row of a line, without its number."""
    try:
        value = foreign_json.read(line.removesuffix(b"\n"), most=MOST_LINE)
        given, problem = values.of_object(value) if isinstance(value, dict) else ({}, "unreadable: not an object")
    except foreign_json.UnreadableJson as error:
        given, problem = {}, f"unreadable: {error}"
    if problem is None:
        return given
    if not line.endswith(b"\n"):
        # The last line without its end is one that was still being written.
        problem = problem.replace("unreadable", "truncated_file", 1)
    return {"problem": problem, "raw": line[: columns.RAW_BYTES]}


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
