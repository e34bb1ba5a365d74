"""Activity events as messages: one event in the headers of a message, or several in its body. Pure.

A batch has the headers `x-event: batch` and `x-batch-version`, and a JSON array as its body. Each element is an object
with the headers of one event, oldest first. What all events of a batch share may stand in the message's own headers
(`x-worker-id`). docs/reference/protocol-workers.md#batches-of-events describes the form; decision 0022 says why it is
JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from osrdyne_protocol import foreign_json
from osrdyne_protocol import headers as names
from osrdyne_protocol.errors import ProtocolError

#: `x-event` of a message that holds several events.
BATCH = "batch"
#: `x-batch-version` of the form that this module reads and writes.
VERSION = 1
#: Most bytes of a batch's body, and most events: an empty one has two bytes, and costs a reader as much as any.
MAX_BATCH_BYTES = 64_000
MAX_BATCH_EVENTS = 1_000

Event = Mapping[str, str | int]

_encode = json.JSONEncoder(separators=(",", ":")).encode
#: Headers that stand once in a batch if they are the same in all its events.
_SHARED = (names.X_WORKER_ID,)


class UnreadableBatch(ProtocolError):
    """A message says that it is a batch of events, and cannot be read as one."""


class EventMessage(NamedTuple):
    """A message to publish to the activity exchange."""

    headers: Event
    body: bytes
    #: How many events it holds.
    events: int


def pack(events: Sequence[Event]) -> Iterator[EventMessage]:
    """Return the messages that carry these events of one key, in order: one, unless they are too many bytes for it."""
    if len(events) == 1:
        yield EventMessage(events[0], b"", 1)
        return
    first = events[0]
    shared = {
        name: first[name]
        for name in _SHARED
        if name in first and all(event.get(name) == first[name] for event in events)
    }
    body = _encode([_without(event, shared) for event in events]).encode()
    if len(body) <= MAX_BATCH_BYTES and len(events) <= MAX_BATCH_EVENTS:
        yield EventMessage({names.X_EVENT: BATCH, names.X_BATCH_VERSION: VERSION, **shared}, body, len(events))
        return
    middle = len(events) // 2
    yield from pack(events[:middle])
    yield from pack(events[middle:])


def _without(event: Event, shared: Event) -> Event:
    left = dict(event)
    for name in shared:
        del left[name]
    return left


def unpack(headers: Mapping[str, Any] | None, body: bytes) -> Sequence[Mapping[str, Any]]:
    """Return the headers of each event that a message carries, in order; those of a single event as they are.

    Values of a batch are of any JSON type: read them as headers of a foreign message. Texts that are not valid Unicode
    are left out. Raises `UnreadableBatch`.
    """
    own = headers or {}
    if names.text(own.get(names.X_EVENT)) != BATCH:
        return (own,)
    version = own.get(names.X_BATCH_VERSION)
    if version != VERSION:
        raise UnreadableBatch(f"a batch of events has version {version!r:.20}; this program reads version {VERSION}")
    if len(body) > MAX_BATCH_BYTES:
        raise UnreadableBatch(f"a batch of events has {len(body)} bytes, of at most {MAX_BATCH_BYTES}")
    try:
        found = foreign_json.read(body, most=MAX_BATCH_BYTES, halves=True)
    except foreign_json.UnreadableJson as error:
        raise UnreadableBatch(f"the body of a batch of events cannot be read: {error}") from None
    if not isinstance(found, list) or not all(isinstance(event, dict) for event in found):
        raise UnreadableBatch("the body of a batch of events is not an array of objects")
    if len(found) > MAX_BATCH_EVENTS:
        raise UnreadableBatch(f"a batch has {len(found)} events, of at most {MAX_BATCH_EVENTS}")
    if b"\\u" in body:  # perhaps half of a surrogate pair, which nothing can encode again
        found = [{name: value for name, value in event.items() if _is_unicode(name, value)} for event in found]
    shared = {name: own[name] for name in _SHARED if name in own}
    return [{**shared, **event} for event in found] if shared else found


def _is_unicode(*values: object) -> bool:
    return all(foreign_json.is_unicode(value) for value in values if isinstance(value, str))
