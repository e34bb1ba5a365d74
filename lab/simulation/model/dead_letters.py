"""Dead letters on their way from their queue to where its dead-letter exchange leads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from osrdyne_amqp.codec.table import SmallInt64
from simulation.model import history
from simulation.model.message import Message

if TYPE_CHECKING:
    from simulation.model.contents import Contents
    from simulation.model.entries import Entry
    from simulation.model.objects import Objects


class DeadLetters:
    """Carries the dead letters of all queues; each belongs to its queue until a target has taken it."""

    def __init__(self, broker: Objects) -> None:
        self._broker = broker

    def begin(self, queue: Contents, entry: Entry, reason: str) -> None:
        """A message died in `queue`."""
        broker = self._broker
        at = broker.now
        if queue.rules.at_least_once:
            at += broker.between(broker.timing.dead_letter)
        # Of one queue, one after the other.
        queue.last_letter = at = max(at, queue.last_letter + 1e-7)
        broker.loop.call_at(at, self._publish, queue, entry, reason)

    def resume(self, queue: Contents) -> None:
        """The broker is back."""
        for entry, reason in queue.dead_lettering.items():
            self.begin(queue, entry, reason)

    def _publish(self, queue: Contents, entry: Entry, reason: str) -> None:
        broker = self._broker
        if queue.deleted or entry not in queue.dead_lettering or not broker.running:
            return
        rules = queue.rules
        exchange = rules.dead_letter_exchange
        if exchange is None:  # the policy went meanwhile
            self._drop(queue, entry, reason)
            return
        died = entry.message
        routing_key = died.routing_key if rules.dead_letter_routing_key is None else rules.dead_letter_routing_key
        properties = {
            **died.properties,
            "expiration": None,
            "headers": _headers(died, queue.name, reason, broker.wall()),
        }
        letter = Message(broker.next_number(), exchange, routing_key, properties, died.body, "", died, entry.failures)
        targets = broker.routing.route(exchange, routing_key, properties["headers"]) or []
        taken = [target.enqueue(letter) for target in targets]
        again = broker.confirming.letters_again
        if taken and all(taken) and not (again and rules.at_least_once and broker.rng.random() < again):
            queue.sampled()
            del queue.dead_lettering[entry]
        elif rules.at_least_once:
            broker.loop.call_later(broker.timing.dead_letter_retry, self._publish, queue, entry, reason)
        else:
            self._drop(queue, entry, reason)

    def _drop(self, queue: Contents, entry: Entry, reason: str) -> None:
        queue.sampled()
        del queue.dead_lettering[entry]
        self._broker.record(history.DROPPED, place=queue.name, message=entry.message, detail=reason)


def _headers(died: Message, queue: str, reason: str, wall: float) -> dict[str, Any]:
    """The headers of a dead letter (RabbitMQ documentation, "Dead Letter Exchanges")."""
    headers = dict(died.headers)
    # What a client sent under this name is not read; what a broker wrote is of a letter (its origin is known).
    deaths: list[Mapping[str, Any]] = list(headers.get("x-death") or []) if died.origin is not None else []
    death: dict[str, Any] = {
        "count": SmallInt64(1),
        "reason": reason,
        "queue": queue,
        "time": datetime.fromtimestamp(int(wall), UTC),
        "exchange": died.exchange,
        "routing-keys": [died.routing_key, *(headers.get("CC") or [])],
    }
    if died.properties["expiration"] is not None:
        death["original-expiration"] = died.properties["expiration"]
    for entry in deaths:
        if entry["queue"] == queue and entry["reason"] == reason:
            death = {**entry, "count": SmallInt64(entry["count"] + 1)}
            deaths.remove(entry)
            break
    headers["x-death"] = [death, *deaths]
    for name, value in (("exchange", died.exchange), ("queue", queue), ("reason", reason)):
        headers[f"x-last-death-{name}"] = value
        if not deaths and death["count"] == 1:
            headers[f"x-first-death-{name}"] = value
    return headers
