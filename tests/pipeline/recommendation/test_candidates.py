"""The trade-off curve of every key, out of Spark: by hand, and beside a replay of each candidate."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from osrdyne_pipeline.recommendation.calls import DAY, WEEK, collect
from osrdyne_pipeline.recommendation.candidates import keep_alive
from osrdyne_pipeline.recommendation.choices.options import DELAYS, STOP_SECONDS
from osrdyne_pipeline.schemas import KEEP_ALIVE
from osrdyne_pipeline.spark.rows import SparkTables
from tests.pipeline.recommendation.histories import MONDAY, by_chance

REQUEST = "key string, request_id string, number int, seen_ms long, received_ms long, done_ms long"


def requests(spark: SparkSession, history: Mapping[str, list[tuple[float, float]]]) -> DataFrame:
    """The columns of REQUESTS that are looked at."""
    rows = [
        (key, f"r{number}", 0, int((MONDAY + begin) * 1000), None, int((MONDAY + end) * 1000))
        for key, asked in history.items()
        for number, (begin, end) in enumerate(asked)
    ]
    return spark.createDataFrame(rows, REQUEST)


def classes(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("a", "steady"), ("k0", "heavy")], "key string, class string")


def test_one_keys_curve_by_hand(spark: SparkSession) -> None:
    # Given requests of 60 s each, 585 s, 586 s and 3,000 s apart; the last moment of the history is the last one's end
    begins = [0, 645, 1291, 4351]
    history = requests(spark, {"a": [(begin, begin + 60) for begin in begins]})
    # When groups are kept for 10 minutes, unbound for the last 15 s of them, or for an hour
    found = keep_alive(history, classes(spark), [600, 3600]).orderBy("delay_ms").collect()
    # Then 585 s are just too long for a bound queue, not for the group
    assert [row.asDict() for row in found] == [
        {"key": "a", "class": "steady", "delay_ms": delay, "requests": 4, "cold": cold, "up_ms": up, "idle_ms": idle}
        for delay, cold, up, idle in ((600_000, 4, 2_011_000, 1_771_000), (3_600_000, 1, 4_411_000, 4_171_000))
    ]
    assert keep_alive(history, classes(spark)).schema.names == KEEP_ALIVE.names


def test_every_candidate_equals_a_replay_of_it(spark: SparkSession) -> None:
    history = by_chance(5, keys=3, days=10)
    found = {
        (row["key"], row["delay_ms"]): row for row in keep_alive(requests(spark, history), classes(spark)).collect()
    }
    last = max(end for asked in history.values() for _, end in asked)
    assert len(found) == 3 * len(DELAYS)
    for key, asked in history.items():
        for delay in DELAYS.tolist():
            row = found[key, int(delay * 1000)]
            cold, up, idle = _replayed(asked, delay, last)
            assert (row["requests"], row["cold"], row["up_ms"], row["idle_ms"]) == (len(asked), cold, up, idle)


def _replayed(asked: list[tuple[float, float]], delay: float, last: float) -> tuple[int, int, int]:
    """Go from request to request."""
    cold, busy, idle, active = 0, 0.0, 0.0, None
    for begin, end in asked:
        if active is None or begin - active >= delay - STOP_SECONDS:
            cold += 1
        if active is not None:
            idle += min(max(begin - active, 0.0), delay)
        busy += max(0.0, end - max(begin, active if active is not None else begin))
        active = end if active is None else max(active, end)
    assert active is not None
    idle += min(last - active, delay)
    return cold, int((busy + idle) * 1000), int(idle * 1000)


def shown(spark: SparkSession, history: Mapping[str, list[tuple[float, float]]]) -> SparkTables:
    requests(spark, history).createOrReplaceTempView("requests")
    return SparkTables(spark)


def test_calls_come_out_of_spark_in_order_and_merged_by_the_minute(spark: SparkSession) -> None:
    history = {"b": [(0.0, 100.0), (10.0, 20.0), (159.0, 160.0), (220.0, 221.0)], "a": [(5.0, 6.0), (3 * DAY, 3 * DAY)]}
    found = collect(shown(spark, history))
    keys = [found.keys[place] for place in found.key]
    rows = sorted(
        zip(keys, (found.begin - MONDAY).tolist(), (found.end - MONDAY).tolist(), found.requests.tolist(), strict=True)
    )
    assert rows == [("a", 5, 6, 1), ("a", 3 * DAY, 3 * DAY, 1), ("b", 0, 160, 3), ("b", 220, 221, 1)]
    assert not found.shortened


def test_a_history_too_long_for_memory_loses_its_oldest_weeks(spark: SparkSession) -> None:
    history = {"a": [(at, at) for week in range(4) for at in (week * WEEK + 4.0 * DAY, week * WEEK + 5.0 * DAY)]}
    found = collect(shown(spark, history), most=5)
    assert found.shortened
    assert (found.begin - MONDAY).tolist() == [begin for begin, _ in history["a"][4:]]
