"""Events of the customer's own: files in an object store, and tables that are not folders of files."""

from __future__ import annotations

from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from osrdyne_pipeline.errors import LakeError, SourceError
from osrdyne_pipeline.ingest import ingest_files
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.store.objects import opened
from testbed.s3.server import BUCKET, S3Server
from tests.pipeline.small_history import BEGIN

ROWS = pa.table({"key": ["k", "l"], "event": ["alive"] * 2, "time_ms": [BEGIN, BEGIN + 1], "more": [1.5, None]})


def put(name: str, content: bytes) -> str:
    """Put an object, and return its address."""
    obstore.put(opened(f"s3://{BUCKET}"), name, content)
    return f"s3://{BUCKET}/{name}"


def parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


@pytest.mark.full
@pytest.mark.usefixtures("s3")
def test_files_in_a_store_are_taken_in_once_and_named_by_their_address(lake: Lake) -> None:
    address = put("own/2026/a.parquet", parquet(ROWS))
    put("own/2026/b.jsonl", b'{"key": "k", "event": "alive", "time_ms": 1356998400009}\nrubbish\n')
    for other in ("own/2026/_note.jsonl", "own/2026/_temporary/c.parquet", "own/2026/read.me", "own/2026-not/d.jsonl"):
        put(other, b"not to be read\n")
    with SmallEngine.open("1g") as engine:
        first = ingest_files(engine, lake, [f"s3a://{BUCKET}/own/2026/"])
        again = ingest_files(engine, lake, [f"s3://{BUCKET}/own/2026", address])
        put("own/2026/more/e.parquet", parquet(ROWS.slice(1)))
        more = ingest_files(engine, lake, [Path(f"s3://{BUCKET}/own/2026")])
        engine.show(lake, "bronze", "rejects")
        sources = {row["source"]: row["event_id"] for row in engine.rows("from bronze order by event_id")}
        [bad] = engine.rows("from rejects")

    assert (first.events, first.rejects, first.done) == (3, 1, first.total)
    assert (again.events, again.known_files) == (0, 3)
    assert (more.events, more.known_files) == (1, 2)
    names = [f"s3://{BUCKET}/own/2026/{name}" for name in ("a.parquet", "b.jsonl", "more/e.parquet")]
    # Without an id, an event is known by its file and row.
    assert sources == {names[0]: f"{names[0]}:1", names[1]: f"{names[1]}:0", names[2]: f"{names[2]}:0"}
    assert (bad["source"], bad["reason"]) == (names[1], "unreadable")


@pytest.mark.full
@pytest.mark.usefixtures("s3")
def test_an_address_without_files_is_reported_and_nothing_is_written(lake: Lake) -> None:
    put("empty/read.me", b"")
    with SmallEngine.open("1g") as engine:
        with pytest.raises(SourceError, match="there are no files of"):
            ingest_files(engine, lake, [f"s3://{BUCKET}/empty"])
        with pytest.raises(LakeError, match="there is no such bucket"):
            ingest_files(engine, lake, ["s3://absent/own"])
    assert not lake.exists("bronze")


@pytest.mark.full
def test_a_table_of_delta_in_a_store_is_not_read_as_a_folder_of_files(s3: S3Server, lake: Lake) -> None:
    write_deltalake(f"s3://{BUCKET}/table", ROWS, storage_options={"allow_http": "true"})
    with SmallEngine.open("1g") as engine, pytest.raises(SourceError, match="keeps its versions in _delta_log"):
        ingest_files(engine, lake, [f"s3://{BUCKET}/table"])


def test_a_table_of_delta_is_not_read_as_a_folder_of_files(lake: Lake, tmp_path: Path) -> None:
    # Given a table of which a row was removed, whose file is still there
    write_deltalake(tmp_path / "table", ROWS)
    write_deltalake(tmp_path / "table", ROWS.slice(1), mode="overwrite")

    with SmallEngine.open("1g") as engine, pytest.raises(SourceError, match="write its rows as Parquet"):
        ingest_files(engine, lake, [tmp_path / "table"])
    assert not lake.exists("bronze")
