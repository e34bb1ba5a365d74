"""Files into the lake: each once, broken ones counted, an interrupted batch done again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from osrdyne_pipeline import batches
from osrdyne_pipeline.batches import Batch
from osrdyne_pipeline.ingest import ingest_files
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.schemas import BRONZE
from osrdyne_pipeline.small import intake
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.source.options import SourceOptions
from tests.pipeline.source.conftest import FIRST_MS, rows_of

Lines = Callable[..., Path]


def line(number: int, event: str = "alive") -> str:
    return f'{{"key":"k","event":"{event}","event_id":"id-{number}","time_ms":{FIRST_MS + number * 50_000_000}}}'


def ids(lake: Lake) -> list[str]:
    return sorted(row["event_id"] for row in rows_of(lake, "bronze"))


def reasons(lake: Lake) -> list[str]:
    return sorted(row["reason"] for row in rows_of(lake, "rejects"))


def test_files_are_taken_in_once_and_what_is_broken_is_counted(
    engine: SmallEngine, lake: Lake, make_lines: Lines, tmp_path: Path
) -> None:
    make_lines("a.jsonl", line(1), line(2, "exploded"), line(3))
    # A name of two lines and of bytes, and what would end the reading of all files.
    make_lines("b.jsonl", "rubbish").rename(os.fsdecode(os.fsencode(tmp_path / "files/b\n") + b"\xff.jsonl"))
    make_lines("deep.jsonl", '{"key":' + "[" * 1000 + "]" * 1000 + "}", "rubbish")
    (tmp_path / "files/c.parquet").write_bytes(b"PAR1 and no more")

    first = ingest_files(engine, lake, [tmp_path / "files"])
    assert (first.events, first.rejects, first.known_files) == (2, 5, 0)
    assert first.reasons == {"unknown_event": 1, "unreadable": 3, "truncated_file": 1}
    assert first.done == first.total > 0
    assert ids(lake) == ["id-1", "id-3"]
    assert reasons(lake) == ["truncated_file", "unknown_event", *["unreadable"] * 3]
    assert sum(row["source"].endswith("b\n\\xff.jsonl") for row in rows_of(lake, "rejects")) == 1
    # The day is the name of a folder.
    assert [*rows_of(lake, "bronze")[0], "day"] == BRONZE.names

    # A copy under another name is the same file; a new one is read.
    shutil.copy(tmp_path / "files/a.jsonl", tmp_path / "files/z.jsonl")
    make_lines("d.jsonl", line(4))
    second = ingest_files(engine, lake, [tmp_path / "files"])
    assert (second.events, second.rejects, second.known_files) == (1, 0, 5)
    assert ids(lake) == ["id-1", "id-3", "id-4"]

    third = ingest_files(engine, lake, [tmp_path / "files"])
    assert (third.batches, third.known_files) == (0, 6)


def test_a_batch_is_done_again_wherever_its_job_was_killed(engine: SmallEngine, lake: Lake, make_lines: Lines) -> None:
    # Given what a job leaves that is killed while it writes, and between the two renames
    file = make_lines("a.jsonl", line(1), line(2, "exploded"))
    intake.write_batch(engine, lake, Batch(name="one"), SourceOptions(paths=(str(file),)), 2 * FIRST_MS)
    staging = lake.home / batches.STAGING
    (staging / "one.rejects").rename(lake.path("rejects") / "batch=one")
    assert (staging / "one").is_dir()
    assert reasons(lake) == ["unknown_event"]

    # When it is started again
    done = ingest_files(engine, lake, [file])

    # I expect each row once
    assert (done.events, done.rejects) == (1, 1)
    assert ids(lake) == ["id-1"]
    assert reasons(lake) == ["unknown_event"]
    assert not list(staging.rglob("*"))


def test_a_file_with_nothing_good_in_it_is_taken_in_once_too(
    engine: SmallEngine, lake: Lake, make_lines: Lines
) -> None:
    file = make_lines("a.jsonl", "rubbish")
    empty = make_lines("b.jsonl")
    assert ingest_files(engine, lake, [file, empty]).rejects == 1
    assert ingest_files(engine, lake, [file, empty]).known_files == 2
    assert ids(lake) == []


def test_of_a_parquet_file_with_a_damaged_part_the_other_parts_are_taken_in(
    engine: SmallEngine, lake: Lake, tmp_path: Path
) -> None:
    file = tmp_path / "a.parquet"
    names = [f"id-{number}" for number in range(20)]
    table = {"key": ["k"] * 20, "event": ["alive"] * 20, "event_id": names, "time_ms": [FIRST_MS] * 20}
    pq.write_table(pa.table(table), file, row_group_size=10, compression="none", use_dictionary=False)
    written = file.read_bytes()
    file.write_bytes(written[:4] + b"\xff" * 40 + written[44:])

    done = ingest_files(engine, lake, [file])

    assert done.reasons == {"truncated_file": 1}
    assert set(names[10:]) <= set(ids(lake))
