"""What docs/reference/pipeline-events.md says of files of events: their columns, and the file that its query makes."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

import steps
from osrdyne_pipeline.ingest import ingest_files
from osrdyne_pipeline.judging import KNOWN
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.slices import build
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.source.values import COLUMNS

PAGE = Path(steps.ROOT, "docs/reference/pipeline-events.md").read_text()


def test_the_page_has_every_column_with_its_type() -> None:
    listed = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\w+) \|", PAGE, re.MULTILINE)

    said = {name: kind for names, kind in listed for name in re.findall(r"\w+", names)}
    assert said == {field.name: str(field.type) for field in COLUMNS}


def test_the_page_names_events_that_there_are() -> None:
    named = re.findall(r"`([\w-]+)`", PAGE.partition("## Events")[2].partition("## From a table")[0].split("\n\n")[1])

    assert set(named) - {"outcome"} <= KNOWN


def test_the_query_of_the_page_makes_events_of_calls(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [query] = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    with duckdb.connect() as calls:
        calls.execute(
            "create table calls as from (values "
            "('1', 'LAX', true, timestamp '2024-01-01 00:00:00', timestamp '2024-01-01 00:00:05', "
            "timestamp '2024-01-01 00:00:06', 'w1', 'ok'), "
            "('2', 'LAX', false, timestamp '2024-01-01 00:01:00', timestamp '2024-01-01 00:01:00', null, 'w1', null)"
            ") calls(id, key, cold, called, began, ended, worker, outcome)"
        )
        calls.execute(query)

    with SmallEngine.open("1g") as engine:
        done = ingest_files(engine, lake, [tmp_path / "events.parquet"])
        build(engine, lake, lambda *_: None)
        requests = engine.rows("from requests order by request_id")

    assert (done.events, done.rejects) == (4, 0)
    found = [(row["key"], row["request_id"], row["cold"], row["total_ms"], row["run_ms"]) for row in requests]
    assert found == [("LAX", "1", True, 6000, 1000), ("LAX", "2", False, None, None)]
    assert [row["outcome"] for row in requests] == ["ok", None]
