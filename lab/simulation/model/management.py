"""The management API of the model: the daemon's own `ManagementApi`, answered by a broker in this process.

What it says of messages is as late as on a real broker: a sample, taken now and then and shown later still.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from osrdyne.broker import management_api
from osrdyne.broker.management_api import ManagementApi
from osrdyne.errors import ManagementError

if TYPE_CHECKING:
    from simulation.model.broker import ModelBroker
    from simulation.model.queue import Queue

_WHERE = "http://the-model-broker:15672"


class ModelManagement(ManagementApi):
    """Reads a `ModelBroker`; every call takes a moment and fails as the real one does."""

    def __init__(self, broker: ModelBroker) -> None:
        super().__init__("http://daemon:secret@the-model-broker:15672", "/")
        self._broker = broker
        #: Called before each call with the first part of its path: "queues", "bindings", ... It may raise
        #: `ManagementError`.
        self.on_call: Callable[[str], None] | None = None
        #: Raise `ManagementError` for every call.
        self.away = False
        #: Answer nothing: each call raises after `timeout` seconds.
        self.hangs = False
        #: The list of queues has no counts, as of a broker that collects no statistics; a queue's own totals are there.
        self.uncounted = False
        self.timeout = 10.0

    async def _ask(self, path: str, params: Mapping[str, str] | None, method: str = "GET", body: object = None) -> Any:
        if method != "GET" or body is not None:
            raise ManagementError(f"the model answers no {method}")
        parts = _parts(path)
        if self.on_call is not None:
            self.on_call(parts[0])
        broker = self._broker
        await asyncio.sleep(broker.between(broker.timing.management))
        if self.hangs:
            await asyncio.sleep(self.timeout)
            raise ManagementError(f"no management API at {_WHERE}: timed out")
        if self.away or not broker.running:
            raise ManagementError(f"no management API at {_WHERE}: Connection refused; is the broker up?")
        return self._answer(parts, params or {})

    def _answer(self, parts: list[str], params: Mapping[str, str]) -> Any:
        match parts:
            case ["queues", _]:
                return self._queues(params)
            case ["queues", _, name]:
                return self._queue(self._found(name), params)
            case ["queues", "quorum", _, name, "status"]:
                return self._members(self._found(name))
            case ["queues", _, name, "bindings"]:
                return self._bindings_of(self._found(name))
            case ["health", *_]:
                if self._broker.in_alarm:
                    raise management_api._Alarm("memory")
                return {"status": "ok"}
            case ["users"]:
                return [{"name": name, "tags": []} for name in self._broker.permissions]
        return getattr(self, "_" + parts[-1 if parts[0] == "vhosts" else 0].replace("-", "_"))()

    def _found(self, name: str) -> Queue:
        queue = self._broker.queues.get(name)
        if queue is None:
            raise management_api._NotFound(f"{_WHERE}: not found")
        return queue

    def _queues(self, params: Mapping[str, str]) -> Any:
        pattern = re.compile(params.get("name", ""))
        found = [queue for name, queue in self._broker.queues.items() if pattern.search(name)]
        if "page" not in params:
            return [self._queue(queue, params) for queue in found]
        page, size = int(params["page"]), int(params["page_size"])
        items = [self._queue(queue, params) for queue in found[(page - 1) * size : page * size]]
        return {"items": items, "page_count": max(1, -(-len(found) // size))}

    def _queue(self, queue: Queue, params: Mapping[str, str]) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "name": queue.name,
            "type": queue.kind,
            "arguments": dict(queue.arguments),
            "state": "running",
        }
        if queue.lost:
            # Its own samples, where they are asked for, are those of an empty queue; otherwise nothing is known of it.
            own = ("messages_ready", "messages_unacknowledged", "messages") if "enable_queue_totals" in params else ()
            return shown | dict.fromkeys(own, 0)
        sample = queue.samples.shown(self._broker, queue)
        if sample is not None and not (self.uncounted and "enable_queue_totals" not in params):
            counts = ("messages_ready", "messages_unacknowledged", "messages", "consumers")
            shown |= dict(zip(counts, sample, strict=False))
            shown["message_stats"] = {"deliver_get": sample.delivered}
        return shown

    def _members(self, queue: Queue) -> list[dict[str, Any]]:
        """What the only member of a quorum queue says of itself."""
        if queue.kind != "quorum":
            raise ManagementError(f"{_WHERE}/api/queues/quorum answered 503: see the broker's log")
        # A leader begins its term with two entries of its own.
        term, last = (0, 0) if queue.lost else (1, 2 + queue.came)
        return [
            {
                "Node Name": "rabbit@model",
                "Raft State": "follower" if queue.lost else "leader",
                "Membership": "voter",
                "Last Log Index": last,
                "Last Written": -1 if queue.lost else last,
                "Last Applied": last,
                "Commit Index": last,
                "Snapshot Index": -1,
                "Term": term,
                "Machine Version": 5 if self._broker.version == "4.0" else 8,
            }
        ]

    def _bindings_of(self, queue: Queue) -> list[dict[str, Any]]:
        listed = [("", queue.name), *queue.bindings]
        return [_binding(exchange, queue.name, key) for exchange, key in listed]

    def _exchanges(self) -> list[dict[str, Any]]:
        exchanges = self._broker.routing.exchanges.values()
        return [
            {"name": exchange.name, "type": exchange.kind, "arguments": dict(exchange.arguments)}
            for exchange in exchanges
        ]

    def _bindings(self) -> list[dict[str, Any]]:
        return [
            _binding(exchange.name, queue, key)
            for exchange in self._broker.routing.exchanges.values()
            for key, queues in exchange.bindings.items()
            for queue in queues
        ]

    def _policies(self) -> list[dict[str, Any]]:
        return [
            {
                "name": policy.name,
                "pattern": policy.pattern,
                "apply-to": policy.apply_to,
                "definition": dict(policy.definition),
                "priority": policy.priority,
            }
            for policy in self._broker.policies.values()
        ]

    def _operator_policies(self) -> list[dict[str, Any]]:
        return []

    def _vhost_limits(self) -> list[dict[str, Any]]:
        return []

    def _permissions(self) -> list[dict[str, Any]]:
        return [
            {
                "user": permission.user,
                "configure": permission.configure,
                "write": permission.write,
                "read": permission.read,
            }
            for permission in self._broker.permissions.values()
        ]


@lru_cache(maxsize=4096)
def _parts(path: str) -> list[str]:
    return [unquote(word) for word in path.split("/")]


def _binding(exchange: str, queue: str, key: str) -> dict[str, Any]:
    return {"source": exchange, "destination": queue, "destination_type": "queue", "routing_key": key}
