"""Classes of keys, and the forecast, from invented demand."""

from __future__ import annotations

from math import sqrt

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.sides.pipeline_plain import Event
from osrdyne_pipeline.questions.forecast import forecast
from osrdyne_pipeline.questions.key_classes import key_classes
from osrdyne_pipeline.schemas import DEMAND, KEY_CLASSES
from osrdyne_pipeline.silver.requests import requests
from osrdyne_pipeline.spark.rows import of_arrow
from tests.pipeline.tables.histories import DAY, HOUR, MONDAY, bronze, the_day


def _calls(key: str, times: list[int]) -> list[Event]:
    """Requests of one key that run for 10 ms each."""
    return [
        Event("s", 0, key, event, f"{key}{at}{event}", MONDAY + at + run, "w", f"r{at}", outcome)
        for at in times
        for event, run, outcome in (("request-received", 0, None), ("finished", 10, "ok"))
    ]


def test_keys_are_heavy_steady_or_rare(spark: SparkSession) -> None:
    history = [
        *_calls("half of all", [number * 60_000 for number in range(40)]),
        *_calls("often", [number * HOUR for number in range(25)]),
        *_calls("every other day", [number * 2 * DAY for number in range(12)]),
        *_calls("thrice", [0, 1_000, 2_000]),
    ]
    rows = key_classes(requests(bronze(spark, history))).collect()
    assert [tuple(row) for row in sorted(rows, key=lambda row: row["rank"])] == [
        ("half of all", "heavy", 40, 0, 1, 400, 0.5, 60_000, 1),
        ("often", "steady", 25, 0, 2, 250, 25 / 80, HOUR, 2),
        ("every other day", "rare", 12, 0, 12, 120, 12 / 80, 2 * DAY, 3),
        ("thrice", "rare", 3, 0, 1, 30, 3 / 80, 1_000, 4),
    ]


def _classes(spark: SparkSession) -> DataFrame:
    rows = [(key, name, 1, 0, 1, 0, 0.5, None, 1) for key, name in (("a", "heavy"), ("b", "heavy"), ("c", "rare"))]
    return spark.createDataFrame(rows, of_arrow(KEY_CLASSES))


def _forecast(
    spark: SparkSession, demand: list[tuple[str, int, int, int]]
) -> dict[tuple[str, int], tuple[object, ...]]:
    """Return the forecast by class and hour. Demand: key, milliseconds since MONDAY, requests, milliseconds of work."""
    rows = [(key, MONDAY + at, count, 0, run_ms, the_day(at // DAY)) for key, at, count, run_ms in demand]
    forecasts = forecast(spark.createDataFrame(rows, of_arrow(DEMAND)), _classes(spark)).collect()
    return {(row["class"], row["hour"]): tuple(row)[1:2] + tuple(row)[3:] for row in forecasts}


def test_the_forecast_is_the_same_hour_of_earlier_days_and_its_bound_widens_with_variance(
    spark: SparkSession,
) -> None:
    found = _forecast(spark, [("a", HOUR, 10, HOUR), ("b", HOUR, 6, 0), ("a", DAY + HOUR, 4, 2 * HOUR)])
    day, mean, high, workers, workers_high, days = found["heavy", 1]
    assert (day, mean, workers, days) == (the_day(2), 10.0, 1.5, 2)
    # 16 and 4 requests have the variance 72; 1 and 2 workers have 0.5, and the variance of chance is added.
    assert high == pytest.approx(10 + 1.645 * sqrt(72 * 1.5))
    assert workers_high == pytest.approx(1.5 + 1.645 * sqrt(0.5 * 1.5 + 1.5))
    assert found["heavy", 2][1:5] == (0.0, 0.0, 0.0, 0.0)
    assert len(found) == 48


@pytest.mark.full
def test_a_forecast_from_one_day_says_so_and_its_bound_is_that_of_chance_alone(spark: SparkSession) -> None:
    found = _forecast(spark, [("c", 5 * HOUR, 9, 0)])
    assert found["rare", 5] == (the_day(1), 9.0, pytest.approx(9 + 1.645 * sqrt(9 * 2)), 0.0, 0.0, 1)


@pytest.mark.full
def test_with_two_weeks_of_history_only_the_same_weekday_counts(spark: SparkSession) -> None:
    busy_mondays = [("a", week * 7 * DAY + 3 * HOUR, 100, 0) for week in range(2)]
    other_days = [("a", day * DAY + 3 * HOUR, 10, 0) for day in range(14) if day % 7]
    found = _forecast(spark, busy_mondays + other_days)
    assert found["heavy", 3][:2] == (the_day(14), 100.0)
    assert found["heavy", 3][-1] == 2
    # A day later, the forecast is for a Tuesday.
    found = _forecast(spark, [*busy_mondays, *other_days, ("a", 14 * DAY + 3 * HOUR, 100, 0)])
    assert found["heavy", 3][:2] == (the_day(15), 10.0)


@pytest.mark.full
def test_without_demand_nothing_is_forecast(spark: SparkSession) -> None:
    assert _forecast(spark, []) == {}
