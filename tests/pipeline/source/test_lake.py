"""Tables: enforced, replaced in one step, empty where they are not yet."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the usual name for it

from osrdyne_pipeline.errors import LakeBusy, LakeError
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.schemas import TABLES
from osrdyne_pipeline.spark.rows import of_arrow

NAME = "gold/worker_hours"


def hours(spark: SparkSession, *keys: str) -> DataFrame:
    return spark.createDataFrame([(key, 10, 2, 8, 1, dt.date(2026, 1, 1)) for key in keys], of_arrow(TABLES[NAME]))


def keys(spark: SparkSession, lake: Lake) -> list[str]:
    return sorted(row["key"] for row in lake.read(spark, NAME).collect())


def test_a_table_is_empty_then_what_was_written_last(spark: SparkSession, lake: Lake) -> None:
    assert not lake.exists(NAME)
    assert lake.read(spark, NAME).columns == TABLES[NAME].names
    assert keys(spark, lake) == []

    lake.write(NAME, hours(spark, "a", "b"))
    begun = lake.read(spark, NAME)
    # What is written may come from what is replaced.
    lake.write(NAME, lake.read(spark, NAME).union(hours(spark, "c")))
    assert lake.exists(NAME)
    assert keys(spark, lake) == ["a", "b", "c"]
    # Who began to read before reads the table of then.
    assert begun.count() == 2

    lake.write(NAME, hours(spark))
    assert keys(spark, lake) == []
    assert len(list((lake.home / "versions").iterdir())) == 2


def test_only_former_versions_are_removed_when_a_version_takes_its_place(lake: Lake) -> None:
    foreign = lake.home / "versions" / f"{NAME.replace('/', '.')}-0000-notes"
    foreign.mkdir(parents=True)
    for _ in range(3):
        with lake.version(NAME):
            pass
    assert foreign.is_dir()
    assert len(list(foreign.parent.iterdir())) == 3


def test_a_table_that_cannot_be_written_stays_as_it_was(spark: SparkSession, lake: Lake) -> None:
    lake.write(NAME, hours(spark, "a"))
    rows = hours(spark, "b")
    for wrong, says in (
        (rows.drop("up_ms"), "no column up_ms"),
        (rows.withColumn("up_ms", F.lit("1")), "up_ms is string, not bigint"),
        (rows.withColumn("more", F.lit(1)), "more is not a column"),
    ):
        with pytest.raises(LakeError, match=says):
            lake.write(NAME, wrong)
    with pytest.raises(PySparkException, match="a row without up_ms, which is required"):
        lake.write(NAME, rows.withColumn("up_ms", F.when(F.col("key") == "x", F.col("up_ms"))))
    assert keys(spark, lake) == ["a"]
    assert len(list((lake.home / "versions").iterdir())) == 1


def test_a_day_of_events_is_a_folder(spark: SparkSession, lake: Lake) -> None:
    days = [dt.date(2026, 1, 1), dt.date(2026, 1, 2)]
    names = TABLES["silver/events"].names
    known = {"source": "s", "key": "k", "event": "alive"}
    rows = [
        tuple(
            {**known, "offset": n, "event_id": f"id-{n}", "time_ms": n, "day": days[n % 2]}.get(name) for name in names
        )
        for n in range(4)
    ]
    lake.write("silver/events", spark.createDataFrame(rows, of_arrow(TABLES["silver/events"])))
    assert sorted(file.name for file in lake.path("silver/events").glob("day=*")) == [
        "day=2026-01-01",
        "day=2026-01-02",
    ]
    read = lake.read(spark, "silver/events")
    assert read.columns == TABLES["silver/events"].names
    assert {row["offset"] for row in read.where("day = '2026-01-02'").collect()} == {1, 3}


def test_there_is_no_other_table(lake: Lake) -> None:
    with pytest.raises(LakeError, match="there is no table 'gold/lead'"):
        lake.path("gold/lead")


def test_one_writer_at_a_time_and_a_killed_one_blocks_no_other(lake: Lake) -> None:
    script = (
        "import sys; from osrdyne_pipeline.lake import Lake\n"
        f"with Lake({str(lake.home.parent)!r}, 'core').only_writer('ingest'):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LakeBusy, match=f"process {other.pid}"), lake.only_writer("ingest"):
            pass
        with lake.only_writer("tables"):
            pass
        other.kill()
        other.wait(60)
    with lake.only_writer("ingest"):
        pass


@pytest.mark.parametrize("place", ["s3://b/l", "s3a://b/l", "abfs://c@a/l", "HDFS://h/l", "file:///l", "file:/l"])
def test_an_address_is_not_a_lake(place: str) -> None:
    for given in (place, Path(place)):
        with pytest.raises(LakeError, match="only paths can be read and written"):
            Lake(given, "core")


def test_a_path_means_itself_whatever_characters_it_has(spark: SparkSession, tmp_path: Path) -> None:
    names = ("[ab]", "a", "*{c,d}?\\s3a:[")
    lakes = {name: Lake(tmp_path / name, "core") for name in names}
    for name, lake in lakes.items():
        lake.write(NAME, hours(spark, name))
    assert {name: keys(spark, lake) for name, lake in lakes.items()} == {name: [name] for name in names}


def test_a_lake_without_a_write_makes_no_folder(lake: Lake, tmp_path: Path) -> None:
    assert not lake.exists("bronze")
    assert list(tmp_path.iterdir()) == []
