"""Frames of the hot path: the same bytes as pika's where pika can write them, and a refusal where brokers would."""

from __future__ import annotations

from typing import Any

import pytest
from pika import BasicProperties, spec
from pika.frame import Body, Header, Method, decode_frame

from osrdyne_amqp.codec import frames
from osrdyne_amqp.codec.table import MalformedTable
from osrdyne_amqp.errors import Unencodable

FRAME_MAX = 131072
ALL_PROPERTIES = BasicProperties(
    content_type="a/b",
    content_encoding="gzip",
    headers={"x-text": "é", "x-number": 7, "x-large": 2**40, "x-list": ["a", 1], "x-flag": True},
    delivery_mode=2,
    priority=255,
    correlation_id="c",
    reply_to="r",
    expiration="60000",
    message_id="m",
    timestamp=2**64 - 1,
    type="t",
    user_id="u",
    app_id="p",
    cluster_id="l",
)


def values(**given: Any) -> dict[str, Any]:
    return {**frames.NO_PROPERTIES, **given}


def payload_of_header(data: bytes) -> bytes:
    return data[7 : 7 + int.from_bytes(data[3:7], "big")]


@pytest.mark.parametrize("properties", [ALL_PROPERTIES, BasicProperties()], ids=["all properties", "none"])
@pytest.mark.parametrize("size", [0, 1, FRAME_MAX - 8, FRAME_MAX - 7, 400_000])
def test_content_is_what_pika_writes(properties: BasicProperties, size: int) -> None:
    body = b"x" * size
    room = FRAME_MAX - 8
    expected = Header(3, size, properties).marshal() + b"".join(
        Body(3, body[start : start + room]).marshal() for start in range(0, size, room)
    )

    assert frames.content(3, properties.__dict__, body, FRAME_MAX) == expected


@pytest.mark.parametrize("mandatory", [True, False])
def test_the_publish_method_is_what_pika_writes(mandatory: bool) -> None:
    expected = Method(5, spec.Basic.Publish(exchange="x", routing_key="é", mandatory=mandatory)).marshal()

    assert frames.publish_method(5, "x", "é", mandatory) == expected


def test_settling_frames_are_what_pika_writes() -> None:
    tag = 2**40
    assert frames.ack(1, tag, True) == Method(1, spec.Basic.Ack(tag, True)).marshal()
    assert frames.ack(1, tag, False) == Method(1, spec.Basic.Ack(tag, False)).marshal()
    assert frames.reject(1, tag, True) == Method(1, spec.Basic.Reject(tag, True)).marshal()
    assert frames.reject(1, tag, False) == Method(1, spec.Basic.Reject(tag, False)).marshal()
    assert frames.nack(1, tag, requeue=True) == Method(1, spec.Basic.Nack(tag, False, True)).marshal()


def test_all_properties_are_read_as_pika_reads_them() -> None:
    data = Header(1, 0, ALL_PROPERTIES).marshal()

    read = frames.read_properties(payload_of_header(data))

    _, expected = decode_frame(data)
    assert read == expected.properties.__dict__


def test_all_properties_but_the_headers_are_read_past_a_table_that_cannot_be() -> None:
    table = b"\x00\x00\x00\x03\xff\xff\xff"
    data = payload_of_header(Header(1, 0, BasicProperties(content_type="t", headers={}, correlation_id="c")).marshal())

    read = frames.read_properties(data.replace(b"\0\0\0\0\x01c", table + b"\x01c"), with_headers=False)

    assert read == values(content_type="t", correlation_id="c")


def test_texts_that_are_not_utf8_survive() -> None:
    sent = values(correlation_id=b"\xff\xfe", reply_to=b"\xff", headers={b"\xff": b"\xfe"})

    read = frames.read_properties(payload_of_header(frames.content(1, sent, b"", FRAME_MAX)))

    assert read == sent


