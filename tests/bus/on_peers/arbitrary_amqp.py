"""AMQP 1.0 messages as a hostile peer may encode them, as Hypothesis strategies of bytes.

The encoder is that of `testbed.amqp_1_0`: proton's makes valid messages only.
"""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from testbed.amqp_1_0 import (
    APPLICATION_PROPERTIES,
    BINARY,
    DATA,
    DELIVERY_ANNOTATIONS,
    FALSE,
    FOOTER,
    HEADER,
    LIST,
    MAP,
    MESSAGE_ANNOTATIONS,
    NULL,
    PROPERTIES,
    SEQUENCE,
    STRING,
    SYMBOL,
    TRUE,
    VALUE,
    compound,
    long,
    section,
    sized,
    text,
)

Encoded = st.SearchStrategy[bytes]


def _fixed(code: int, size: int) -> Encoded:
    return st.binary(min_size=size, max_size=size).map(lambda data: bytes([code]) + data)


def _pairs(keys: Encoded, values: Encoded, most: int = 4) -> Encoded:
    pairs = st.lists(st.tuples(keys, values), max_size=most)
    return pairs.map(lambda found: compound(MAP, [one for pair in found for one in pair]))


#: Some of no program, and some that are no UTF-8.
TEXTS = st.text(st.characters(), max_size=20) | st.sampled_from(
    ["", "\0", "x" * 300, "é" * 200, "\ud800", "1.0", "echo"]
)
UNSIGNED = _fixed(0x80, 8) | _fixed(0x53, 1)
PLAIN = st.one_of(
    st.sampled_from([NULL, TRUE, FALSE, b"\x43", b"\x44", b"\x45"]),
    # Whole numbers, a time, a UUID, each with any content, and a floating number.
    st.sampled_from([0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56]).flatmap(lambda code: _fixed(code, 1)),
    st.sampled_from([0x60, 0x61]).flatmap(lambda code: _fixed(code, 2)),
    st.sampled_from([0x70, 0x71]).flatmap(lambda code: _fixed(code, 4)),
    st.sampled_from([0x80, 0x81, 0x83]).flatmap(lambda code: _fixed(code, 8)),
    _fixed(0x98, 16),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: struct.pack(">Bd", 0x82, number)),
    TEXTS.map(text),
    st.tuples(st.sampled_from([BINARY, STRING, SYMBOL]), st.binary(max_size=20)).map(lambda both: sized(*both)),
    # An array of four-byte numbers.
    st.lists(st.binary(min_size=4, max_size=4), max_size=3).map(
        lambda items: b"\xf0" + long(struct.pack(">I", len(items)) + b"\x71" + b"".join(items))
    ),
)
#: Also characters, floating numbers that are none, and decimals. RabbitMQ takes some of these in annotations, and
#: described values, too, and cannot deliver them (docs/rabbitmq-facts.md).
SCALARS = PLAIN | st.one_of(
    st.sampled_from([0x72, 0x73, 0x74]).flatmap(lambda code: _fixed(code, 4)),
    st.sampled_from([0x82, 0x84]).flatmap(lambda code: _fixed(code, 8)),
    _fixed(0x94, 16),
)


def _nested(values: Encoded) -> Encoded:
    return st.lists(values, max_size=3).map(lambda items: compound(LIST, items)) | _pairs(values, values, 3)


