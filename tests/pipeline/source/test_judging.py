"""What is an event of ours, and what is not and why."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from osrdyne_pipeline import judging
from osrdyne_pipeline.schemas import RAW
from osrdyne_pipeline.small.engine import SmallEngine
from osrdyne_pipeline.spark.rows import enforced, of_arrow

NOW = 1_700_000_000_000
ALLOWANCE = 1000

#: What differs from a good event -> the reason for which it is refused, None for none.
CASES: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"key": ""}, None),
    ({"key": "é" * 127 + "x"}, None),
    ({"event": "dead-lettered", "duration_ms": 0}, None),
    ({"event": "replayed"}, None),
    ({"event_id": ""}, None),
    ({"time_ms": NOW + ALLOWANCE}, None),
    ({"time_ms": judging.EARLIEST_MS}, None),
    ({"event": "worker-ended", "outcome": "exit 1", "duration_ms": 200}, None),
    ({"event": "start-failed", "outcome": "no-start", "duration_ms": None}, None),
    ({"problem": "gap: 5 events"}, "gap"),
    ({"problem": "truncated_file: at 7"}, "truncated_file"),
    ({"problem": "unreadable_offset: (541, 'INTERNAL_ERROR')"}, "unreadable_offset"),
    ({"problem": "whatever else"}, "unreadable"),
    ({"problem": "invalid_key: not UTF-8", "key": None}, "invalid_key"),
    ({"event": None}, "no_event"),
    ({"event": ""}, "no_event"),
    ({"event": "exploded"}, "unknown_event"),
    ({"key": None}, "invalid_key"),
    ({"key": "é" * 128}, "invalid_key"),
    ({"key": "a\0b"}, "invalid_key"),
    ({"time_ms": None}, "no_time"),
    ({"time_ms": -1}, "implausible_time"),
    ({"time_ms": judging.EARLIEST_MS - 1}, "implausible_time"),
    ({"time_ms": 2**63 - 1}, "clock_skew"),
    ({"time_ms": NOW + ALLOWANCE + 1}, "clock_skew"),
    ({"duration_ms": -1}, "negative_duration"),
]


def by_spark(spark: SparkSession, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    raw = spark.createDataFrame([tuple(row.get(name) for name in RAW.names) for row in rows], of_arrow(RAW))
    judged = judging.judge(raw, now_ms=NOW, allowance_ms=ALLOWANCE)
    good, bad = (enforced("bronze", judging.accepted(judged)), enforced("rejects", judging.rejected(judged)))
    return [row.asDict() for rows_of_one in (good, bad) for row in rows_of_one.collect()]


def by_duckdb(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with SmallEngine.open("1g") as engine:
        engine.connection.register("given", pa.Table.from_pylist(rows, schema=RAW))
        return engine.rows(judging.judging(NOW, ALLOWANCE).format(raw="given"))


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_each_row_is_accepted_or_refused_with_its_reason(engine: str, request: pytest.FixtureRequest) -> None:
    good = {"source": "s", "key": "k", "event": "finished", "event_id": "id", "time_ms": NOW - 1, "duration_ms": 5}
    rows = [{**good, "offset": number, **case} for number, (case, _) in enumerate(CASES)]

    judged = by_duckdb(rows) if engine == "duckdb" else by_spark(request.getfixturevalue("spark"), rows)
    accepted = {row["offset"]: row for row in judged if not row.get("reason")}
    rejected = {row["offset"]: row for row in judged if row.get("reason")}

    assert {number: row["reason"] for number, row in rejected.items()} == {
        number: reason for number, (_, reason) in enumerate(CASES) if reason is not None
    }
    assert set(accepted) == set(range(len(CASES))) - set(rejected)
    assert {row["day"] for row in accepted.values()} == {dt.date(2023, 11, 14), dt.date(2010, 1, 1)}
    # An event without an id is distinguished from others by where it was.
    assert accepted[5]["event_id"] == "s:5"
    assert accepted[0]["event_id"] == "id"
    assert set(judging.REASONS) == {row["reason"] for row in rejected.values()}
