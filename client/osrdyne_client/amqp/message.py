"""What the broker hands out: deliveries, and what it says about a queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pika import BasicProperties as Properties

__all__ = ["Message", "Properties", "QueueInfo"]


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery. `properties` is never None; what its headers hold is described in `table`."""

    body: bytes
    exchange: str
    routing_key: str | bytes  #: `bytes` when it is not UTF-8
    properties: Properties
    delivery_tag: int
    redelivered: bool
    #: the raw content header when it could not be read; `properties` is empty then
    malformed: bytes | None = None


class QueueInfo(NamedTuple):
    """What the broker said when it declared a queue: unacknowledged messages are not part of `ready`."""

    name: str
    ready: int
    consumers: int
