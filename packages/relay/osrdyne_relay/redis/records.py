"""Requests and responses as bytes in Redis: encoded and read. Pure.

A record is `OR1`, the length of its header in four bytes, the header in JSON, and the body. `OR1` is the version: a
node that cannot read a record says so by a typed error. Other programs may write to Redis, so nothing is believed.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from osrdyne_relay.errors import InvalidCall, TooLarge, UnreadableRecord
from osrdyne_relay.redis.names import MOST_ENDPOINT

VERSION = b"OR1"
#: Most bytes of a header in JSON.
MOST_HEADER = 65_536
#: Most data streams of a request or response.
MOST_STREAMS = 64
_FIXED = len(VERSION) + 4

Id = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
_Text = Annotated[str, StringConstraints(max_length=16_384)]


class StreamNote(BaseModel):
    """A data stream that a record names."""

    model_config = ConfigDict(strict=True, frozen=True)

    id: Id
    #: In bytes.
    size: Annotated[int, Field(ge=0, lt=2**63)]


class _Header(BaseModel):
    """What requests and responses have in common. A later version may add fields, which are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)

    headers: dict[Name, _Text] = Field(default_factory=dict, max_length=64)
    streams: Annotated[dict[Name, StreamNote], Field(max_length=MOST_STREAMS)] = {}


class RequestHeader(_Header):
    """All of a request but its body."""

    id: Id
    endpoint: Annotated[str, StringConstraints(min_length=1, max_length=MOST_ENDPOINT)]
    #: The caller's node, which gets the pulses.
    node: Id
    #: The life of Redis in which the request was made; see `transactions`.
    life: Id


#: `ok`, or why there is no answer: `failed` on the serving node, `returned` before a worker had it, `cancelled` by the
#: caller, `abandoned` because the caller was silent.
Status = Literal["ok", "failed", "returned", "cancelled", "abandoned"]


class ResponseHeader(_Header):
    """All of a response but its body."""

    status: Status = "ok"
    reason: Annotated[str, StringConstraints(max_length=2000)] = ""


Header = TypeVar("Header", bound=_Header)


def made(kind: type[Header], **fields: object) -> Header:
    """Return a header of what callers and nodes gave. Raises InvalidCall."""
    try:
        return kind(**fields)  # type: ignore[arg-type]
    except ValidationError as error:
        raise InvalidCall(_said(error)) from None


def checked_body(body: bytes) -> bytes:
    """Return a body. Raises InvalidCall where it is not bytes."""
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise InvalidCall(f"a body is bytes, not {type(body).__name__}")
    return bytes(body)


def encode(header: _Header, body: bytes, most: int) -> bytes:
    """Return a record. Raises TooLarge above `most` bytes, and InvalidCall for what cannot be in it."""
    body = checked_body(body)
    try:
        text = header.model_dump_json(exclude_defaults=True).encode()
    except ValueError:
        raise InvalidCall("a header or name is not UTF-8 text: send it as the body") from None
    size = _FIXED + len(text) + len(body)
    if len(text) > MOST_HEADER:
        raise TooLarge(f"headers of {len(text)} bytes, {MOST_HEADER} at most: send them as the body or a data stream")
    if size > most:
        raise TooLarge(f"a record of {size} bytes, {most} at most (`most_bytes`): send the body as a data stream")
    return b"".join((VERSION, len(text).to_bytes(4), text, body))


def decode(kind: type[Header], raw: bytes, most: int) -> tuple[Header, bytes]:
    """Return header and body of a record. Raises UnreadableRecord."""
    if len(raw) > most:
        raise UnreadableRecord(f"a record of {len(raw)} bytes, {most} at most: give all nodes the same `most_bytes`")
    if not raw.startswith(VERSION):
        raise UnreadableRecord(f"a record begins with {raw[:3]!r}, not {VERSION!r}: give all nodes the same version")
    end = _FIXED + int.from_bytes(raw[len(VERSION) : _FIXED])
    if len(raw) < _FIXED or end > min(len(raw), _FIXED + MOST_HEADER):
        raise UnreadableRecord("a record is cut off, or its header is too long")
    try:
        return kind.model_validate_json(raw[_FIXED:end]), raw[end:]
    except ValidationError as error:
        raise UnreadableRecord(f"a record's header is wrong: {_said(error)}") from None


def _said(error: ValidationError) -> str:
    # Without the values, which may be long or secret.
    return "; ".join(f"{'.'.join(map(str, problem['loc']))[:80]}: {problem['msg']}" for problem in error.errors()[:3])
