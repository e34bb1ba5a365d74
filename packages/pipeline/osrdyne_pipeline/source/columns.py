"""Arrow batches of the schema RAW, from messages of a stream: column by column, which is what makes it fast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from osrdyne_pipeline.schemas import RAW
from osrdyne_pipeline.source.consumer import StreamMessage
from osrdyne_protocol import headers as names
from osrdyne_protocol.event_batches import BATCH, UnreadableBatch, unpack

#: Bytes that are kept of a message that is not an event.
RAW_BYTES = 1024
#: Rows of one batch of RAW, about: a message can hold hundreds of events.
ROWS = 16_384

#: Column -> the header that it is.
TEXTS = {
    "event": names.X_EVENT,
    "event_id": names.X_EVENT_ID,
    "worker_id": names.X_WORKER_ID,
    "request_id": names.X_REQUEST_ID,
    "outcome": names.X_OUTCOME,
    "caller": names.X_USER,
    "error": names.X_ERROR,
    "detail": names.X_REASON,
    "output": names.X_OUTPUT,
    "log": names.X_LOG,
}
_BATCH = (BATCH, BATCH.encode())
_TEXT_OR_NONE = {str, type(None)}


def record_batches(source: str, messages: Iterable[StreamMessage]) -> Iterator[pa.RecordBatch]:
    """Give the events of messages as rows of RAW, of which a batch of events has several with one offset.

    A value of another type than the protocol's is left out, so that the judge finds it missing.
    """
    rows: list[StreamMessage] = []
    for message in messages:
        if message.headers.get(names.X_EVENT) not in _BATCH:
            rows.append(message)
        else:
            try:
                rows += _events(source, message)
            except UnreadableBatch as error:
                yield problem_batch(source, message.offset, f"unreadable: {error}", message.body)
        if len(rows) >= ROWS:
            yield _record_batch(source, rows)
            rows = []
    if rows:
        yield _record_batch(source, rows)


def _events(source: str, message: StreamMessage) -> Iterator[StreamMessage]:
    """The events of a batch, each as the message that it would have been by itself."""
    for number, headers in enumerate(unpack(message.headers, message.body)):
        if not names.text(headers.get(names.X_EVENT_ID)):
            headers = {**headers, names.X_EVENT_ID: f"{source}:{message.offset}.{number}"}
        yield message._replace(headers=dict(headers), body=b"")


def _record_batch(source: str, messages: Sequence[StreamMessage]) -> pa.RecordBatch:
    offsets, keys, headers, timestamps, bodies = zip(*messages, strict=True)
    columns: dict[str, Iterable[Any]] = {name: _texts(headers, header) for name, header in TEXTS.items()}
    columns["offset"] = offsets
    columns["key"] = texts = [names.text(key) for key in keys]
    columns["time_ms"] = times = [
        names.integer(header, names.X_EVENT_TIME) if seconds is None else _time(header, seconds)
        for header, seconds in zip(headers, timestamps, strict=True)
    ]
    columns["duration_ms"] = [names.integer(header, names.X_DURATION) for header in headers]
    columns["began"] = [names.integer(header, names.X_STARTED) for header in headers]
    columns["problem"] = problems = [
        _problem(text, time, seconds) for text, time, seconds in zip(texts, times, timestamps, strict=True)
    ]
    # The bytes of a message are kept only where it is not an event, or is a bad one.
    columns["raw"] = [
        None if event is not None and problem is None else _beginning(key, body)
        for event, problem, key, body in zip(columns["event"], problems, keys, bodies, strict=True)
    ]
    return batch_of(source, columns, len(messages))


def problem_batch(source: str, offset: int, problem: str, raw: bytes | None = None) -> pa.RecordBatch:
    """Return one row of RAW that stands for what could not be read; `problem` is `reason: words`."""
    raw = problem.encode() if raw is None else raw
    return batch_of(source, {"offset": [offset], "problem": [problem], "raw": [raw[:RAW_BYTES]]}, 1)


def batch_of(source: str, columns: dict[str, Any], rows: int) -> pa.RecordBatch:
    """Return columns as a batch of RAW; those that are missing are null."""
    arrays: list[pa.Array] = [pa.DictionaryArray.from_arrays([0] * rows, [source]).cast(pa.string())]
    for field in list(RAW)[1:]:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(rows, field.type))
        else:
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=RAW)


def _texts(headers: Sequence[dict[str, Any]], header: str) -> list[str | None]:
    values = [values.get(header) for values in headers]
    return values if set(map(type, values)) <= _TEXT_OR_NONE else [names.text(value) for value in values]


def _time(header: dict[str, Any], seconds: int) -> int | None:
    """The time of an event, or else that of its message: of 64 bits in seconds, which may have more in milliseconds."""
    own_ms = names.integer(header, names.X_EVENT_TIME)
    return names.integer({"": seconds * 1000}, "") if own_ms is None else own_ms


def _problem(key: str | None, time_ms: int | None, seconds: int | None) -> str | None:
    """What is wrong with a message before it is judged."""
    if key is None:
        return "invalid_key: the routing key is not UTF-8"
    if time_ms is None and seconds is not None:
        return f"implausible_time: the timestamp of the message is {seconds}"
    return None


def _beginning(key: str | bytes, body: bytes) -> bytes:
    return (key if isinstance(key, bytes) else body)[:RAW_BYTES]
