"""Messages: a delivery, and the broker's counts of a queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pika import BasicProperties as Properties

from osrdyne_amqp.codec import table

__all__ = ["Message", "Properties", "QueueInfo"]

#: Bytes that a value of a header takes in memory beside its own, with its name and its place: measured, at most.
_VALUE_BYTES = 200


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery. `properties` is never None; what its headers hold is described in `table`."""

    body: bytes
    exchange: str
    routing_key: str | bytes  #: `bytes` when it is not UTF-8
    properties: Properties
    delivery_tag: int
    redelivered: bool
    #: why the content header could not be read in full; `properties` has what could, and never the headers
    malformed: str | None = None
    #: Bytes of the properties on the wire; 0 where they were not kept.
    properties_size: int = field(default=0, compare=False)

    @property
    def size(self) -> int:
        """Bytes that this message takes in memory, about: its body, its properties, and the objects made of these."""
        return len(self.body) + self.properties_size + _VALUE_BYTES * table.count(self.properties.headers or {})


class QueueInfo(NamedTuple):
    """What the broker said when it declared a queue: unacknowledged messages are not part of `ready`."""

    name: str
    ready: int
    consumers: int
