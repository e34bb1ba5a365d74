"""What callers send and workers answer, and the pulses between nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from osrdyne_relay.redis.names import id_from
from osrdyne_relay.streams.base import Source, StoredStream

#: Kinds of pulses to a node: a response, whole or to be read, and that a call is to be looked at.
RESPONSE_PULSE, LOOK_PULSE = b"r", b"l"
#: Headers of a request that comes from a pool, beside `x-deadline`: the caller's id for it, and `true` where a worker
#: may have had it before.
CORRELATION_HEADER, REDELIVERED_HEADER = "x-correlation-id", "x-redelivered"


_MILLISECONDS = re.compile(r"[0-9]{1,15}", re.ASCII)


def is_deadline(value: object) -> bool:
    """Whether a header `x-deadline` of the relay, where all headers are text, can be read."""
    return isinstance(value, str) and _MILLISECONDS.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller sends. `body` and `headers` go through Redis, `streams` through the store of data streams."""

    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, Source] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker answers, in the same parts."""

    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, Source] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """What a caller gets. Read its streams within `async with response:`, which removes them at the end."""

    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, StoredStream] = field(default_factory=dict)

    async def close(self) -> None:
        """Remove the streams."""
        for stream in self.streams.values():
            await stream.remove()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def pulse(kind: bytes, call: str, content: bytes = b"") -> bytes:
    """Return a pulse for a node."""
    return b"".join((kind, call.encode(), content))


def read_pulse(raw: bytes) -> tuple[bytes, str, bytes] | None:
    """Return kind, call and content; None for what is not a pulse of ours."""
    kind, call = raw[:1], id_from(raw[1:33])
    if call is None or kind not in (RESPONSE_PULSE, LOOK_PULSE):
        return None
    return kind, call, raw[33:]
