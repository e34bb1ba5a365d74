"""The table codec: what is read is written back as the same bytes, whatever a peer sent."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_amqp.codec.table import BinaryText, MalformedTable, Opaque, read_table
from osrdyne_amqp.codec.table_writing import write_table
from osrdyne_amqp.errors import Unencodable


def sized(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


def field(value: bytes, name: bytes = b"k") -> bytes:
    return bytes([len(name)]) + name + value


def nested_arrays(depth: int) -> bytes:
    inner = b"V"
    for _ in range(depth):
        inner = b"A" + sized(inner)
    return inner


def nested_tables(depth: int) -> bytes:
    inner = b"V"
    for _ in range(depth):
        inner = b"F" + sized(field(inner))
    return inner


WIRE_VALUES: dict[str, tuple[bytes, Any]] = {
    "true": (b"t\x01", True),
    "false": (b"t\x00", False),
    "signed 8 bit": (b"b\xff", -1),
    "unsigned 8 bit": (b"B\xff", 255),
    "signed 16 bit": (b"s\xff\xfe", -2),
    "unsigned 16 bit": (b"u\xff\xfe", 65534),
    "signed 32 bit": (b"I\xff\xff\xff\xfe", -2),
    "unsigned 32 bit": (b"i\xff\xff\xff\xfe", 0xFFFFFFFE),
    "small signed 64 bit": (b"l" + struct.pack(">q", 5), 5),
    "negative signed 64 bit": (b"l" + struct.pack(">q", -5), -5),
    "large signed 64 bit": (b"l" + struct.pack(">q", 2**40), 2**40),
    "float": (b"f" + struct.pack(">f", 1.5), 1.5),
    "double": (b"d" + struct.pack(">d", 1.1), 1.1),
    "decimal with trailing zeros": (b"D\x02" + struct.pack(">i", 12300), Decimal("123.00")),
    "negative decimal": (b"D\x01" + struct.pack(">i", -15), Decimal("-1.5")),
    "decimal of 255 places": (b"D\xff" + struct.pack(">i", 1), Decimal("1E-255")),
    "timestamp": (b"T" + struct.pack(">Q", 1385000000), datetime.fromtimestamp(1385000000, UTC)),
    "void": (b"V", None),
    "text": (b"S" + sized("é".encode()), "é"),
    "text that is not UTF-8": (b"S" + sized(b"\xff\xfe"), BinaryText(b"\xff\xfe")),
    "byte array": (b"x" + sized(b"abc"), b"abc"),
    "empty array": (b"A" + sized(b""), []),
    "array": (b"A" + sized(b"b\x01S" + sized(b"a") + b"V"), [1, "a", None]),
    "table": (b"F" + sized(field(b"t\x01", b"a")), {"a": True}),
}
NOT_UNDERSTOOD: dict[str, bytes] = {
    "timestamp after the year 9999": b"T" + b"\xff" * 8,
    "bool that is neither 0 nor 1": b"t\x02",
    "float NaN with a payload": b"f\x7f\x80\x00\x01",
    "double NaN with a payload": b"d\x7f\xf0\x00\x00\x00\x00\x00\x01",
    "array with an unknown type": b"A" + sized(b"?"),
    "array whose last value is cut off": b"A" + sized(b"I\x00"),
    "arrays nested 40 deep": nested_arrays(40),
    "arrays nested 5,000 deep": nested_arrays(5000),
    "tables nested 40 deep": nested_tables(40),
    "tables nested 5,000 deep": nested_tables(5000),
}
BROKEN_TABLES: dict[str, bytes] = {
    "unknown type": field(b"?xx"),
    "text longer than the table": field(b"S\x00\x00\xff\xff"),
    "name cut off": b"\x09ab",
    "type missing": b"\x02ab",
    "number cut off": field(b"l\x00"),
    "nested table cut off": field(b"F\x00\x00\x00\xff\x00"),
    "repeated name": field(b"t\x01") + field(b"t\x00"),
}


@pytest.mark.parametrize("wire,value", WIRE_VALUES.values(), ids=WIRE_VALUES.keys())
def test_each_wire_type_is_read_as_its_value_and_written_back_as_the_same_bytes(wire: bytes, value: Any) -> None:
    table = sized(field(wire))

    read, end = read_table(table)

    assert read == {"k": value}
    assert type(read["k"]) is type(value) or isinstance(value, (int, float))
    assert end == len(table)
    assert write_table(read) == table


@pytest.mark.parametrize("wire", NOT_UNDERSTOOD.values(), ids=NOT_UNDERSTOOD.keys())
def test_a_value_that_is_not_understood_is_kept_beside_the_others(wire: bytes) -> None:
    table = sized(field(wire) + field(b"t\x01", b"after"))

    read, _ = read_table(table)

    assert read["after"] is True
    assert write_table(read) == table


@pytest.mark.parametrize("broken", BROKEN_TABLES.values(), ids=BROKEN_TABLES.keys())
def test_the_rest_of_a_broken_table_is_kept_even_in_a_changed_copy(broken: bytes) -> None:
    before = field(b"t\x01", b"before")
    read, _ = read_table(sized(before + broken))

    changed = {**read, "added": 7}

    assert read["before"] is True
    assert write_table(read) == sized(before + broken)
    assert write_table(changed).endswith(next(v.wire for v in read.values() if isinstance(v, Opaque)))
    assert read_table(write_table(changed))[0]["added"] == 7


def test_of_a_repeated_name_the_first_value_counts_as_it_does_for_the_broker() -> None:
    read, _ = read_table(sized(field(b"t\x01") + field(b"t\x00")))

    assert read["k"] is True


def test_names_that_are_not_utf8_are_bytes() -> None:
    table = sized(field(b"t\x01", b"\xff\xfe") + field(b"t\x01", b""))

    read, _ = read_table(table)

    assert list(read) == [b"\xff\xfe", ""]
    assert write_table(read) == table


@pytest.mark.parametrize("cut", [b"", b"\x00\x00", b"\x00\x00\x00\x05abc"])
def test_a_table_whose_size_does_not_fit_is_malformed(cut: bytes) -> None:
    with pytest.raises(MalformedTable):
        read_table(cut)


@given(st.binary(max_size=300))
def test_any_bytes_can_be_read_and_come_back(raw: bytes) -> None:
    table = sized(raw)

    read, end = read_table(table)

    assert end == len(table)
    assert write_table(read) == table


_fields = st.sampled_from([*(wire for wire, _ in WIRE_VALUES.values()), *NOT_UNDERSTOOD.values()])


@given(st.lists(st.tuples(st.binary(max_size=20), _fields), max_size=8, unique_by=lambda pair: pair[0]), st.binary())
def test_a_table_reads_the_same_wherever_it_stands(fields: list[tuple[bytes, bytes]], before: bytes) -> None:
    table = sized(b"".join(field(value, name) for name, value in fields))

    read, end = read_table(before + table + b"after", len(before))

    assert end == len(before) + len(table)
    assert len(read) == len(fields)
    assert write_table(read) == table


_python = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary()
    | st.integers(0, 253402300799).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=60), _python, max_size=6))
def test_python_values_arrive_as_they_were(table: dict[str, Any]) -> None:
    assert read_table(write_table(table))[0] == table


def endless() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


CANNOT_BE_SENT: dict[str, dict[Any, Any]] = {
    "an integer over 64 bits": {"k": 2**63},
    "NaN, for which brokers close the connection": {"k": float("nan")},
    "infinity": {"k": [float("inf")]},
    "a lone surrogate": {"k": "\ud800"},
    "a surrogate in a name": {"\ud800": 1},
    "an object": {"k": object()},
    "an object in a list": {"k": [object()]},
    "a name over 255 bytes": {"é" * 128: 1},
    "a name that is not text": {5: 1},
    "a decimal with an exponent beyond AMQP": {"k": Decimal("1E-256")},
    "a decimal too large": {"k": Decimal("1E+10")},
    "an infinite decimal": {"k": Decimal("Infinity")},
    "a time before 1970": {"k": datetime(1969, 1, 1, tzinfo=UTC)},
    "a list that holds itself": {"k": endless()},
}


@pytest.mark.parametrize("table", CANNOT_BE_SENT.values(), ids=CANNOT_BE_SENT.keys())
def test_what_amqp_cannot_carry_is_refused(table: dict[Any, Any]) -> None:
    with pytest.raises(Unencodable):
        write_table(table)


def test_a_refusal_names_the_header() -> None:
    with pytest.raises(Unencodable, match=r"'answer'.*out of AMQP's range"):
        write_table({"fine": 1, "answer": 2**64})


def test_subclasses_are_sent_as_what_they_are() -> None:
    class Status(str):
        __slots__ = ()

    assert read_table(write_table({Status("a"): Status("ok"), "t": (1, 2), "b": bytearray(b"x")}))[0] == {
        "a": "ok",
        "t": [1, 2],
        "b": b"x",
    }


def test_opaque_values_compare_by_their_bytes() -> None:
    assert Opaque(b"t\x02") == Opaque(b"t\x02")
    assert Opaque(b"t\x02") != Opaque(b"t\x03")
    assert len({Opaque(b"t\x02"), Opaque(b"t\x02")}) == 1
