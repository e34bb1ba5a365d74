"""Entries of the poison inventory: reads them, and decides which of their properties are sent again. Pure.

An entry is a message of `{pool}-poison` or `{pool}-unanswered` as the daemon wrote it. A message from another sender is
an entry too, with an id made from its contents.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from osrdyne.state.delivery_history import PastDelivery
from osrdyne_amqp import Message, Properties
from osrdyne_protocol import headers, keys
from osrdyne_protocol.errors import InvalidKey

#: Headers that are dropped when an entry is sent again: those that the broker and the daemon added, and when its client
#: published it.
_DROPPED = (
    headers.BROKER_ADDED
    | headers.POISON
    | {headers.X_HOPS, headers.X_FIRST_SEEN, headers.X_USER, headers.X_LET_IN}
    | {headers.X_ANSWERED, headers.X_DELIVERED, headers.X_PUBLISH_ID, headers.X_PUBLISH_TIME, headers.CC, headers.BCC}
)


#: Reason of an entry whose headers cannot be read.
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, without its body. A field is None if the message does not say it."""

    #: The same each time that the entry is read, also after restarts.
    id: str
    reason: str | None
    detail: str | None
    key: str | None
    queue: str | None
    #: When it was kept, in milliseconds since the Unix epoch.
    time_ms: int | None
    #: How often it was handed to workers.
    deliveries: int | None
    attempts: tuple[PastDelivery, ...]
    correlation_id: str | None
    #: Bytes of the body.
    size: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The entries that a command is about: those with these ids, those of these keys, or all."""

    ids: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    everything: bool = False

    def __contains__(self, entry: Entry) -> bool:
        return self.everything or entry.id in self.ids or (entry.key is not None and entry.key in self.keys)

    @classmethod
    def of(cls, ids: Collection[str]) -> Selection:
        return cls(ids=frozenset(ids))


def read(message: Message) -> Entry:
    """Read a message of the inventory. Never fails: a field that cannot be read is None."""
    found = message.properties.headers or {}
    reason, key = (headers.text(found.get(name)) for name in (headers.X_POISON_REASON, headers.X_POISON_KEY))
    return Entry(
        id=headers.text(found.get(headers.X_POISON_ID)) or _derived_id(message, found),
        reason=reason if message.malformed is None else UNREADABLE,
        detail=message.malformed or headers.text(found.get(headers.X_POISON_DETAIL)),
        key=key,
        queue=headers.text(found.get(headers.X_POISON_QUEUE)),
        time_ms=headers.integer(found, headers.X_POISON_TIME),
        deliveries=headers.integer(found, headers.X_POISON_DELIVERIES),
        attempts=_attempts(found.get(headers.X_POISON_ATTEMPTS)),
        correlation_id=headers.text(message.properties.correlation_id),
        size=len(message.body),
    )


def replayed(message: Message, *, keep_deadline: bool) -> Properties:
    """Return the properties of an entry that is sent to its workers again: as a new request, without a time to live.

    Its deadline has most likely passed, and it would be answered `expired` at once; `keep_deadline` leaves it on.
    """
    dropped = _DROPPED if keep_deadline else _DROPPED | {headers.X_DEADLINE}
    result = copy.copy(message.properties)
    kept = {name: value for name, value in (result.headers or {}).items() if name not in dropped}
    result.headers = kept or None
    result.user_id = None
    result.expiration = None
    result.delivery_mode = 2
    return result


def unplayable(entry: Entry, message: Message) -> str | None:
    """Return why an entry cannot be sent again; None when it can."""
    if message.malformed is not None:
        return message.malformed
    if entry.key is None:
        return "its key is not known"
    try:
        keys.decode(entry.key)
    except InvalidKey as error:
        return str(error)
    return None


def _attempts(value: object) -> tuple[PastDelivery, ...]:
    found = []
    for attempt in value if isinstance(value, list) else ():
        if isinstance(attempt, dict):
            worker = headers.text(attempt.get(headers.X_WORKER_ID))
            time_ms = headers.integer(attempt, headers.X_EVENT_TIME)
            if worker is not None and time_ms is not None:
                found.append(PastDelivery(worker, time_ms))
    return tuple(found)


def _derived_id(message: Message, found: Mapping[str, Any]) -> str:
    """Return an id for an entry without one, made from all its parts that do not change when it is read."""
    stable = {name: value for name, value in found.items() if name not in headers.BROKER_ADDED}
    parts = (
        message.properties.correlation_id,
        message.routing_key,
        sorted(stable.items(), key=lambda header: str(header[0])),
    )
    return hashlib.sha256(repr(parts).encode() + message.body).hexdigest()[:12]
