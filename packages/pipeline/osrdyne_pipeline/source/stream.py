"""What a RabbitMQ stream holds, read by offsets, over what no consumer is given.

A message that cannot be delivered ends the connection that reaches it, and what was under way before it is lost, more
of it on a busy machine. So a message is given up only when two connections end so that asked for it alone: each costs
three connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from osrdyne_pipeline.source.consumer import BATCH, MessageNotReceived, StreamConsumer, StreamMessage

#: Messages in a row that may be undeliverable where a stream begins with one; see `_first`.
FEW = 8


class UnreadMessage(NamedTuple):
    """A message that no consumer is given, and why."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a stream holds: offsets from `first` to before `end`."""

    first: int
    end: int


def bounds(uri: str, stream: str) -> Bounds | None:
    """Return what the stream holds now; None for an empty one. Raises `SourceError`."""
    found = _next(uri, stream, "first")
    if found is None:
        return None
    first = _first(uri, stream) if isinstance(found, UnreadMessage) else found.offset
    end, known = 0, first
    try:
        for batch in StreamConsumer(uri, stream, "last").batches(BATCH):
            end = known = batch[-1].offset + 1
    except MessageNotReceived:
        end = 0
    return Bounds(first, end or _end(uri, stream, known))


def _first(uri: str, stream: str) -> int:
    """Find the first offset of a stream whose first message is unreadable, so that nothing says which it is.

    A reader that begins before it is given the same message, and fails. One that begins behind it succeeds, except at
    further messages that are unreadable. Some of them in a row are skipped, so that halving finds where that changes.
    """

    def readable_from(offset: int) -> int | None:
        near = range(offset, offset + FEW)
        return next((at for at in near if not isinstance(message_at(uri, stream, at), UnreadMessage)), None)

    if readable_from(0) is not None:
        return 0
    low, high = 0, FEW
    while readable_from(high) is None:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if readable_from(middle) is None else (low, middle)
    return (readable_from(high) or high) - 1


def _end(uri: str, stream: str, known: int) -> int:
    """Find the end behind an offset that is known, where the last chunk does not show it: by doubling steps, then by
    halving them. That chunk may be a note of the broker's own (at the beginning of a segment, seen on 4.3) without
    messages, or hold one that is unreadable.
    """
    step = 1
    while found := message_at(uri, stream, known + step):
        known, step = found.offset, step * 2
    while step > 1:
        step //= 2
        if found := message_at(uri, stream, known + step):
            known = found.offset
    return known + 1


def message_at(uri: str, stream: str, offset: int) -> StreamMessage | UnreadMessage | None:
    """Return the message at an offset, or the next one there is; None past the end. Raises `SourceError`.

    Where that message is unreadable, its offset is not known, and is said to be `offset`.
    """
    return _next(uri, stream, offset)


def _next(uri: str, stream: str, start: int | str) -> StreamMessage | UnreadMessage | None:
    reason = ""
    for _ in range(2):
        try:
            # Alone: one behind it must not end its connection.
            batch = next(StreamConsumer(uri, stream, start, prefetch=1).batches(1), None)
            return batch[0] if batch else None
        except MessageNotReceived as error:
            reason = str(error)
    return UnreadMessage(start if isinstance(start, int) else 0, reason)


def read(
    uri: str, stream: str, start: int, end: int, *, size: int = BATCH
) -> Iterator[list[StreamMessage] | UnreadMessage]:
    """Give the messages from `start` to before `end` in order, about `size` at a time; fewer where the stream ends.

    A message that is unreadable comes between the others, by itself. Where retention was faster, the first offset is
    later than `start`. A range that seems to end early is looked at once more: only where there is no message after
    all was it read, for what is left out here is lost to the caller, which reads on from `end`. Raises `SourceError`.
    """
    begin = start
    while start < end:
        ended = False
        try:
            for batch in StreamConsumer(uri, stream, start, end=end).batches(size):
                start = batch[-1].offset + 1
                yield batch
        except MessageNotReceived:
            ended = True
        found = message_at(uri, stream, start) if start < end else None
        if isinstance(found, UnreadMessage):
            if start == begin and (held := bounds(uri, stream)) and held.first > start:
                # The stream begins later by now, with that message.
                start = min(held.first, end)
            else:
                yield found
                start += 1
        elif found is None or found.offset >= end:
            return
        elif ended:
            yield [found]
            start = found.offset + 1
        else:
            start = found.offset
