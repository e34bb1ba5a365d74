"""Messages of a stream as Arrow rows: no Spark session, no broker."""

from __future__ import annotations

from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema

from osrdyne_pipeline import schemas
from osrdyne_pipeline.source import columns
from osrdyne_pipeline.source.stream import StreamMessage


def row(key: str | bytes = "k", body: bytes = b"body", timestamp: int | None = None, **headers: Any) -> dict[str, Any]:
    """The row of one message, whose headers are named without `x-` and with `_`."""
    named = {"x-" + name.replace("_", "-"): value for name, value in headers.items()}
    batch = columns.record_batch("core-events", [StreamMessage(7, key, named, timestamp, body)])
    assert batch.schema == columns.RAW
    found: dict[str, Any] = batch.to_pylist()[0]
    return found


def test_arrow_has_the_schema_that_spark_expects() -> None:
    assert to_arrow_schema(schemas.RAW) == columns.RAW


def test_an_event_is_taken_apart() -> None:
    given: dict[str, Any] = {
        "event_id": "e",
        "event_time": 5,
        "worker_id": "w",
        "request_id": "r",
        "outcome": "ok",
        "duration_ms": 3,
    }
    assert row(event="finished", **given) == {
        "source": "core-events",
        "offset": 7,
        "key": "k",
        "event": "finished",
        "event_id": "e",
        "time_ms": 5,
        "worker_id": "w",
        "request_id": "r",
        "outcome": "ok",
        "duration_ms": 3,
        "problem": None,
        "raw": None,
    }


def test_text_may_come_as_bytes() -> None:
    found = row(event=b"started", worker_id=b"\xff")
    assert (found["event"], found["worker_id"]) == ("started", None)


def test_what_is_not_of_the_protocols_type_is_left_out() -> None:
    for value in ("5", 5.0, True, 2**63, [5]):
        found = row(event="started", event_time=value, duration_ms=value)
        assert (found["time_ms"], found["duration_ms"]) == (None, None), value
    assert row(event=["started"])["event"] is None


def test_an_event_without_time_has_that_of_its_message() -> None:
    assert row(event="started", timestamp=3)["time_ms"] == 3000
    assert row(event="started", timestamp=3, event_time=7)["time_ms"] == 7


def test_what_is_no_event_keeps_the_beginning_of_what_it_was() -> None:
    assert row(body=b"x" * 5000)["raw"] == b"x" * columns.RAW_BYTES


def test_a_key_that_is_not_utf8_is_a_problem_and_kept() -> None:
    found = row(key=b"\xff\xfe", event="started")
    assert (found["key"], found["raw"]) == (None, b"\xff\xfe")
    assert found["problem"].startswith("invalid_key: ")
