"""Field tables of AMQP 0-9-1, written: the other half of `table`. Pure."""

from __future__ import annotations

import calendar
import struct
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from struct import Struct
from typing import Any

from osrdyne_amqp.codec.table import NUMBERS, BinaryText, Float32, Opaque, Unreadable
from osrdyne_amqp.errors import Unencodable

Writer = Callable[[list[bytes], Any], None]

_U32 = Struct(">I")
_I32 = Struct(">i")
_I64 = Struct(">q")
_U64 = Struct(">Q")


def write_table(table: Mapping[Any, Any]) -> bytes:
    """The table's bytes, size first. Raises Unencodable, naming the field, for what AMQP cannot carry."""
    pieces: list[bytes] = [b""]
    _write_fields(pieces, table)
    body = b"".join(pieces)
    return _U32.pack(len(body)) + body


def _write_fields(pieces: list[bytes], table: Mapping[Any, Any]) -> None:
    rest: list[bytes] = []
    for name, value in table.items():
        if type(name) is Unreadable:
            rest.append(value.wire)
            continue
        try:
            pieces.append(_name(name))
            writer = _WRITERS.get(type(value))
            if writer is None:
                writer = _writer_of_subclass(value)
            writer(pieces, value)
        except (struct.error, UnicodeEncodeError, OverflowError, ValueError, RecursionError) as error:
            if isinstance(error, Unencodable):
                raise
            raise Unencodable(f"header {name!r} cannot be sent: {_why(error)}") from None
    pieces.extend(rest)


@lru_cache(1000)
def _name(name: object) -> bytes:
    """Return a name's bytes, size first. Programs write the same few names again and again."""
    if isinstance(name, str):
        raw = name.encode()
    elif isinstance(name, bytes):
        raw = name
    else:
        raise Unencodable(f"a header name must be text, not {type(name).__name__}")
    if len(raw) > 255:
        raise Unencodable(f"a header name has {len(raw)} bytes; AMQP allows 255")
    return bytes((len(raw),)) + raw


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeEncodeError):
        return "its text is not valid Unicode (lone surrogates)"
    return "its value is out of AMQP's range"


def _writer_of_subclass(value: object) -> Writer:
    for kind in (bool, int, str, bytes, float, Decimal, datetime, list, tuple, dict):
        if isinstance(value, kind):
            return _WRITERS[list if kind is tuple else kind]
    if isinstance(value, (bytearray, memoryview)):
        return _write_bytes
    raise Unencodable(f"a header value of type {type(value).__name__} has no AMQP form")


def _write_text(pieces: list[bytes], value: str) -> None:
    raw = value.encode()
    pieces.append(b"S" + _U32.pack(len(raw)) + raw)


def _write_bytes(pieces: list[bytes], value: bytes) -> None:
    pieces.append(b"x" + _U32.pack(len(value)) + value)


def _write_binary_text(pieces: list[bytes], value: bytes) -> None:
    pieces.append(b"S" + _U32.pack(len(value)) + value)


def _write_int(pieces: list[bytes], value: int) -> None:
    if -0x80000000 <= value <= 0x7FFFFFFF:
        pieces.append(b"I" + _I32.pack(value))
    else:
        pieces.append(b"l" + _I64.pack(value))


def _write_decimal(pieces: list[bytes], value: Decimal) -> None:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent < -255:
        raise ValueError("not a finite decimal of at most 255 places")
    if exponent > 10:
        raise OverflowError
    whole = int("".join(map(str, digits)) or "0") * (10**exponent if exponent > 0 else 1)
    pieces.append(b"D" + bytes((max(0, -exponent),)) + _I32.pack(-whole if sign else whole))


def _write_timestamp(pieces: list[bytes], value: datetime) -> None:
    pieces.append(b"T" + _U64.pack(calendar.timegm(value.utctimetuple())))


def _write_array(pieces: list[bytes], value: list[Any]) -> None:
    inner: list[bytes] = []
    for item in value:
        (_WRITERS.get(type(item)) or _writer_of_subclass(item))(inner, item)
    body = b"".join(inner)
    pieces.append(b"A" + _U32.pack(len(body)) + body)


def _write_nested(pieces: list[bytes], value: Mapping[Any, Any]) -> None:
    pieces.append(b"F" + write_table(value))


def _writer(code: str, layout: str) -> Writer:
    prefix, pack = code.encode(), Struct(layout).pack
    return lambda pieces, value: pieces.append(prefix + pack(value))


def _float_writer(code: str, layout: str) -> Writer:
    prefix, pack = code.encode(), Struct(layout).pack

    def write(pieces: list[bytes], value: float) -> None:
        if not isfinite(value):  # measured: RabbitMQ answers NaN and infinity with 541 and cuts the connection
            raise Unencodable("a header value is NaN or infinite, for which brokers close the connection")
        pieces.append(prefix + pack(value))

    return write


_WRITERS: dict[type[Any], Writer] = {
    kind: (_float_writer if kind is Float32 else _writer)(code, layout) for kind, (code, layout) in NUMBERS.items()
}
_WRITERS |= {
    str: _write_text,
    bytes: _write_bytes,
    BinaryText: _write_binary_text,
    bool: lambda pieces, value: pieces.append(b"t\x01" if value else b"t\x00"),
    int: _write_int,
    float: _float_writer("d", ">d"),
    Decimal: _write_decimal,
    datetime: _write_timestamp,
    list: _write_array,
    dict: _write_nested,
    type(None): lambda pieces, _value: pieces.append(b"V"),
    Opaque: lambda pieces, value: pieces.append(value.wire),
}
