"""All tables of a lake in one go, and once more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from osrdyne_pipeline import slices, tables
from osrdyne_pipeline.ingest import ingest_files
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.schemas import TABLES
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.spark.tables import STEPS
from tests.pipeline.tables.histories import Pool, bronze, ordered
from tests.pipeline.tables.test_by_hand import STORIES

#: A dozen Spark jobs, on a machine that others use too.
pytestmark = pytest.mark.full


def test_every_table_is_made_with_progress_and_is_the_same_when_made_again(spark: SparkSession, lake: Lake) -> None:
    pool = Pool()
    for story in STORIES:
        story(pool)
    lake.write("bronze", bronze(spark, pool.history))
    calls: list[tuple[str, int, int]] = []

    def build() -> dict[str, list[tuple[object, ...]]]:
        tables.build(spark, lake, lambda *said: calls.append(said))
        return {name: ordered(lake.read(spark, name).collect()) for name in TABLES if name not in ("bronze", "rejects")}

    first = build()
    assert [name for name, _, _ in calls] == list(first)
    assert [number for _, number, _ in calls] == list(range(1, len(first) + 1))
    assert {of for _, _, of in calls} == {len(first)}
    assert all(first.values())
    # Everything is read again, bronze in another order; then by the other engine, of what Spark wrote.
    lake.write("bronze", bronze(spark, reversed(pool.history)))
    assert build() == first
    with SmallEngine.open("1g") as engine:
        tables.build(engine, lake, lambda *_: None)
    assert {name: ordered(lake.read(spark, name).collect()) for name in first} == first


def test_copies_that_come_between_two_runs_of_a_session_are_left_out(
    spark: SparkSession, engine: SmallEngine, lake: Lake, tmp_path: Path
) -> None:
    def ids_after(file: str, *ids: str) -> list[str]:
        events = ({"key": "k", "event": "alive", "event_id": name, "time_ms": 1_767_225_600_000} for name in ids)
        (tmp_path / file).write_text("".join(f"{json.dumps(event)}\n" for event in events))
        ingest_files(engine, lake, [tmp_path / file])
        lake.remove_file(slices.NOTE)  # so all days are made again
        tables.build(spark, lake, lambda *_: None)
        return sorted(row["event_id"] for row in lake.read(spark, "silver/events").collect())

    assert ids_after("a.jsonl", "one", "two") == ["one", "two"]
    assert ids_after("b.jsonl", "two", "three") == ["one", "three", "two"]


def test_an_empty_pool_has_every_table_without_rows(spark: SparkSession, lake: Lake) -> None:
    tables.build(spark, lake, lambda *_: None)
    assert all(lake.exists(name) and not lake.read(spark, name).take(1) for name in STEPS)
