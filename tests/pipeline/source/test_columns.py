"""Messages of a stream as Arrow rows: no Spark session, no broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from osrdyne_pipeline.schemas import RAW
from osrdyne_pipeline.source import columns
from osrdyne_pipeline.source.consumer import StreamMessage


def row(key: str | bytes = "k", body: bytes = b"body", timestamp: int | None = None, **headers: Any) -> dict[str, Any]:
    """The row of one message, whose headers are named without `x-` and with `_`."""
    named = {"x-" + name.replace("_", "-"): value for name, value in headers.items()}
    [batch] = columns.record_batches("core-events", [StreamMessage(7, key, named, timestamp, body)])
    assert batch.schema == RAW
    found: dict[str, Any] = batch.to_pylist()[0]
    return found


def test_an_event_is_taken_apart() -> None:
    given: dict[str, Any] = {
        "event_id": "e",
        "event_time": 5,
        "worker_id": "w",
        "request_id": "r",
        "outcome": "ok",
        "duration_ms": 3,
        "osrdyne_user": "anna",
        "error": "KeyError",
        "reason": "why",
        "output": "a\nb",
        "log": "/var/w.log",
        "started": 1,
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
        "caller": "anna",
        "error": "KeyError",
        "detail": "why",
        "output": "a\nb",
        "log": "/var/w.log",
        "began": 1,
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


@pytest.mark.parametrize("seconds", [2**54, 2**63, 2**64 - 1])
def test_a_timestamp_that_no_column_holds_is_a_problem_of_its_row_alone(seconds: int) -> None:
    headers = {"x-event": "alive"}
    bad, good = (StreamMessage(offset, "k", headers, time, b"") for offset, time in ((7, seconds), (8, 3)))
    first, second = rows(bad, good)
    assert first["problem"] == f"implausible_time: the timestamp of the message is {seconds}"
    assert (first["time_ms"], second["time_ms"], second["problem"]) == (None, 3000, None)
    assert row(event="alive", timestamp=seconds, event_time=5)["time_ms"] == 5


def test_what_is_not_an_event_keeps_the_beginning_of_what_it_was() -> None:
    assert row(body=b"x" * 5000)["raw"] == b"x" * columns.RAW_BYTES


def test_a_key_that_is_not_utf8_is_a_problem_and_kept() -> None:
    found = row(key=b"\xff\xfe", event="started")
    assert (found["key"], found["raw"]) == (None, b"\xff\xfe")
    assert found["problem"].startswith("invalid_key: ")


def batch_of(*events: dict[str, Any], offset: int = 7, version: int = 1) -> StreamMessage:
    """A batch of events of one worker."""
    headers = {"x-event": "batch", "x-batch-version": version, "x-worker-id": "w"}
    return StreamMessage(offset, "k", headers, 3, json.dumps(events).encode())


def rows(*messages: StreamMessage) -> list[dict[str, Any]]:
    return [event for batch in columns.record_batches("core-events", messages) for event in batch.to_pylist()]


def test_each_event_of_a_batch_is_a_row() -> None:
    events = [
        {"x-event": "request-received", "x-event-id": "a", "x-event-time": 5, "x-request-id": "r"},
        {"x-event": "finished", "x-event-id": "b", "x-event-time": 9, "x-request-id": "r", "x-duration-ms": 4},
    ]
    single = [
        row(event="request-received", event_id="a", event_time=5, request_id="r", worker_id="w"),
        row(event="finished", event_id="b", event_time=9, request_id="r", duration_ms=4, worker_id="w"),
    ]
    assert rows(batch_of(*events)) == single


def test_events_of_a_batch_without_an_id_of_their_own_are_distinguished() -> None:
    found = rows(batch_of({"x-event": "alive"}, {"x-event": "alive", "x-event-id": 17}))
    assert [event["event_id"] for event in found] == ["core-events:7.0", "core-events:7.1"]
    assert [event["time_ms"] for event in found] == [3000, 3000]


def test_a_batch_that_cannot_be_read_is_one_row_with_the_reason() -> None:
    [found] = rows(batch_of({"x-event": "alive"}, version=2))
    assert found["problem"] == "unreadable: a batch of events has version 2; this program reads version 1"
    assert (found["event"], found["offset"], found["raw"]) == (None, 7, b'[{"x-event": "alive"}]')


def test_messages_of_many_events_become_several_batches_of_rows() -> None:
    messages = [batch_of(*[{"x-event": "alive"}] * 400, offset=number) for number in range(100)]
    batches = list(columns.record_batches("core-events", messages))
    assert sum(batch.num_rows for batch in batches) == 40_000
    assert max(batch.num_rows for batch in batches) < 2 * columns.ROWS
