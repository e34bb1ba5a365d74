"""`osrdyne pipeline forget` shows events that were ingested by mistake, and removes them, also from what was made of
them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.batches import NOTE
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.spark.rows import LITERAL
from tests.pipeline.small_history import BEGIN, EVENTS, REQUESTS, write
from tests.pipeline.test_cli import complaint, run

#: 2011-03-05, from a clock that was wrong.
OLD = 1_299_283_200_000


def line(event_id: str, time_ms: int) -> str:
    return json.dumps({"key": "k", "event": "alive", "event_id": event_id, "time_ms": time_ms}) + "\n"


def printed(*words: str | Path) -> dict[str, Any]:
    """Run a command, and return the document that it prints."""
    done = run(*words, "--json", "--pool", "core")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def held(spark: SparkSession, lake: Lake) -> tuple[list[str], list[str]]:
    """Ids of the events in bronze, and reasons of the rejects, as Spark reads them."""
    events = sorted(row["event_id"] for row in lake.read(spark, "bronze").collect())
    return events, sorted(row["reason"] for row in lake.read(spark, "rejects").collect())


def test_events_are_shown_and_then_forgotten_by_id_by_time_or_by_file(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    root, good, bad = lake.home.parent, tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text("".join(line(f"g{number}", BEGIN + number) for number in range(4)) + "rubbish\n")
    bad.write_text(line("b0", OLD) + line("b1", BEGIN) + line("old", 5) + line("bad-two", BEGIN))
    for file in (good, bad):
        assert printed("ingest", file, "--lake", root)["batches"] == 1
    assert any(b"bad-two" in file.read_bytes() for file in root.rglob("*.parquet"))
    every = ["b0", "b1", "bad-two", "g0", "g1", "g2", "g3"]

    # Nothing changes until it is wanted
    shown = printed("forget", "--lake", root, "--before", "2012-01-01")
    assert (shown["events"], shown["rejects"], shown["forgotten"]) == (1, 1, False)
    assert (shown["first_ms"], shown["last_ms"], shown["sources"]) == (5, OLD, {str(bad): 2})
    assert held(spark, lake) == (every, ["implausible_time", "unreadable"])
    plain = run("forget", "--lake", root, "--before", "2012-01-01", "--pool", "core").stdout
    assert "1 events and 1 rejects of core" in plain
    assert "1970-01-01T00:00:00+00:00 to 2011-03-05T00:00:00+00:00" in plain
    assert "--yes forgets them" in plain

    # By time, by id, and by file
    assert printed("forget", "--lake", root, "--before", "2012-01-01T02:00:00+02:00", "--yes")["forgotten"] is True
    assert held(spark, lake) == (every[1:], ["unreadable"])
    assert printed("forget", "--lake", root, "--event-id", "g1", "--event-id", "b1", "--yes")["events"] == 2
    assert held(spark, lake) == (["bad-two", "g0", "g2", "g3"], ["unreadable"])
    assert printed("forget", "--lake", root, "--source", bad, "--yes")["events"] == 1
    assert held(spark, lake) == (["g0", "g2", "g3"], ["unreadable"])
    assert printed("forget", "--lake", root, "--source", good)["rejects"] == 1

    # It is gone from the disk, and does not come back
    files = [file.read_bytes() for file in root.rglob("*.parquet")]
    assert not any(b"bad-two" in content for content in files)
    assert printed("ingest", good, bad, "--lake", root)["known_files"] == 2
    assert (
        "there is nothing to forget" in run("forget", "--lake", root, "--event-id", "bad-two", "--pool", "core").stdout
    )
    assert held(spark, lake) == (["g0", "g2", "g3"], ["unreadable"])


def test_nothing_is_forgotten_while_an_ingest_writes(lake: Lake) -> None:
    with lake.version("bronze"):  # an empty table: without one, forget refuses before it tries the lock
        pass
    with lake.only_writer("ingest"):
        refused = run("forget", "--pool", "core", "--lake", lake.home.parent, "--event-id", "a", "--yes")
    assert "another ingest" in complaint(refused)


@pytest.mark.full
def test_tables_of_forgotten_events_are_made_again_and_reports_are_removed(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    root, more = lake.home.parent, tmp_path / "more.jsonl"
    write(tmp_path / "events.jsonl")
    more.write_text(line("x", OLD).replace("alive", "request-received"))
    printed("ingest", tmp_path / "events.jsonl", more, "--lake", root)
    printed("tables", "--lake", root)
    assert lake.read(spark, "silver/requests").count() == REQUESTS + 1
    made = ("recommendation.json", "changes.json", "report.html")
    for name in made:
        (lake.home / name).write_text("{}")

    printed("forget", "--lake", root, "--source", more, "--yes")

    assert lake.read(spark, "silver/events").count() == EVENTS
    assert lake.read(spark, "silver/requests").count() == REQUESTS
    assert not [name for name in made if (lake.home / name).exists()]


@pytest.mark.full
def test_events_of_a_batch_that_a_former_version_wrote_are_read_and_forgotten(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    root, file = lake.home.parent, tmp_path / "events.jsonl"
    file.write_text(line("a", BEGIN) + line("b", BEGIN) + "rubbish\n")
    printed("ingest", file, "--lake", root)
    # Spark wrote such batches, with two columns more, and Hadoop its sums.
    [batch] = lake.path("bronze").glob("batch=*")
    note = (batch / NOTE).read_bytes()
    read = spark.read.options(**LITERAL).parquet(str(batch))
    former = read.withColumns({"reason": F.lit(None).cast("string"), "raw": F.lit(None).cast("binary")})
    with_sums = {"fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem", "fs.file.impl.disable.cache": "true"}
    former.write.options(**with_sums).partitionBy("day").parquet(str(tmp_path / "former"))
    shutil.rmtree(batch)
    shutil.move(tmp_path / "former", batch)
    (batch / NOTE).write_bytes(note)
    assert list(batch.rglob(".*.crc"))
    assert printed("tables", "--lake", root, "--engine", "duckdb")["rows"]["silver/events"] == 2

    assert printed("forget", "--lake", root, "--event-id", "a", "--yes")["events"] == 1

    assert held(spark, lake) == (["b"], ["unreadable"])
    assert printed("tables", "--lake", root, "--engine", "duckdb")["rows"]["silver/events"] == 1
