"""Fixtures of the source's tests: a pool on a real broker, and events in its stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
import pyarrow.parquet as pq
import pytest

from osrdyne_pipeline.lake import Lake
from osrdyne_pipeline.source import stream
from osrdyne_pipeline.source.consumer import StreamMessage
from osrdyne_pipeline.source.stream import UnreadMessage
from osrdyne_protocol import events, headers
from testbed import amqp_1_0
from testbed.pool import Pool
from testbed.waiting import until
from tests.conftest import Vhost

#: Values of AMQP 1.0: an identity, for which AMQP 0-9-1 has no type, and a time for which Python has no year.
UUID, FAR = b"\x98" + bytes(16), b"\x83" + (2**60).to_bytes(8)
#: Time of the first event that tests send, 2026-01-01; each is a second after the one before.
FIRST_MS = 1_767_225_600_000


def offsets_of(found: Iterable[list[StreamMessage] | UnreadMessage]) -> tuple[list[int], list[int]]:
    """Offsets of what was read of a stream, and of what could not be."""
    listed = list(found)
    good = [message.offset for part in listed if not isinstance(part, UnreadMessage) for message in part]
    return good, [part.offset for part in listed if isinstance(part, UnreadMessage)]


def rows_of(lake: Lake, name: str) -> list[dict[str, Any]]:
    """The rows of a table, as its files have them."""
    found: list[dict[str, Any]] = []
    for path in sorted(lake.path(name).rglob("*.parquet")):
        with path.open("rb") as file:
            found += pq.ParquetFile(file).read().to_pylist()
    return found


@dataclass
class Events:
    """A pool and what is sent to its stream by its worker user; read with the address in `uri_file`."""

    pool: Pool
    uri_file: Path
    sent: int = 0

    @property
    def stream(self) -> str:
        return self.pool.names.events_stream

    @property
    def monitor_uri(self) -> str:
        return self.pool.uri(self.pool.users.monitor)

    def headers(self, number: int) -> dict[str, Any]:
        """Headers of one good event."""
        when = FIRST_MS + 1000 * number
        return {
            **events.headers(events.REQUEST_RECEIVED, now_ms=when, worker_id="w-1", request_id=f"r-{number}"),
            "x-event-id": f"id-{number}",
        }

    def send(self, count: int) -> None:
        """Send so many good events, and wait until the stream has them."""
        self.publish([(f"k{number % 5}", self.headers(number)) for number in range(self.sent, self.sent + count)])

    def publish(self, messages: list[tuple[str | bytes, dict[str, Any]]], body: bytes = b"") -> None:
        """Send messages of these keys and headers, and wait until the stream has them."""
        before = self.end()
        connection = pika.BlockingConnection(pika.URLParameters(self.pool.uri(self.pool.users.worker)))
        channel = connection.channel()
        for key, given in messages:
            properties = pika.BasicProperties(headers=given)
            channel.basic_publish(self.pool.names.activity_exchange, key, body, properties)
        connection.close()
        self.sent += len(messages)
        until(lambda: self.end() >= before + len(messages), what="all events in the stream")

    def send_unreadable(self, *values: bytes) -> None:
        """Send events with such a value of AMQP 1.0 among their properties."""
        uri = self.pool.uri(self.pool.users.worker)
        with amqp_1_0.Sender.to_exchange(uri, self.pool.names.activity_exchange, "k") as sender:
            for value in values:
                properties = {headers.X_EVENT: amqp_1_0.text(events.ALIVE), "x-value": value}
                sender.send(amqp_1_0.message(application=properties))
        # The broker accepted them, so the stream has them.
        self.sent += len(values)

    def end(self) -> int:
        held = stream.bounds(self.monitor_uri, self.stream)
        return 0 if held is None else held.end

    def make_again(self, **arguments: int) -> None:
        """Delete the stream and declare it again, with arguments of its own in place of the pool's policy."""
        api, vhost, names = self.pool.broker.management, self.pool.vhost, self.pool.names
        api.delete("policies", vhost, names.events_stream)
        api.delete("queues", vhost, self.stream)
        body = {"durable": True, "arguments": {"x-queue-type": "stream", **arguments}}
        api.put("queues", vhost, self.stream, body=body)
        api.call("POST", "bindings", vhost, "e", names.activity_exchange, "q", self.stream, body={"routing_key": ""})
        self.sent = 0


@pytest.fixture
def pool_events(vhost: Vhost, tmp_path: Path) -> Iterator[Events]:
    """A pool `core` whose stream is empty."""
    pool = Pool.on(vhost.broker, vhost.name)
    uri_file = tmp_path / "events.uri"
    uri_file.touch(mode=0o600)
    uri_file.write_text(pool.uri(pool.users.monitor))
    yield Events(pool, uri_file)
    pool.remove_users()


@pytest.fixture
def make_lines(tmp_path: Path) -> Callable[..., Path]:
    """Writes files of JSON lines."""

    def make(name: str, *lines: str) -> Path:
        path = tmp_path / "files" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(line + "\n" for line in lines))
        return path

    return make
