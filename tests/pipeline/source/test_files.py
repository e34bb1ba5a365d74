"""Events in files, whole and broken: no Spark session."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from osrdyne_pipeline.errors import SourceError
from osrdyne_pipeline.source import files

Lines = Callable[..., Path]


def rows(*paths: Path) -> list[dict[str, Any]]:
    """All rows of files, as the source gives them."""
    parts = files.parts(files.find([str(path) for path in paths]))
    return [row for part in parts for batch in files.read(part) for row in batch.to_pylist()]


def table(count: int) -> pa.Table:
    return pa.table(
        {"key": ["k"] * count, "event": ["alive"] * count, "event_id": [f"{number:032d}" for number in range(count)]}
    )


def test_lines_are_numbered_rows(make_lines: Lines) -> None:
    path = make_lines("a.jsonl", '{"key":"k","event":"started","time_ms":5,"else":[1]}', '{"key":"","event":"alive"}')
    first, second = rows(path)
    assert (first["source"], first["offset"], first["key"], first["time_ms"]) == (str(path), 0, "k", 5)
    assert (second["offset"], second["key"], second["event"], second["problem"]) == (1, "", "alive", None)


def test_a_line_that_is_no_event_spoils_no_other(make_lines: Lines) -> None:
    good = '{"key":"k","event":"alive"}'
    path = make_lines("a.jsonl", good, "rubbish", "", '{"key":"k","event":"alive","time_ms":"x"}', "[]", good)
    found = rows(path)
    assert [(row["offset"], (row["problem"] or "").split(":")[0]) for row in found] == [
        (0, ""),
        (1, "unreadable"),
        (3, "unreadable"),
        (4, "unreadable"),
        (5, ""),
    ]
    assert found[1]["raw"] == b"rubbish\n"


def test_a_last_line_that_breaks_off_is_a_truncated_file(make_lines: Lines) -> None:
    path = make_lines("a.jsonl", '{"key":"k","event":"alive"}')
    path.write_text(path.read_text() + '{"key":"k","ev')
    good, bad = rows(path)
    assert good["problem"] is None
    assert bad["problem"].startswith("truncated_file: ")


@pytest.mark.parametrize("packed", [False, True])
def test_long_files_are_read_in_shares_and_numbered_on(
    make_lines: Lines, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr(files, "SHARE", 500)
    monkeypatch.setattr(files, "BLOCK", 100)
    good = [f'{{"key":"{"k" * (number % 80)}","event":"alive","event_id":"{number}"}}' for number in range(100)]
    path = make_lines("a.jsonl", *good[:50], "rubbish", *good[51:])
    if packed:
        plain, path = path, path.with_name("a.jsonl.gz")
        path.write_bytes(gzip.compress(plain.read_bytes()))
    assert (len(files.parts([path])) > 5) is not packed
    found = rows(path)
    assert [row["offset"] for row in found] == list(range(100))
    assert [row["offset"] for row in found if row["event_id"] != str(row["offset"])] == [50]
    assert found[50]["raw"] == b"rubbish\n"


def test_a_packed_file_without_its_end_gives_what_is_whole(make_lines: Lines) -> None:
    lines = [f'{{"key":"k","event":"alive","event_id":"{number}"}}' for number in range(2000)]
    plain = make_lines("a.jsonl", *lines)
    path = plain.with_name("b.jsonl.gz")
    path.write_bytes(gzip.compress(plain.read_bytes())[:-3000])
    found = rows(path)
    assert found[-1]["problem"].startswith("truncated_file: ")
    good = [row for row in found if row["problem"] is None]
    assert good
    assert all(row["event_id"] == str(row["offset"]) for row in good)
    assert [row["offset"] for row in good] == list(range(len(good)))


def test_an_empty_file_holds_no_event(make_lines: Lines) -> None:
    assert rows(make_lines("a.jsonl")) == []


def test_row_groups_of_parquet_are_read_apart_and_numbered_on(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table(100), path, row_group_size=30)
    assert len(files.parts([path])) == 4
    assert [(row["offset"], int(row["event_id"])) for row in rows(path)] == [(one, one) for one in range(100)]


def test_parquet_without_its_end_is_a_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table(100), path)
    path.write_bytes(path.read_bytes()[:-20])
    (only,) = rows(path)
    assert only["problem"].startswith("truncated_file: ")


def test_parquet_that_is_damaged_within_gives_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table(3000), path, row_group_size=1000, use_dictionary=False)
    content = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(2).data_page_offset
    content[start : start + 400] = b"\xff" * 400
    path.write_bytes(content)
    found = rows(path)
    assert [row["offset"] for row in found if row["problem"] is None] == [*range(1000), *range(2000, 3000)]
    assert [(row["offset"], row["problem"].split(":")[0]) for row in found if row["problem"]] == [
        (1000, "truncated_file")
    ]


def test_parquet_of_something_else_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1, 2]}), path)
    (only,) = rows(path)
    assert only["problem"] == "unreadable: no column event, key"


def test_a_column_of_a_narrower_type_is_read_and_one_of_another_kind_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    times = pa.array([5], pa.int32())
    pq.write_table(pa.table({"key": ["k"], "event": ["alive"], "time_ms": times}), path)
    assert rows(path)[0]["time_ms"] == 5
    pq.write_table(pa.table({"key": ["k"], "event": ["alive"], "time_ms": ["soon"]}), path)
    assert rows(path)[0]["problem"] is not None


def test_folders_are_searched_and_hidden_files_left_alone(make_lines: Lines, tmp_path: Path) -> None:
    kept = [make_lines("b.jsonl", "{}"), make_lines("a.ndjson", "{}")]
    make_lines("_c.jsonl", "{}")
    make_lines("notes.txt", "{}")
    assert files.find([str(tmp_path / "files")]) == sorted(kept)


def test_what_is_not_there_or_no_file_of_events_is_said(make_lines: Lines, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        files.find([str(tmp_path / "absent")])
    with pytest.raises(SourceError, match="events are read from"):
        files.find([str(make_lines("notes.txt", "{}"))])
