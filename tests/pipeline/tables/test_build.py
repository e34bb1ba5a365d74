"""All tables of a lake in one go, and once more."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from osrdyne_pipeline import tables
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


def test_an_empty_pool_has_every_table_without_rows(spark: SparkSession, lake: Lake) -> None:
    tables.build(spark, lake, lambda *_: None)
    assert all(lake.exists(name) and not lake.read(spark, name).take(1) for name in STEPS)
