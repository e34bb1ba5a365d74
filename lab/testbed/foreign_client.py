"""A client in plain pika, with direct reply-to: one that is not ours."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any

import pika

from osrdyne_protocol.names import reply_queue
from testbed.waiting import PATIENCE_SECONDS

DIRECT = "amq.rabbitmq.reply-to"


@dataclass(frozen=True)
class Answer:
    """One reply as it came."""

    status: str | None
    body: bytes
    headers: dict[str, Any]
    correlation_id: str | None


class ForeignClient:
    """One connection. Requests get running numbers as correlation ids; replies are kept by them."""

    def __init__(self, uri: str, exchange: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(uri))
        self._channel = self._connection.channel()
        self._channel.basic_consume(DIRECT, self._on_reply, auto_ack=True)
        self._numbers = itertools.count(1)
        self._exchange = exchange
        self.answers: dict[str | None, list[Answer]] = {}

    def _on_reply(self, _: Any, __: Any, properties: Any, body: bytes) -> None:
        given = dict(properties.headers or {})
        status = given.get("x-status")
        text = status.decode() if isinstance(status, bytes) else status
        answer = Answer(text, body, given, properties.correlation_id)
        self.answers.setdefault(properties.correlation_id, []).append(answer)

    def send(self, key: str | bytes, body: bytes = b"", **properties: Any) -> str:
        """Publish one request, and return its correlation id."""
        values: dict[str, Any] = {"correlation_id": str(next(self._numbers)), "reply_to": DIRECT, **properties}
        routing_key: Any = key
        self._channel.basic_publish(self._exchange, routing_key, body, pika.BasicProperties(**values), mandatory=True)
        return str(values["correlation_id"])

    def reply_queue(self, user: str) -> str:
        """Make a reply queue of its own, for a request that another connection sends, and return its name."""
        name = reply_queue(user)
        self._channel.queue_declare(name, durable=True, arguments={"x-queue-type": "classic", "x-expires": 600_000})
        self._channel.basic_consume(name, self._on_reply, auto_ack=True)
        return name

    def poll(self) -> None:
        """Take in what has arrived."""
        self._connection.process_data_events(0)

    def wait(self, *ids: str, timeout: float = PATIENCE_SECONDS) -> list[Answer]:
        """Wait for one answer to each request, and return the first of each."""
        deadline = time.monotonic() + timeout
        while any(request_id not in self.answers for request_id in ids):
            missing = [request_id for request_id in ids if request_id not in self.answers]
            assert time.monotonic() < deadline, f"no answer to {len(missing)} of {len(ids)}: {missing[:10]}"
            self._connection.process_data_events(0.05)
        return [self.answers[request_id][0] for request_id in ids]

    def ask(
        self, key: str | bytes, body: bytes = b"", *, timeout: float = PATIENCE_SECONDS, **properties: Any
    ) -> Answer:
        """Publish one request and return its answer."""
        return self.wait(self.send(key, body, **properties), timeout=timeout)[0]

    def close(self) -> None:
        if self._connection.is_open:
            self._connection.close()
