"""Every table, made by Spark, is what plain Python and DuckDB make of the same events, whatever happened when.

So a pool has the same tables before it grows and after, and the benchmark's sides do the same work.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from datetime import date
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from benchmarks.sides.pipeline_plain import Event
from osrdyne_pipeline.commands.recommend import TABLES
from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.promises.came import came
from osrdyne_pipeline.recommendation.advice import KnownCalls
from osrdyne_pipeline.recommendation.calls import DAY
from osrdyne_pipeline.recommendation.calls import Tables as Asked
from osrdyne_pipeline.recommendation.choices import failing
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.tables import shown
from tests.pipeline.tables.histories import Tables, made_of, made_plainly, made_small, random_history

#: A dozen Spark jobs. `make test` has the tables of test_by_hand.py.
pytestmark = pytest.mark.full


@dataclass(frozen=True)
class RandomHistory:
    """One random history, and its tables by both."""

    history: list[Event]
    spark: Tables
    plain: dict[str, list[tuple[object, ...]]]


@pytest.fixture(scope="module", params=[1])
def made(spark: SparkSession, request: pytest.FixtureRequest) -> RandomHistory:
    history = random_history(request.param, keys=150, events_of_a_key=40)
    return RandomHistory(history, made_of(spark, history), made_plainly(history))


@pytest.mark.parametrize(
    "table",
    [
        *("events", "requests", "lives", "demand", "cold_starts", "latency", "worker_hours", "failures", "causes"),
        *("starts", "bill", "key_classes"),
    ],
)
def test_a_table_is_what_plain_python_makes_of_the_same_events(made: RandomHistory, table: str) -> None:
    assert made.spark.tuples(table) == made.plain[table]


def test_the_small_engine_makes_the_same_rows_of_every_table(made: RandomHistory, lake: Lake) -> None:
    small = made_small(lake, made.history)
    for name in made.spark.rows:
        assert small[name] == made.spark.tuples(name), name


def test_each_question_that_either_engine_is_asked_has_one_answer(
    made: RandomHistory, spark: SparkSession, lake: Lake
) -> None:
    made_small(lake, made.history)
    day = min(row["day"] for row in made.spark.rows["cold_starts"]).toordinal() - date(1970, 1, 1).toordinal()
    begin, end = ((day + number) * DAY for number in (1, 3))

    def answers(tables: Asked) -> dict[str, Any]:
        known = KnownCalls.of(tables)
        calls = {each.name: getattr(known.calls, each.name) for each in fields(known.calls)}
        columns = {name: getattr(value, "tolist", lambda value=value: value)() for name, value in calls.items()}
        cold, hours = came(tables, known.calls.keys, begin, end)
        assert hours is not None
        return {
            "calls": columns,
            "classes": known.classes,
            "keys that cannot be started": known.cannot_start,
            "starts": sorted(tuple(map(str, row.values())) for row in tables.table(failing.BY_KEY).to_pylist()),
            "came": (cold.tolist(), hours.tolist()),
        }

    with SmallEngine.open("1g") as engine:
        small = answers(shown(engine, lake, *TABLES))
    theirs = answers(shown(spark, lake, *TABLES))
    for name, answer in small.items():
        assert answer == theirs[name], name
        assert answer, name
    assert all(np.sum(counted) > 0 for counted in small["came"])


def test_the_forecast_is_what_plain_python_makes_of_the_same_events(made: RandomHistory) -> None:
    ours, theirs = made.spark.tuples("forecast"), made.plain["forecast"]
    assert [row[:3] for row in ours] == [row[:3] for row in theirs]
    for row, other in zip(ours, theirs, strict=True):
        assert row[3:] == pytest.approx(other[3:])


def test_neither_order_nor_duplicates_change_a_table(spark: SparkSession, made: RandomHistory) -> None:
    again = list(made.history)
    random.Random(2).shuffle(again)
    again += [event._replace(source="zzz") for event in again[::3]]
    other = made_of(spark, again)
    for table in made.spark.rows:
        assert other.tuples(table) == made.spark.tuples(table), table


def test_the_parts_of_each_request_sum_to_the_whole(made: RandomHistory) -> None:
    done = [row for row in made.spark.rows["requests"] if row["done_ms"] is not None]
    assert done
    for row in done:
        parts = [row[part] for part in ("orphan_ms", "start_ms", "queue_ms", "run_ms")]
        assert min(parts) >= 0
        assert sum(parts) == row["total_ms"] == row["done_ms"] - row["seen_ms"]


def test_sums_over_days_and_keys_are_the_sums_of_requests_and_lives(made: RandomHistory) -> None:
    def total(table: str, column: str) -> int:
        return sum(row[column] or 0 for row in made.spark.rows[table])

    requests = made.spark.rows["requests"]
    assert total("demand", "requests") == total("cold_starts", "requests") == total("key_classes", "requests")
    assert total("demand", "requests") == len(requests)
    assert total("demand", "cold") == total("cold_starts", "cold") == sum(row["cold"] for row in requests)
    assert total("demand", "run_ms") == total("latency", "run_ms") == total("requests", "run_ms")
    assert total("latency", "total_ms") == total("requests", "total_ms")
    assert total("worker_hours", "busy_ms") == total("lives", "busy_ms")
    assert total("worker_hours", "up_ms") == total("worker_hours", "busy_ms") + total("worker_hours", "idle_ms")
    assert total("cold_starts", "starts") == len(made.spark.rows["lives"])


def test_no_day_of_a_life_is_busier_than_it_is_long(made: RandomHistory) -> None:
    lives = made.spark.rows["lives"]
    assert lives
    for life in lives:
        assert all(0 <= busy <= up for _, up, busy in life["days"])
        assert sum(busy for _, _, busy in life["days"]) == life["busy_ms"]
        if life["stopped_ms"] is not None:
            assert sum(up for _, up, _ in life["days"]) == life["stopped_ms"] - life["started_ms"]
