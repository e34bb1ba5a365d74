"""Exchanges, bindings, and which queues a message goes to."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.model.queue import Queue

#: The pseudo queues of direct reply-to.
REPLY_TO = "amq.rabbitmq.reply-to"


def direct_address(serial: int, number: int, tag: str) -> str:
    """Return an address of direct reply-to in the form of RabbitMQ: an Erlang process, and a key."""
    node = b"reply@1"
    process = b"\x83Xv\0" + bytes([len(node)]) + node + struct.pack(">III", serial, number, 1)
    key = hashlib.sha256(tag.encode()).digest()[:16]
    return ".".join((REPLY_TO, *(base64.b64encode(part).decode() for part in (process, key))))


class Exchange:
    """A direct or fanout exchange."""

    __slots__ = ("alternate", "arguments", "bindings", "kind", "name")

    def __init__(self, name: str, kind: str, arguments: Mapping[str, Any]) -> None:
        if kind not in ("direct", "fanout"):
            raise NotImplementedError(f"the model has no exchanges of type {kind}")
        self.name = name
        self.kind = kind
        self.arguments = arguments
        #: name of the exchange that takes what this one cannot route
        self.alternate: str | None = None
        #: routing key -> queue name -> queue; both in the order of binding
        self.bindings: dict[str, dict[str, Queue]] = {}

    def route(self, routing_key: str | bytes) -> dict[str, Queue]:
        if self.kind == "fanout":
            return {name: queue for queues in self.bindings.values() for name, queue in queues.items()}
        if isinstance(routing_key, bytes):
            return {}
        return self.bindings.get(routing_key, {})


class Routing:
    """All exchanges, and the queues by name."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self.exchanges: dict[str, Exchange] = {}
        self._queues = queues

    def route(self, exchange: str, routing_key: str | bytes, headers: Mapping[str, Any] | None) -> list[Queue] | None:
        """Return the queues, each once; None: there is no such exchange."""
        if exchange and exchange not in self.exchanges:
            return None
        keys = [routing_key]
        if headers and ("CC" in headers or "BCC" in headers):
            keys += [value for name in ("CC", "BCC") for value in headers.get(name) or [] if isinstance(value, str)]
        found: dict[str, Queue] = {}
        tried: list[str] = []
        at: str | None = exchange
        while at is not None and at not in tried and not found:
            tried.append(at)
            for key in keys:
                found.update(self._routed(at, key))
            here = self.exchanges.get(at)
            at = None if here is None else here.alternate
        return list(found.values())

    def _routed(self, exchange: str, key: str | bytes) -> Mapping[str, Queue]:
        if exchange:
            here = self.exchanges.get(exchange)
            return {} if here is None else here.route(key)
        queue = self._queues.get(key) if isinstance(key, str) else None
        return {} if queue is None else {queue.name: queue}

    def bind(self, queue: Queue, exchange: str, routing_key: str) -> bool:
        """Bind; False: it was bound so already."""
        queues = self.exchanges[exchange].bindings.setdefault(routing_key, {})
        if queue.name in queues:
            return False
        queues[queue.name] = queue
        queue.bindings[exchange, routing_key] = None
        return True

    def unbind(self, queue: Queue, exchange: str, routing_key: str) -> bool:
        """Unbind; False: it was not bound so."""
        if queue.bindings.pop((exchange, routing_key), False) is False:
            return False
        bindings = self.exchanges[exchange].bindings
        queues = bindings[routing_key]
        del queues[queue.name]
        if not queues:
            del bindings[routing_key]
        return True

    def bindings_of(self, queue: str) -> list[tuple[str, str]]:
        """Return exchange and routing key of each binding of a queue."""
        found = self._queues.get(queue)
        return [] if found is None else list(found.bindings)

    def forget(self, queue: Queue) -> None:
        """A queue is gone, and its bindings with it."""
        for exchange, key in list(queue.bindings):
            self.unbind(queue, exchange, key)