def test_deliveries_and_returns_are_read() -> None:
    deliver = Method(1, spec.Basic.Deliver("ctag", 2**40, True, "x", "key")).marshal()
    returned = Method(1, spec.Basic.Return(312, "NO_ROUTE", "x", "key")).marshal()
    confirm = Method(1, spec.Basic.Nack(9, True)).marshal()

    assert deliver[7:11] == frames.DELIVER
    assert frames.read_deliver(deliver, 7) == (b"ctag", 2**40, True, "x", "key")
    assert returned[7:11] == frames.RETURN
    assert frames.read_return(returned, 7) == (312, "NO_ROUTE", "x", "key")
    assert confirm[7:11] == frames.NACK
    assert frames.read_confirm(confirm, 7) == (9, True)


def test_a_routing_key_that_is_not_utf8_is_bytes_both_ways() -> None:
    frame = frames.publish_method(1, "", b"\xff\xfe", False)
    deliver = b"\x00\x3c\x00\x3c\x01c" + bytes(8) + b"\x00\x00\x02\xff\xfe"

    assert b"\x02\xff\xfe" in frame
    assert frames.read_deliver(deliver, 0)[4] == b"\xff\xfe"


BROKEN_HEADERS = {
    "empty": b"",
    "cut off in the middle": payload_of_header(Header(1, 0, ALL_PROPERTIES).marshal())[:-3],
    "longer than its properties": payload_of_header(Header(1, 0, BasicProperties()).marshal()) + b"x",
    "unknown flag": payload_of_header(Header(1, 0, BasicProperties()).marshal())[:-1] + b"\x02",
    "table longer than the header": payload_of_header(Header(1, 0, BasicProperties(headers={})).marshal())[:-1]
    + b"\x09",
}


@pytest.mark.parametrize("header", BROKEN_HEADERS.values(), ids=BROKEN_HEADERS.keys())
def test_a_content_header_that_cannot_be_read_says_so(header: bytes) -> None:
    with pytest.raises(MalformedTable):
        frames.read_properties(header)


REFUSED: dict[str, dict[str, Any]] = {
    "a header table larger than a frame": {"headers": {"k": "x" * FRAME_MAX}},
    "headers that are not a mapping": {"headers": "x"},
    "a CC that is not a list: brokers close the channel": {"headers": {"CC": "a"}},
    "a BCC that is not a list: brokers close the channel": {"headers": {"BCC": 1}},
    "a correlation id over 255 bytes": {"correlation_id": "é" * 128},
    "a correlation id that is not text": {"correlation_id": 5},
    "a reply-to with a lone surrogate": {"reply_to": "\ud800"},
    "a priority over 255": {"priority": 256},
    "a priority that is not a number": {"priority": "1"},
    "a delivery mode below 0": {"delivery_mode": -1},
    "a timestamp before 1970": {"timestamp": -1},
    "an expiration that is not a number: brokers close the channel": {"expiration": "soon"},
    "an expiration with a fraction: brokers close the channel": {"expiration": "1.5"},
    "a negative expiration: brokers close the channel": {"expiration": "-1"},
    "an expiration beyond the broker's timers: brokers close the channel": {"expiration": str(2**32)},
    "an expiration that is a number": {"expiration": 1000},
}


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_sent_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Unencodable):
        frames.content(1, values(**given), b"", FRAME_MAX)


def test_the_largest_content_header_is_exactly_one_frame() -> None:
    def header_of(size: int) -> bytes:
        return frames.content(1, values(headers={"k": "x" * size}), b"", FRAME_MAX)

    overhead = len(header_of(0))
    assert len(header_of(FRAME_MAX - overhead)) == FRAME_MAX
    with pytest.raises(Unencodable, match=f"need {FRAME_MAX - 7} bytes; the broker takes {FRAME_MAX - 8}"):
        header_of(FRAME_MAX - overhead + 1)


@pytest.mark.parametrize("routing_key", ["é" * 128, b"x" * 256, "\ud800", 5, None])
def test_a_routing_key_that_does_not_fit_is_refused(routing_key: Any) -> None:
    with pytest.raises(Unencodable, match="routing key"):
        frames.publish_method(1, "", routing_key, False)
