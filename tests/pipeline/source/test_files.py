"""Events in files, whole and broken: no Spark session."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from osrdyne_amqp.codec.frames import longest_read
from osrdyne_pipeline.errors import SourceError
from osrdyne_pipeline.source import columns, files

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


def test_a_line_that_is_not_an_event_spoils_no_other(make_lines: Lines) -> None:
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


DEEP = '{"key":"k","event":"alive","else":' + "[" * 1000 + "]" * 1000 + "}"


def reason(row: dict[str, Any]) -> str:
    return str(row["problem"] or "").split(":")[0]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (DEEP.encode(), "unreadable: more than 64 objects and arrays"),
        (b'{"key":"k","event":"alive","else":' + b"[" * 50_000, "unreadable: more than 64 objects and arrays"),
        (b'{"key":"\xff\xfe","event":"alive"}', "unreadable: it is not UTF-8"),
        (b'{"key":"k","event":"alive","else":"\xff"}', "unreadable: it is not UTF-8"),
        (b'{"key":"\\ud800","event":"alive"}', "unreadable: a text holds half of a surrogate pair"),
        (b'{"key":"k","event":"alive","else":NaN}', "unreadable: it is not JSON: NaN"),
        (b'{"key":"k","event":"alive","time_ms":1e999}', "unreadable: the number 1e999 is too large"),
        (b'{"key":"k","event":"alive","time_ms":9223372036854775808}', "unreadable: time_ms is '9223372036854775808'"),
        (b'{"key":"k","event":"alive","time_ms":5.5}', "unreadable: time_ms is '5.5', not int64"),
        (b'{"key":"k","event":"alive","time_ms":true}', "unreadable: time_ms is 'True', not int64"),
        (b'{"key":5,"event":"alive"}', "unreadable: key is '5', not string"),
        (b'{"key":"k","event":"alive","else":"' + b"x" * files.MOST_LINE + b'"}', "unreadable: it has "),
        (b'{"key":"k","event":"alive","else":[' + b"1," * files.MOST_LINE + b"1]}", "unreadable: it has "),
        (b'{"else":"' + b"x" * 9_000_000 + b'"}', "unreadable: it has "),
    ],
    ids=lambda value: repr(value)[:60],
)
@pytest.mark.parametrize("beside", [b"", b"rubbish\n"], ids=["alone", "beside another"])
def test_a_line_with_a_bad_value_is_a_problem_of_its_own(tmp_path: Path, line: bytes, why: str, beside: bytes) -> None:
    good = b'{"key":"k","event":"alive","time_ms":5}\n'
    path = tmp_path / "a.jsonl"
    path.write_bytes(good + line + b"\n" + good + beside)
    found = rows(path)
    assert [row["offset"] for row in found] == list(range(3 + bool(beside)))
    assert [row["time_ms"] for row in found if not row["problem"]] == [5, 5]
    assert found[1]["problem"].startswith(why)
    assert found[1]["raw"] == (line + b"\n")[: columns.RAW_BYTES]


@pytest.mark.parametrize("beside", [b"", b"rubbish\n"], ids=["alone", "beside another"])
def test_the_longest_event_of_a_stream_is_read_and_a_line_may_be_as_long_without_its_end(
    tmp_path: Path, beside: bytes
) -> None:
    longest = {"key": "\1" * 255, "event": "alive", "request_id": "\1" * longest_read(131_072)}
    begin = b'{"key":"k","event":"alive","else":"'
    exact = begin + b"x" * (files.MOST_LINE - len(begin) - 2) + b'"}'
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps(longest).encode() + b"\n" + exact + b"\n" + beside)
    found = rows(path)[:2]
    assert [row["problem"] for row in found] == [None, None]
    assert found[0]["request_id"] == longest["request_id"]


def test_the_last_of_two_equal_names_in_a_line_counts_and_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"key":"a","event":"alive"}\n{"key":"b","key":"c","event":"alive","time_ms":7.0}\n')
    assert [(row["key"], row["time_ms"], row["problem"]) for row in rows(path)] == [("a", None, None), ("c", 7, None)]


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
    assert [(row["offset"], int(row["event_id"])) for row in rows(path)] == [(number, number) for number in range(100)]


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


def test_a_bad_value_in_parquet_is_a_problem_of_its_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = pa.array([b"r", b"\xff", b"", None], pa.binary())
    # As a careless writer has it: said to be text, and never looked at.
    careless = pa.Array.from_buffers(pa.string(), len(texts), texts.buffers())
    given = {
        "key": pa.array([b"k", b"k", b"\xfe", b"k"], pa.binary()),
        "event": ["alive"] * 4,
        "time_ms": ["1", "2", "3", "soon"],
        "request_id": careless,
    }
    pq.write_table(pa.table(given), path)
    found = rows(path)
    assert [row["offset"] for row in found] == [0, 1, 2, 3]
    assert [reason(row) for row in found] == ["", "unreadable", "invalid_key", "unreadable"]
    assert [row["time_ms"] for row in found] == [1, 2, 3, None]
    assert [row["key"] for row in found] == ["k", "k", None, "k"]
    assert found[1]["problem"].startswith("unreadable: request_id: ")
    assert found[3]["raw"] == b"key=k, event=alive, time_ms=soon"
    assert rb"key=\xfe" in found[2]["raw"]


@pytest.mark.parametrize("times", [[5.0, 5.5, None, float("nan")], [2**63, 2**64 - 1, 5, 6]], ids=["real", "unsigned"])
def test_a_number_that_is_not_an_integer_of_64_bits_is_a_problem_of_its_row(tmp_path: Path, times: list[Any]) -> None:
    path = tmp_path / "a.parquet"
    kind = pa.float64() if isinstance(times[0], float) else pa.uint64()
    pq.write_table(pa.table({"key": ["k"] * 4, "event": ["alive"] * 4, "time_ms": pa.array(times, kind)}), path)
    found = [(row["time_ms"], reason(row)) for row in rows(path)]
    bad = (None, "unreadable")
    assert found == ([(5, ""), bad, (None, ""), bad] if kind == pa.float64() else [bad, bad, (5, ""), (6, "")])


def test_parquet_that_arrow_cannot_make_sense_of_ends_the_reading_of_no_other_file(tmp_path: Path) -> None:
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    twice = pa.Table.from_arrays([pa.array(["k"])] * 3, ["key", "key", "event"])
    pq.write_table(twice, path)
    pq.write_table(table(1), other)
    first, second = rows(path, other)
    assert (reason(first), second["problem"]) == ("unreadable", None)


def test_a_folder_that_is_named_like_a_file_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "events.parquet").mkdir()
    pq.write_table(table(2), tmp_path / "events.parquet/part-0.parquet")
    assert [path.name for path in files.find([str(tmp_path)])] == ["part-0.parquet"]


def test_folders_are_searched_and_hidden_files_left_alone(make_lines: Lines, tmp_path: Path) -> None:
    kept = [make_lines("b.jsonl", "{}"), make_lines("a.ndjson", "{}")]
    make_lines("_c.jsonl", "{}")
    make_lines("notes.txt", "{}")
    assert files.find([str(tmp_path / "files")]) == sorted(kept)


def test_what_is_not_there_or_no_file_of_events_is_said(make_lines: Lines, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        files.find([str(tmp_path / "absent")])
    with pytest.raises(SourceError, match="begins with s3: as an address does"):
        files.find(["s3://bucket/events"])
    with pytest.raises(SourceError, match="events are read from"):
        files.find([str(make_lines("notes.txt", "{}"))])
