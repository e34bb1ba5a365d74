"""Headers that are cheap to send and dear to read: how much is made of them, and that they are passed on unchanged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from osrdyne_amqp import Message, Properties
from osrdyne_amqp.codec import frames
from osrdyne_amqp.codec.content import Content
from osrdyne_amqp.codec.table import MOST_FIELDS, MOST_NESTED, Opaque, count, read_headers
from osrdyne_amqp.codec.table_writing import write_table
from osrdyne_protocol.headers import ADDED
from tests.unit.amqp.test_table import field, nested_tables, sized

DECIMAL = b"D\x02\x00\x00\x30\x39"
ODD_BOOLEAN = b"t\x02"
LARGE = 130_000
#: Each is one header of some 130 kB; how many values are in it.
NESTED = {
    "decimals": b"A" + sized(DECIMAL * (LARGE // 6)),
    "odd booleans": b"A" + sized(ODD_BOOLEAN * (LARGE // 2)),
    "empty tables": b"A" + sized(b"F\0\0\0\0" * (LARGE // 5)),
    "a table": b"F" + sized(b"".join(field(b"V", b"%05x" % number) for number in range(LARGE // 7))),
    "tables nested deeply": nested_tables(LARGE // 7),
}


@pytest.mark.parametrize("wire", NESTED.values(), ids=NESTED.keys())
def test_a_large_nested_value_is_kept_unread_and_written_back_as_it_came(wire: bytes) -> None:
    table = sized(field(wire, b"large") + field(b"t\x01", b"x-after"))

    read, _ = read_headers(table)

    assert count(read) == 2
    assert read["x-after"] is True
    assert read["large"] == Opaque(wire)
    assert write_table(read) == table


def test_many_nested_values_of_a_middle_size_are_read_up_to_a_bound_in_all() -> None:
    table = sized(b"".join(field(b"A" + sized(ODD_BOOLEAN * 400), b"k%03d" % number) for number in range(150)))

    read, _ = read_headers(table)

    assert len(read) == 150
    assert count(read) <= 150 + MOST_NESTED // 2
    assert write_table(read) == table


def test_what_the_broker_adds_to_a_dead_letter_is_read_behind_a_large_value_of_its_sender() -> None:
    death = {"queue": "q" * 255, "reason": "expired", "exchange": "e" * 255, "routing-keys": ["k" * 255], "count": 3}
    table = write_table({"mine": [1] * 30_000, "x-death": [death, death, death]})

    read, _ = read_headers(table)

    assert read["x-death"] == [death, death, death]
    assert isinstance(read["mine"], Opaque)


def test_a_value_that_was_kept_unread_is_read_on_demand() -> None:
    read, _ = read_headers(write_table({"route": list(range(10_000))}))

    assert read["route"].read() == list(range(10_000))
    assert len(repr(read["route"])) < 200
    assert Opaque(b"t\x02").read() == Opaque(b"t\x02")
    assert Opaque(b"A\0\0\0\xff").read() == Opaque(b"A\0\0\0\xff")
    assert Opaque(b"?").read() == Opaque(b"?")
    assert Opaque(b"").read() == Opaque(b"")


class ReceivingChannel:
    """A channel that receives messages with these headers."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.content = Content(self._failed, 1_000_000)

    def _failed(self, error: Exception) -> None:
        raise error

    def receive(self, values: dict[str, Any], body: bytes) -> Message:
        data = frames.content(1, {**frames.NO_PROPERTIES, **values}, body, 1_000_000)

        def complete(properties: Properties, malformed: str | None, body: bytes, size: int) -> None:
            self.messages.append(Message(body, "", "k", properties, 1, False, malformed, size))

        self.content.begin(complete)
        at = 0
        while at < len(data):
            kind, _, length = frames.FRAME_HEAD.unpack_from(data, at)
            self.content.receive(kind, data, at + 7, at + 7 + length)
            at += frames.FRAME_OVERHEAD + length
        return self.messages[-1]


def test_a_message_with_too_many_headers_says_so_and_its_other_properties_are_read() -> None:
    fields = {f"h{number}": None for number in range(MOST_FIELDS + 1)}

    message = ReceivingChannel().receive({"headers": fields, "reply_to": "r", "correlation_id": "c"}, b"body")

    assert message.malformed is not None
    assert f"more than {MOST_FIELDS}" in message.malformed
    assert (message.properties.headers, message.properties.reply_to, message.properties.correlation_id) == (
        None,
        "r",
        "c",
    )
    fields.popitem()
    assert ReceivingChannel().receive({"headers": fields}, b"").properties.headers == fields


def test_what_the_broker_and_the_daemon_add_to_a_message_does_not_count_to_its_headers() -> None:
    fields = {f"h{number}": None for number in range(MOST_FIELDS)} | dict.fromkeys(ADDED)

    assert ReceivingChannel().receive({"headers": fields}, b"").properties.headers == fields
    fields["x-more"] = None
    assert ReceivingChannel().receive({"headers": fields}, b"").malformed is not None


SIZES: dict[str, tuple[Callable[[], dict[str, Any]], int]] = {
    "no headers": (dict, 5),
    "one long text": (lambda: {"k": "x" * LARGE}, LARGE),
    "a value that is not read": (lambda: {"k": [1] * LARGE}, 5 * LARGE),
    "many small fields": (lambda: {f"h{number}": 0 for number in range(MOST_FIELDS)}, 100 * MOST_FIELDS),
    "many small values in an array": (lambda: {"k": [None] * (MOST_NESTED - 100)}, 50 * MOST_NESTED),
}


@pytest.mark.parametrize("headers,least", SIZES.values(), ids=SIZES.keys())
def test_the_size_of_a_message_counts_its_headers_and_what_is_made_of_them(
    headers: Callable[[], dict[str, Any]], least: int
) -> None:
    message = ReceivingChannel().receive({"headers": headers()}, b"body!")

    assert least <= message.size <= least * 10 + 1000


def test_headers_that_were_not_kept_do_not_count() -> None:
    fields = {f"h{number}": None for number in range(MOST_FIELDS + 1)}

    assert ReceivingChannel().receive({"headers": fields}, b"body!").size == 5


def test_a_decimal_is_read_with_its_places_whatever_its_digits() -> None:
    for digits in (0, 1, -1, 12300, 2**31 - 1, -(2**31)):
        for places in (0, 1, 2, 255):
            table = sized(field(b"D" + bytes([places]) + struct.pack(">i", digits)))
            assert write_table(read_headers(table)[0]) == table
