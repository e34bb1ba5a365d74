"""A few events of two keys, whose tables can be counted by hand: a cold start, warm requests, a failure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pika

from osrdyne_protocol import headers
from testbed.pool import Pool

#: 2013-01-01, midnight in UTC.
BEGIN = 1_356_998_400_000
EVENTS = 17
REQUESTS = 4
COLD = 2
#: Columns of an event -> the headers in which it travels.
HEADERS = {
    "event": headers.X_EVENT,
    "event_id": headers.X_EVENT_ID,
    "time_ms": headers.X_EVENT_TIME,
    "worker_id": headers.X_WORKER_ID,
    "request_id": headers.X_REQUEST_ID,
    "outcome": headers.X_OUTCOME,
    "duration_ms": headers.X_DURATION,
}


def rows() -> list[dict[str, Any]]:
    """Return the events, in the order in which they were sent."""
    listed: list[dict[str, Any]] = []

    def add(at: int, key: str, event: str, **more: Any) -> None:
        listed.append({"event_id": f"{len(listed):032x}", "time_ms": BEGIN + at, "key": key, "event": event, **more})

    for key, at, worker in (("LAX", 0, "w1"), ("SFO", 60_000, "w2")):
        add(at, key, "orphan-seen", request_id=f"{key}-1")
        add(at + 10, key, "queue-ready")
        add(at + 20, key, "group-started")
        add(at + 30, key, "forwarded", request_id=f"{key}-1")
        add(at + 2030, key, "started", worker_id=worker)
        add(at + 2040, key, "request-received", worker_id=worker, request_id=f"{key}-1")
    add(2140, "LAX", "finished", worker_id="w1", request_id="LAX-1", outcome="ok", duration_ms=100)
    add(62_140, "SFO", "finished", worker_id="w2", request_id="SFO-1", outcome="error", duration_ms=100)
    for number, at in ((2, 5000), (3, 9000)):
        add(at, "LAX", "request-received", worker_id="w1", request_id=f"LAX-{number}")
    add(5050, "LAX", "finished", worker_id="w1", request_id="LAX-2", outcome="ok", duration_ms=50)
    return listed


def write(file: Path) -> None:
    """Write the events as JSON lines."""
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))


def record(pool: Pool, events: Iterable[Mapping[str, Any]]) -> None:
    """Put events into the stream of a pool."""
    with pika.BlockingConnection(pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for row in events:
            given = {name: row[column] for column, name in HEADERS.items() if column in row}
            properties = pika.BasicProperties(headers=given)
            channel.basic_publish(pool.names.activity_exchange, row["key"], b"", properties, mandatory=True)
