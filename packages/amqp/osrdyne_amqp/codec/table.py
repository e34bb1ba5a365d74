"""Field tables of AMQP 0-9-1, read and written without loss.

A table is written back as the same bytes, whatever a foreign peer sent: each wire type has a Python type of its own,
and a value that cannot be decoded is kept as `Opaque`. Pure: bytes in, values out. Why pika's own codec is not used:
docs/decisions/0004-own-frames-and-table-codec.md.

Values of one byte each cost a hundred times what their bytes cost, in time and memory. So a message's headers are
bounded by their count, and large tables and arrays within them are kept unread, as `Opaque`
(docs/decisions/0045-large-headers-stay-unread.md).

Plain Python values are written as peers expect them: `str` as long string, `bytes` as byte array, `int` as
32-bit where it fits and else 64-bit signed, `float` as double, `bool`, `None`, `Decimal`, `datetime` (UTC
when naive, whole seconds), `list`, `dict`. The other integer widths are subclasses of `int` that remember
their wire type.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from struct import Struct
from typing import Any

from osrdyne_protocol.headers import ADDED

#: Tables and arrays nested deeper than this are kept opaque: a peer must not be able to exhaust our stack.
MAX_DEPTH = 32
#: Fields of the longest table that is read, beside those that the broker and the daemon add.
MOST_FIELDS = 1000
#: Most bytes of the tables and arrays within one table that are read, together. The broker's own, `x-death`, take some
#: hundred bytes for each queue.
MOST_NESTED = 4096

_TOO_MANY = f"they are more than {MOST_FIELDS}"
_U32 = Struct(">I")
_I32 = Struct(">i")
_I64 = Struct(">q")
_U64 = Struct(">Q")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MalformedTable(Exception):
    """These bytes are not a field table."""


class TooManyFields(MalformedTable):
    """A table with more than `MOST_FIELDS`."""


class Opaque:
    """A value that was not decoded: its type byte and payload, written back as they came. `read` decodes it."""

    __slots__ = ("wire",)

    def __init__(self, wire: bytes) -> None:
        self.wire = wire

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.wire == self.wire

    def __hash__(self) -> int:
        return hash(self.wire)

    def __repr__(self) -> str:
        cut = f"{self.wire[:16]!r}... of {len(self.wire)} bytes" if len(self.wire) > 64 else repr(self.wire)
        return f"Opaque({cut})"

    def read(self) -> Any:
        """Return the value, however large it is; itself where it cannot be decoded."""
        reader = _READERS.get(self.wire[0]) if self.wire else None
        try:
            return self if reader is None else reader(self.wire, 1, 0)[0]
        except (IndexError, KeyError, struct.error, MalformedTable):
            return self


class BinaryText(bytes):
    """A long string ('S') that is not UTF-8; plain `bytes` are byte arrays ('x')."""


class Int8(int):
    """Wire type b."""


class Uint8(int):
    """Wire type B."""


class Int16(int):
    """Wire type s."""


class Uint16(int):
    """Wire type u."""


class Uint32(int):
    """Wire type i."""


class SmallInt64(int):
    """Wire type l (64-bit) for a value that would fit in 32 bits."""


class Float32(float):
    """Wire type f."""


class Unreadable(str):
    """The name under which the rest of a broken table is kept, as `Opaque`; written last, without a name."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


Reader = Callable[[bytes, int, int], tuple[Any, int]]


# --- reading ---


def read_headers(data: bytes, at: int = 0) -> tuple[dict[Any, Any], int]:
    """The headers of a message: as `read_table`, but bounded in what it costs, whatever a peer sent.

    Raises TooManyFields. Of tables and arrays within, the first up to `MOST_NESTED` bytes are read, the rest stays
    `Opaque`.
    """
    table, at = read_table(data, at, room=MOST_NESTED, most=MOST_FIELDS + len(ADDED))
    if len(table) > MOST_FIELDS + len(ADDED & table.keys()):
        raise TooManyFields(_TOO_MANY)
    return table, at


def read_table(  # noqa: C901 - one loop: a call for each field would cost as much as reading it
    data: bytes, at: int = 0, depth: int = 0, *, room: int | None = None, most: int = sys.maxsize
) -> tuple[dict[Any, Any], int]:
    """The table that starts at `at` (its 4-byte size first) and the offset after it.

    Raises Malformed only when the size itself does not fit; everything inside is kept, if need be as
    `Opaque`. `room` and `most` are bounds as those of `read_headers`.
    """
    limit = at + 4
    if limit > len(data):
        raise MalformedTable("table size is cut off")
    limit += _U32.unpack_from(data, at)[0]
    if limit > len(data):
        raise MalformedTable("table is longer than its frame")
    at += 4
    table: dict[Any, Any] = {}
    while at < limit:
        start = at
        try:
            at += 1 + data[at]
            raw = data[start + 1 : at]
            kind = data[at]
            at += 1
            if kind == 83:  # 'S', by far the most common
                stop = at + 4 + _U32.unpack_from(data, at)[0]
                value: Any = data[at + 4 : stop]
                at = stop
                try:
                    value = value.decode()
                except UnicodeDecodeError:
                    value = BinaryText(value)
            elif kind == 108:  # 'l': times in milliseconds, of which each request has two
                (value,) = _I64.unpack_from(data, at)
                at += 8
                if -0x80000000 <= value <= 0x7FFFFFFF:
                    value = SmallInt64(value)
            elif room is not None and kind in _NESTED:
                value, at, room = _read_within(data, at, kind, room)
            else:
                value, at = _READERS[kind](data, at, depth)
            if at > limit:
                raise MalformedTable("field is longer than its table")
        except (IndexError, KeyError, struct.error, MalformedTable):
            table[Unreadable("unreadable")] = Opaque(data[start:limit])
            break
        try:
            name: Any = raw.decode()
        except UnicodeDecodeError:
            name = raw
        if name in table:  # the first one counts, as it does for RabbitMQ
            table[Unreadable("unreadable")] = Opaque(data[start:limit])
            break
        table[name] = value
        if len(table) > most:
            raise TooManyFields(_TOO_MANY)
    return table, limit


