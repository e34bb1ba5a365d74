"""Entries of the poison inventory: what one says, and what of it travels on when it is sent again. Pure.

An entry is a message of `{pool}-poison` or `{pool}-unanswered` as the daemon wrote it. A message from another sender is
an entry too, with an identity made from its contents.
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

#: Headers that are dropped when an entry is sent again: those that the broker and the daemon added.
_LEFT_BEHIND = (
    headers.BROKER_ADDED
    | headers.POISON
    | {headers.X_HOPS, headers.X_FIRST_SEEN, headers.X_USER, headers.X_LET_IN}
    | {headers.X_ANSWERED, headers.X_PUBLISH_ID, headers.CC, headers.BCC}
)


#: Reason of an entry whose headers cannot be read.
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, without its body. What the message does not say is None."""

    #: Stable: the same at each look, also after restarts.
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
    """Which entries a command is about: those with these ids, those of these keys, or all."""

    ids: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    everything: bool = False

    def __contains__(self, entry: Entry) -> bool:
        return self.everything or entry.id in self.ids or (entry.key is not None and entry.key in self.keys)

    @classmethod
    def of(cls, ids: Collection[str]) -> Selection:
        return cls(ids=frozenset(ids))


def read(message: Message) -> Entry:
    """Return what a message of the inventory says. Never fails: what cannot be read is None."""
    given = message.properties.headers or {}
    reason, key = (headers.text(given.get(name)) for name in (headers.X_POISON_REASON, headers.X_POISON_KEY))
    return Entry(
        id=headers.text(given.get(headers.X_POISON_ID)) or _made_up(message, given),
        reason=reason if message.malformed is None else UNREADABLE,
        detail=message.malformed or headers.text(given.get(headers.X_POISON_DETAIL)),
        key=key,
        queue=headers.text(given.get(headers.X_POISON_QUEUE)),
        time_ms=headers.integer(given, headers.X_POISON_TIME),
        deliveries=headers.integer(given, headers.X_POISON_DELIVERIES),
        attempts=_attempts(given.get(headers.X_POISON_ATTEMPTS)),
        correlation_id=headers.text(message.properties.correlation_id),
        size=len(message.body),
    )


def replayed(message: Message, *, keep_deadline: bool) -> Properties:
    """Return the properties with which an entry is sent to its workers again: as new, and without a time to live.

    Its deadline has most likely passed, and it would be answered `expired` at once; `keep_deadline` leaves it on.
    """
    left_behind = _LEFT_BEHIND if keep_deadline else _LEFT_BEHIND | {headers.X_DEADLINE}
    result = copy.copy(message.properties)
    given = {name: value for name, value in (result.headers or {}).items() if name not in left_behind}
    result.headers = given or None
    result.user_id = None
    result.expiration = None
    result.delivery_mode = 2
    return result


def unplayable(entry: Entry, message: Message) -> str | None:
    """Say why an entry cannot be sent again; None when it can."""
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
    for one in value if isinstance(value, list) else ():
        if isinstance(one, dict):
            worker, time_ms = headers.text(one.get(headers.X_WORKER_ID)), headers.integer(one, headers.X_EVENT_TIME)
            if worker is not None and time_ms is not None:
                found.append(PastDelivery(worker, time_ms))
    return tuple(found)


def _made_up(message: Message, given: Mapping[str, Any]) -> str:
    """Return an identity for an entry that carries none: of all of it that no look changes."""
    stable = {name: value for name, value in given.items() if name not in headers.BROKER_ADDED}
    parts = (
        message.properties.correlation_id,
        message.routing_key,
        sorted(stable.items(), key=lambda one: str(one[0])),
    )
    return hashlib.sha256(repr(parts).encode() + message.body).hexdigest()[:12]
