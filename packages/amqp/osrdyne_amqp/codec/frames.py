"""The frames of the hot path, written and read without pika: basic.publish, ack, reject, deliver, return.

Pure: bytes and plain values in and out. Pika handles everything else on the wire (handshake, heartbeats, channels,
declarations); `wire` connects the two. Layouts are those of AMQP 0-9-1, sections 2.3 and 4.2.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, Final

from osrdyne_amqp.codec.table import MalformedTable, Opaque, read_headers
from osrdyne_amqp.codec.table_writing import write_table
from osrdyne_amqp.errors import Unencodable

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3

# class and method, as the first four bytes of a method frame's payload
RETURN: Final = b"\x00\x3c\x00\x32"
DELIVER: Final = b"\x00\x3c\x00\x3c"
ACK: Final = b"\x00\x3c\x00\x50"
NACK: Final = b"\x00\x3c\x00\x78"
_REJECT = b"\x00\x3c\x00\x5a"
_CANCEL = b"\x00\x3c\x00\x1e"

#: type, channel and payload size open each frame; 0xCE ends it
FRAME_HEAD: Final = Struct(">BHI")
FRAME_END: Final = 0xCE
FRAME_OVERHEAD: Final = 8

_HEAD = FRAME_HEAD.pack
_END = b"\xce"
_CONTENT_HEAD = Struct(">HHQH")  # class, weight, body size, property flags
_SETTLE_FRAME = Struct(">BHI4sQBB")  # one whole frame of ack, reject or nack: head, method, delivery tag, bits, end
_CONFIRM = Struct(">QB")
_TAG = Struct(">QB")
_EXPIRATION = re.compile(rb"[+-]?[0-9]+")
#: RabbitMQ's longest timer, 49 days
_MAX_EXPIRATION_MS = 0xFFFFFFFF
_U16 = Struct(">H")
_U32 = Struct(">I")
_U64 = Struct(">Q")


def _read_octet(data: bytes, at: int) -> tuple[Any, int]:
    return data[at], at + 1


def _read_u64(data: bytes, at: int) -> tuple[Any, int]:
    return _U64.unpack_from(data, at)[0], at + 8


def read_short(data: bytes, at: int) -> tuple[str | bytes, int]:
    """A short string: `str`, or `bytes` where it is not UTF-8."""
    stop = at + 1 + data[at]
    raw = data[at + 1 : stop]
    if len(raw) != stop - at - 1:
        raise MalformedTable("short string is cut off")
    try:
        return raw.decode(), stop
    except UnicodeDecodeError:
        return raw, stop


def write_short(value: str | bytes, what: str) -> bytes:
    """A short string with its length. Raises Unencodable, naming `what`."""
    try:
        raw = value.encode() if isinstance(value, str) else bytes(memoryview(value))
    except UnicodeEncodeError:
        raise Unencodable(f"{what} is not valid Unicode (lone surrogates)") from None
    except TypeError:
        raise Unencodable(f"{what} must be text, not {type(value).__name__}") from None
    if len(raw) > 255:
        raise Unencodable(f"{what} has {len(raw)} bytes; AMQP allows 255")
    return bytes((len(raw),)) + raw


def _write_octet(value: Any, what: str) -> bytes:
    try:
        return bytes((value,))
    except (ValueError, TypeError):
        raise Unencodable(f"{what} must be an integer from 0 to 255, not {value!r}") from None


def _write_u64(value: Any, what: str) -> bytes:
    try:
        return _U64.pack(value)
    except struct.error:
        raise Unencodable(f"{what} must be whole seconds since 1970, not {value!r}") from None


def _skip_table(data: bytes, at: int) -> tuple[Any, int]:
    return None, at + 4 + _U32.unpack_from(data, at)[0]


def _write_headers(value: Any, what: str) -> bytes:
    if not isinstance(value, Mapping):
        raise Unencodable(f"{what} must be a mapping, not {type(value).__name__}")
    for name in ("CC", "BCC"):
        if name in value and not isinstance(value[name], (list, Opaque)):
            raise Unencodable(f"header {name} must be a list of routing keys; the broker closes the channel otherwise")
    return write_table(value)


def _write_expiration(value: Any, what: str) -> bytes:
    raw = write_short(value, what)
    if not _EXPIRATION.fullmatch(raw, 1) or not 0 <= int(raw[1:]) <= _MAX_EXPIRATION_MS:
        raise Unencodable(
            f"{what} must be whole milliseconds as text, up to {_MAX_EXPIRATION_MS}, not {value!r}; "
            "the broker closes the channel otherwise"
        )
    return raw


_PropertyReader = Callable[[bytes, int], tuple[Any, int]]
_PropertyWriter = Callable[[Any, str], bytes]
#: The fourteen properties in wire order, each with its flag.
_CODECS: Final[tuple[tuple[str, _PropertyReader, _PropertyWriter], ...]] = (
    ("content_type", read_short, write_short),
    ("content_encoding", read_short, write_short),
    ("headers", read_headers, _write_headers),
    ("delivery_mode", _read_octet, _write_octet),
    ("priority", _read_octet, _write_octet),
    ("correlation_id", read_short, write_short),
    ("reply_to", read_short, write_short),
    ("expiration", read_short, _write_expiration),
    ("message_id", read_short, write_short),
    ("timestamp", _read_u64, _write_u64),
    ("type", read_short, write_short),
    ("user_id", read_short, write_short),
    ("app_id", read_short, write_short),
    ("cluster_id", read_short, write_short),
)
_PROPERTIES: Final = tuple((1 << (15 - position), *codec) for position, codec in enumerate(_CODECS))
#: The same, to read all but the headers.
_BESIDE_HEADERS: Final = tuple(
    (flag, name, _skip_table if name == "headers" else reader, writer) for flag, name, reader, writer in _PROPERTIES
)
NO_PROPERTIES: Final[Mapping[str, Any]] = {name: None for _, name, _, _ in _PROPERTIES}


def longest_read(frame_max: int) -> int:
    """Bytes of the longest content header whose table of headers is read.

    Twice of what was agreed, because a broker adds to the header of what it delivers again.
    """
    return 2 * frame_max


def read_properties(data: bytes, *, with_headers: bool = True) -> dict[str, Any]:
    """All fourteen properties of a content header's payload; absent ones are None.

    Without headers, that property is None, and its table is not read, however long it is. Raises TooManyFields, and
    Malformed when the properties cannot be separated (a broker that checks incoming messages never sends that).
    """
    values = dict(NO_PROPERTIES)
    try:
        _, _, _, flags = _CONTENT_HEAD.unpack_from(data)
        if flags & 3:
            raise MalformedTable("unknown property flags")
        at = 14
        for flag, name, reader, _ in _PROPERTIES if with_headers else _BESIDE_HEADERS:
            if flags & flag:
                values[name], at = reader(data, at)
    except (IndexError, struct.error) as error:
        raise MalformedTable("properties are cut off") from error
    if at != len(data):
        raise MalformedTable("properties and content header differ in length")
    return values


def write_properties(values: Mapping[str, Any]) -> tuple[int, bytes]:
    """Flags and bytes of the properties that are not None. Raises Unencodable, naming the property."""
    flags = 0
    pieces = b""
    for flag, name, _, writer in _PROPERTIES:
        value = values[name]
        if value is not None:
            flags |= flag
            pieces += writer(value, name)
    return flags, pieces


def publish_method(channel: int, exchange: str, routing_key: str | bytes, mandatory: bool) -> bytes:
    """The whole method frame of basic.publish."""
    payload = b"\x00\x3c\x00\x28\x00\x00%b%b%c" % (
        write_short(exchange, "exchange"),
        write_short(routing_key, "routing key"),
        1 if mandatory else 0,
    )
    return _HEAD(METHOD, channel, len(payload)) + payload + _END


def content(channel: int, properties: Mapping[str, Any], body: bytes, frame_max: int) -> bytes:
    """Content header and body frames. Raises Unencodable when the header does not fit in one frame."""
    flags, encoded = write_properties(properties)
    size = 14 + len(encoded)
    if size + FRAME_OVERHEAD > frame_max:
        raise Unencodable(f"headers and properties need {size} bytes; the broker takes {frame_max - FRAME_OVERHEAD}")
    length = len(body)
    head = _HEAD(HEADER, channel, size) + _CONTENT_HEAD.pack(60, 0, length, flags) + encoded + _END
    room = frame_max - FRAME_OVERHEAD
    if length <= room:
        return head + _HEAD(BODY, channel, length) + body + _END if length else head
    frames = [head]
    for start in range(0, length, room):
        part = body[start : start + room]
        frames += (_HEAD(BODY, channel, len(part)), part, _END)
    return b"".join(frames)


def ack(channel: int, tag: int, multiple: bool) -> bytes:
    return _SETTLE_FRAME.pack(METHOD, channel, 13, ACK, tag, 1 if multiple else 0, FRAME_END)


def reject(channel: int, tag: int, requeue: bool) -> bytes:
    return _SETTLE_FRAME.pack(METHOD, channel, 13, _REJECT, tag, 1 if requeue else 0, FRAME_END)


def nack(channel: int, tag: int, *, requeue: bool) -> bytes:
    return _SETTLE_FRAME.pack(METHOD, channel, 13, NACK, tag, 2 if requeue else 0, FRAME_END)


def cancel(channel: int, consumer_tag: bytes) -> bytes:
    """The end of a consumer, to which no answer is wanted."""
    payload = _CANCEL + bytes((len(consumer_tag),)) + consumer_tag + b"\x01"
    return _HEAD(METHOD, channel, len(payload)) + payload + _END


def read_confirm(data: bytes, at: int) -> tuple[int, bool]:
    """Delivery tag and `multiple` of the broker's ack or nack whose payload starts at `at`."""
    tag, bits = _CONFIRM.unpack_from(data, at + 4)
    return tag, bool(bits & 1)


def read_deliver(data: bytes, at: int) -> tuple[bytes, int, bool, str, str | bytes]:
    """Consumer tag (raw), delivery tag, redelivered, exchange, routing key."""
    at += 4
    stop = at + 1 + data[at]
    consumer = data[at + 1 : stop]
    tag, redelivered = _TAG.unpack_from(data, stop)
    exchange, at = read_short(data, stop + 9)
    routing_key, _ = read_short(data, at)
    return consumer, tag, bool(redelivered & 1), exchange, routing_key  # type: ignore[return-value]  # names are UTF-8


def read_return(data: bytes, at: int) -> tuple[int, str, str, str | bytes]:
    """Reply code, reply text, exchange, routing key."""
    code = _U16.unpack_from(data, at + 4)[0]
    text, at = read_short(data, at + 6)
    exchange, at = read_short(data, at)
    routing_key, _ = read_short(data, at)
    return code, str(text), str(exchange), routing_key


def read_body_size(data: bytes, at: int) -> int:
    return int(_U64.unpack_from(data, at + 4)[0])
