"""What is an event of ours, and what is not and why."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

from osrdyne_pipeline import judging
from osrdyne_pipeline.schemas import RAW
from osrdyne_pipeline.small.engine import SmallEngine

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


def judge(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with SmallEngine.open("1g") as engine:
        engine.connection.register("given", pa.Table.from_pylist(rows, schema=RAW))
        return engine.rows(judging.judging(NOW + ALLOWANCE))


def test_each_row_is_accepted_or_refused_with_its_reason() -> None:
    good = {"source": "s", "key": "k", "event": "finished", "event_id": "id", "time_ms": NOW - 1, "duration_ms": 5}
    rows = [{**good, "offset": number, **case} for number, (case, _) in enumerate(CASES)]

    judged = judge(rows)
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
