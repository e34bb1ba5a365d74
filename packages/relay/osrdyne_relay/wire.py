"""What nodes, workers and clients say to each other over HTTP: paths, headers, errors, and frames of a WebSocket. Pure.

All of it is below `/v1`, which is the version. docs/reference/relay-protocol.md describes it for workers in other
languages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Protocol
from urllib.parse import quote

from pydantic import Field, TypeAdapter, ValidationError

from osrdyne_protocol import foreign_json
from osrdyne_protocol.foreign_json import UnreadableJson
from osrdyne_relay import errors
from osrdyne_relay.errors import (
    CallTimedOut,
    Cancelled,
    InvalidCall,
    NodeFailed,
    RedisAway,
    RedisRefused,
    RelayError,
    Stage,
    TooLarge,
)
from osrdyne_relay.redis.records import MOST_STREAMS, Name, StreamNote

#: Paths.
CALL, POLL, SOCKET, REQUESTS = "/v1/call", "/v1/poll", "/v1/socket", "/v1/requests"
STREAMS = "/v1/streams"
#: Header that holds a request's id, one that holds the headers of a request or response, and one its data streams; the
#: last two as JSON.
ID_HEADER, HEADERS_HEADER, STREAMS_HEADER = "Relay-Request", "Relay-Headers", "Relay-Streams"
#: Most characters of a header. The relay's own headers, as JSON, must fit in one.
MOST_HEADER = 16_384
#: Most bytes that a frame has beside the body: a worker may serve thousands of endpoints.
MOST_HEAD = 16 * MOST_HEADER
#: Data streams by name, as they are said in headers and frames.
Notes = Annotated[dict[Name, StreamNote], Field(max_length=MOST_STREAMS)]
_NOTES: TypeAdapter[dict[str, StreamNote]] = TypeAdapter(Notes)
_STAGES = {str(stage) for stage in Stage}

#: The HTTP status of each error. Its code is the name of its class.
STATUS_OF: Mapping[str, int] = {
    "InvalidCall": 400,
    "AccessDenied": 401,
    "UnknownRequest": 404,
    "Cancelled": 409,
    "CallerGone": 410,
    "TooLarge": 413,
    "TooMany": 429,
    "CallFailed": 502,
    "PeerGone": 502,
    "DataLost": 502,
    "RedisRefused": 502,
    "UnreadableResponse": 502,
    "StreamLost": 502,
    "NotCollected": 503,
    "RedisAway": 503,
    "RelayClosed": 503,
    "NodeStopping": 503,
    "CallTimedOut": 504,
}


def path(path: str, endpoint: str, **more: float | None) -> str:
    """Return a path with its query. The endpoint is in the query: proxies change encoded slashes in a path."""
    query = [f"endpoint={quote(endpoint, safe='')}", *(f"{name}={x}" for name, x in more.items() if x is not None)]
    return f"{path}?{'&'.join(query)}"


def dump_headers(headers: Mapping[str, str]) -> str:
    """Return headers as the value of an HTTP header: JSON in ASCII. Raises TooLarge."""
    text = json.dumps(dict(headers), separators=(",", ":"))
    if len(text) > MOST_HEADER:
        raise TooLarge(f"headers of {len(text)} characters as JSON, over HTTP {MOST_HEADER} at most: send them as body")
    return text


def load_headers(text: str | None) -> dict[str, str]:
    """Return what an HTTP header holds. Raises InvalidCall."""
    if not text:
        return {}
    try:
        found = foreign_json.read(text)
    except UnreadableJson as error:
        raise InvalidCall(f"{HEADERS_HEADER} cannot be read: {error}") from None
    return checked_headers(found)


def checked_headers(found: object) -> dict[str, str]:
    """Return headers that are text by text. Raises InvalidCall."""
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise InvalidCall(f'{HEADERS_HEADER} is not a JSON object of text by name, as {{"x-who": "me"}}')
    return found


class StreamEntry(Protocol):
    """A data stream that is in the store."""

    @property
    def id(self) -> str:
        """Its name there."""

    @property
    def size(self) -> int:
        """In bytes."""


def notes_of(streams: Mapping[str, StreamEntry]) -> dict[str, Any]:
    """Return what is said of data streams, as JSON has it. Raises TooLarge."""
    notes = {name: {"id": stored.id, "size": stored.size} for name, stored in streams.items()}
    if len(text := json.dumps(notes)) > MOST_HEADER:
        raise TooLarge(f"names of data streams of {len(text)} characters, {MOST_HEADER} at most: give shorter ones")
    return notes


def dump_streams(streams: Mapping[str, StreamEntry]) -> dict[str, str]:
    """Return the HTTP header that names data streams, where there are any. Raises TooLarge."""
    return {STREAMS_HEADER: json.dumps(notes_of(streams), separators=(",", ":"))} if streams else {}


def load_streams(text: str | None) -> dict[str, StreamNote]:
    """Return what such a header says. Raises InvalidCall."""
    try:
        return _NOTES.validate_json(text) if text else {}
    except ValidationError:
        raise _no_streams() from None


def checked_streams(found: object) -> dict[str, StreamNote]:
    """Return what a frame says of data streams. Raises InvalidCall."""
    try:
        return _NOTES.validate_python(found)
    except ValidationError:
        raise _no_streams() from None


def _no_streams() -> InvalidCall:
    return InvalidCall(
        f"{STREAMS_HEADER} is not a JSON object of at most {MOST_STREAMS} data streams by name, as "
        '{"map": {"id": "…", "size": 5}}'
    )


def problem(error: RelayError) -> dict[str, Any]:
    """Return an error as JSON. The text of those of Redis has its address, and is left out."""
    if isinstance(error, RedisAway | RedisRefused):
        error = type(error)()
    said: dict[str, Any] = {"code": type(error).__name__, "error": str(error)}
    if isinstance(error, Cancelled | CallTimedOut):
        said["stage"] = str(error.stage)
    if isinstance(error, CallTimedOut):
        said["timeout"] = error.timeout
    return said


def error_of(status: int, body: bytes) -> RelayError:
    """Return the error that an answer of a node holds; NodeFailed where it holds none of ours."""
    try:
        said = foreign_json.read(body)
    except UnreadableJson:
        said = None
    return error_in(said) or NodeFailed(
        f"the node answered with HTTP status {status}: check its log, and that its address is right"
    )


def error_in(said: object) -> RelayError | None:
    """Return the error that JSON holds; None where it holds none of ours."""
    match said:
        case {"code": "Cancelled", "stage": str(stage)} if stage in _STAGES:
            return Cancelled(Stage(stage))
        case {"code": "CallTimedOut", "stage": str(stage), "timeout": int() | float() as timeout} if stage in _STAGES:
            return CallTimedOut(Stage(stage), timeout)
        case {"code": str(code), "error": str(text)} if code in STATUS_OF and code not in ("Cancelled", "CallTimedOut"):
            made: RelayError = getattr(errors, code)(text[:4000])
            return made
    return None


def frame(head: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Return a binary frame of a WebSocket: a line of JSON, and the body. Raises TooLarge."""
    line = json.dumps(head, separators=(",", ":")).encode()
    if len(line) > MOST_HEAD:
        raise TooLarge(f"a frame's head of {len(line)} bytes, {MOST_HEAD} at most: send headers as the body")
    return b"".join((line, b"\n", body))


def unframe(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return head and body of a frame. Raises InvalidCall."""
    line, _, body = data.partition(b"\n")
    try:
        head = foreign_json.read(line, most=MOST_HEAD)
    except UnreadableJson:
        head = None
    if not isinstance(head, dict):
        raise InvalidCall("a frame is a line of JSON, an object, and then the body")
    return head, body