PLAIN_VALUES = st.recursive(PLAIN, _nested, max_leaves=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: _nested(inner) | st.tuples(SCALARS, inner).map(lambda both: b"\x00" + both[0] + both[1]),
    max_leaves=8,
)
OUR_NAMES = ["x-namespace", "x-version", "x-deadline", "x-status", "x-reason", "x-error", "x-publisher", "x-exchange"]
#: RabbitMQ takes annotations of no other names.
NAMES = st.sampled_from(OUR_NAMES) | st.text(st.characters(max_codepoint=127), max_size=10).map("x-{}".format)
#: Times that are over, and that never come; a version; a status.
NEARLY_RIGHT = st.sampled_from(
    [
        b"\x81" + bytes(8),
        b"\x81\x7f" + b"\xff" * 7,
        b"\x80" + b"\xff" * 8,
        text("9" * 5000),
        text("1.0"),
        text("ok"),
        sized(BINARY, b"expired"),
        sized(BINARY, b"\xff"),
    ]
)
ANNOTATIONS = _pairs(
    NAMES.map(lambda name: sized(SYMBOL, name.encode())),
    NEARLY_RIGHT | PLAIN_VALUES.filter(lambda value: value != NULL),
)
#: An infinite number, and one that is none, are delivered here.
HEADERS = _pairs(
    NAMES.map(text) | TEXTS.map(text),
    NEARLY_RIGHT | PLAIN | st.sampled_from([b"\x82\x7f\xf0" + bytes(6), b"\x82\x7f\xf8" + bytes(6)]),
)
IDS = st.one_of(
    TEXTS.map(text), UNSIGNED, _fixed(0x98, 16), st.binary(max_size=300).map(lambda data: sized(BINARY, data))
)
#: What a reply may be sent to: nothing, no address, no queue, and a queue without a reader.
ADDRESSES = st.one_of(
    st.none().map(lambda _: NULL),
    TEXTS.map(text),
    TEXTS.map(lambda name: text(f"/queues/{name}")),
    st.sampled_from(["/queues/%", "/queues/%ff", "/exchanges/amq.topic/a", "/management", "$me", "/queues/kept"]).map(
        text
    ),
)
_MAYBE_TEXT = st.just(NULL) | TEXTS.map(text)
_MAYBE_SYMBOL = st.just(NULL) | st.binary(max_size=20).map(lambda data: sized(SYMBOL, data))
_MAYBE_TIME = st.just(NULL) | _fixed(0x83, 8)


def properties(subject: Encoded, correlation_id: Encoded = IDS) -> Encoded:
    """The section of properties."""
    fields = st.tuples(
        st.just(NULL) | IDS,
        st.just(NULL),  # the user, which the broker compares
        st.just(NULL) | ADDRESSES,
        subject,
        ADDRESSES,
        st.just(NULL) | correlation_id,
        _MAYBE_SYMBOL,
        _MAYBE_SYMBOL,
        _MAYBE_TIME,
        _MAYBE_TIME,
        _MAYBE_TEXT,
        st.just(NULL) | _fixed(0x70, 4),
        _MAYBE_TEXT,
    )
    return fields.map(lambda found: section(PROPERTIES, compound(LIST, list(found))))


#: Durable, priority, time to live (long enough to arrive), first acquirer, delivery count.
HEADER_SECTIONS = st.tuples(
    st.sampled_from([NULL, TRUE, FALSE]),
    st.just(NULL) | _fixed(0x50, 1),
    st.just(NULL) | st.just(b"\x70\x7f\xff\xff\xff"),
    st.sampled_from([NULL, TRUE, FALSE]),
    st.just(NULL) | _fixed(0x70, 4),
).map(lambda fields: section(HEADER, compound(LIST, list(fields))))

_DATA = st.binary(max_size=60).map(lambda data: section(DATA, sized(BINARY, data)))
_SEQUENCES = st.lists(VALUES, max_size=3).map(lambda items: section(SEQUENCE, compound(LIST, items)))
_VALUE = VALUES.map(lambda value: section(VALUE, value))
BODIES = st.one_of(
    _DATA,
    st.lists(_DATA, min_size=2, max_size=3).map(b"".join),
    st.lists(_SEQUENCES, min_size=1, max_size=2).map(b"".join),
    _VALUE,
)


def messages(subject: Encoded = _MAYBE_TEXT, correlation_id: Encoded = IDS) -> Encoded:
    """Messages with any sections, with any values."""
    nothing = st.just(b"")
    return st.tuples(
        nothing | HEADER_SECTIONS,
        nothing | ANNOTATIONS.map(lambda value: section(DELIVERY_ANNOTATIONS, value)),
        nothing | ANNOTATIONS.map(lambda value: section(MESSAGE_ANNOTATIONS, value)),
        nothing | properties(subject, correlation_id),
        nothing | HEADERS.map(lambda value: section(APPLICATION_PROPERTIES, value)),
        BODIES,
        nothing | ANNOTATIONS.map(lambda value: section(FOOTER, value)),
    ).map(b"".join)