def _read_within(data: bytes, at: int, kind: int, room: int) -> tuple[Any, int, int]:
    """A table or array, unread where it does not fit into `room`; the offset after it, and what is left of `room`."""
    (size,) = _U32.unpack_from(data, at)
    if size > room:
        stop = at + 4 + size
        return Opaque(data[at - 1 : stop]), stop, room
    value, stop = _READERS[kind](data, at, 0)
    return value, stop, room - size


def count(values: dict[Any, Any] | list[Any]) -> int:
    """How many values a table or an array holds, with those in the tables and arrays within it."""
    inner = values.values() if isinstance(values, dict) else values
    return len(values) + sum(count(value) for value in inner if isinstance(value, (dict, list)))


def _read_array(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    start, at = at, at + 4
    limit = at + _U32.unpack_from(data, start)[0]
    if limit > len(data):
        raise MalformedTable("array is longer than its frame")
    values: list[Any] = []
    try:
        if depth >= MAX_DEPTH:
            raise MalformedTable("nested too deeply")
        while at < limit:
            value, at = _READERS[data[at]](data, at + 1, depth + 1)
            if at > limit:
                raise MalformedTable("value is longer than its array")
            values.append(value)
    except (IndexError, KeyError, struct.error, MalformedTable):
        return Opaque(b"A" + data[start:limit]), limit
    return values, limit


def _read_nested(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth >= MAX_DEPTH:
        limit = at + 4 + _U32.unpack_from(data, at)[0]
        if limit > len(data):
            raise MalformedTable("table is longer than its frame")
        return Opaque(b"F" + data[at:limit]), limit
    return read_table(data, at, depth + 1)


def _read_bytes(data: bytes, at: int, _depth: int) -> tuple[Any, int]:
    stop = at + 4 + _U32.unpack_from(data, at)[0]
    if stop > len(data):
        raise MalformedTable("byte array is longer than its frame")
    return data[at + 4 : stop], stop


def _read_text(data: bytes, at: int, _depth: int) -> tuple[Any, int]:
    value, at = _read_bytes(data, at, 0)
    try:
        return value.decode(), at
    except UnicodeDecodeError:
        return BinaryText(value), at


def _read_bool(data: bytes, at: int, _depth: int) -> tuple[Any, int]:
    byte = data[at]
    return (byte == 1 if byte < 2 else Opaque(b"t" + data[at : at + 1])), at + 1


def _read_int64(data: bytes, at: int, _depth: int) -> tuple[Any, int]:
    (value,) = _I64.unpack_from(data, at)
    return (SmallInt64(value) if -0x80000000 <= value <= 0x7FFFFFFF else value), at + 8


def _read_timestamp(data: bytes, at: int, _depth: int) -> tuple[Any, int]:
    (seconds,) = _U64.unpack_from(data, at)
    try:
        return _EPOCH + timedelta(seconds=seconds), at + 8
    except OverflowError:  # later than the year 9999; some peers send milliseconds or worse
        return Opaque(b"T" + data[at : at + 8]), at + 8


def _read_decimal(data: bytes, at: int, _depth: int) -> tuple[Any, int]:
    return Decimal(f"{_I32.unpack_from(data, at + 1)[0]}E-{data[at]}"), at + 5


def _number(code: str, layout: str, kind: type[Any]) -> Reader:
    packed = Struct(layout)
    unpack, size = packed.unpack_from, packed.size

    def read(data: bytes, at: int, _depth: int) -> tuple[Any, int]:
        (value,) = unpack(data, at)
        if value != value:  # NaN: its payload would not survive a conversion
            return Opaque(code.encode() + data[at : at + size]), at + size
        return kind(value), at + size

    return read


NUMBERS: dict[type[Any], tuple[str, str]] = {
    Int8: ("b", ">b"),
    Uint8: ("B", ">B"),
    Int16: ("s", ">h"),
    Uint16: ("u", ">H"),
    Uint32: ("i", ">I"),
    SmallInt64: ("l", ">q"),
    Float32: ("f", ">f"),
}

_NESTED = (ord("A"), ord("F"))
_READERS: dict[int, Reader] = {ord(code): _number(code, layout, kind) for kind, (code, layout) in NUMBERS.items()}
_READERS |= {
    ord("S"): _read_text,
    ord("x"): _read_bytes,
    ord("t"): _read_bool,
    ord("I"): _number("I", ">i", int),
    ord("l"): _read_int64,
    ord("d"): _number("d", ">d", float),
    ord("T"): _read_timestamp,
    ord("D"): _read_decimal,
    ord("V"): lambda _data, at, _depth: (None, at),
    ord("A"): _read_array,
    ord("F"): _read_nested,
}
