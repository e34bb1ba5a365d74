"""A message as the broker keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Message:
    """One publish. The same object lies in every queue that it was routed to; it never changes.

    A dead letter is a message of its own, whose `origin` is the message that died.
    """

    __slots__ = ("body", "exchange", "failures", "id", "origin", "properties", "publisher", "routing_key", "sent_at")

    def __init__(
        self,
        number: int,
        exchange: str,
        routing_key: str | bytes,
        properties: Mapping[str, Any],
        body: bytes,
        publisher: str,
        origin: Message | None = None,
        failures: int = 0,
        sent_at: float | None = None,
    ) -> None:
        #: 1, 2, 3, ... in the order of arrival at the broker
        self.id = number
        self.exchange = exchange
        self.routing_key = routing_key
        #: all fourteen AMQP properties by name, None where absent; `headers` among them
        self.properties = properties
        self.body = body
        #: name of the connection that published it; empty: the broker (a dead letter)
        self.publisher = publisher
        self.origin = origin
        #: failed deliveries before it died: a dead letter goes on counting from there
        self.failures = failures
        #: when its publisher handed it to its connection; None of a dead letter
        self.sent_at = sent_at

    @property
    def correlation_id(self) -> str | None:
        found: str | None = self.properties["correlation_id"]
        return found

    @property
    def headers(self) -> Mapping[str, Any]:
        return self.properties["headers"] or {}

    def __repr__(self) -> str:
        return f"#{self.id}({self.correlation_id or ''} {self.exchange!r} {self.routing_key!r})"
