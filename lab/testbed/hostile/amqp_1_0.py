"""AMQP 1.0 messages as a hostile peer may encode them, as Hypothesis strategies of bytes.

`messages` are those that a broker delivers over AMQP 1.0. `everything` has all types in all sections, also what no
receiver can be given. The encoder is that of `testbed.amqp_1_0`: proton's makes valid messages only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

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
from testbed.hostile.chance import DEPTHS, LIMITS, LONG_TEXTS, around
from testbed.hostile.chance import NAMES as ANY_NAMES

Encoded = st.SearchStrategy[bytes]


def _fixed(code: int, size: int) -> Encoded:
    return st.binary(min_size=size, max_size=size).map(lambda data: bytes([code]) + data)


def _pairs(keys: Encoded, values: Encoded, most: int = 4) -> Encoded:
    pairs = st.lists(st.tuples(keys, values), max_size=most)
    return pairs.map(lambda found: compound(MAP, [half for pair in found for half in pair]))


#: Some of no program, and some that are not UTF-8.
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
#: described values, too, and cannot deliver them (docs/reference/rabbitmq-facts.md).
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


# --- what a broker need not be able to deliver ------------------------------------------------------------------------


def _nested_lists(depth: int) -> bytes:
    value = NULL
    for _ in range(depth):
        value = compound(LIST, [value])
    return value


#: Lists, maps and arrays in their short forms; codes of no type, cut values, counts that lie.
_ODD = st.sampled_from(
    [
        *(b"\x45", b"\xc0\1\0", b"\xc1\1\0", b"\xc1\4\2\x52\1\x41", b"\xe0\4\2\x50\1\2", b"\xe0\2\0\x98"),
        *(
            b"\x4f",
            b"\xff",
            b"\xb1\xff\xff\xff\xff",
            b"\xc1\2\1\x41",
            b"\xd0\0\0\0\4\xff\xff\xff\xff",
            b"\x56\2",
            b"\xa1\1\xff",
        ),
    ]
)
#: Names by which the broker and our programs note the death of a message.
_DEATH_NAMES = [
    *("x-death", "x-opt-deaths", "x-first-death-queue", "x-first-death-reason", "x-first-death-exchange"),
    *("x-last-death-queue", "x-last-death-reason", "x-delivery-count", "x-acquired-count", "x-osrdyne-hops"),
    *("x-osrdyne-first-seen", "x-exchange", "x-routing-key", "x-cc", "CC", "BCC", "x-event", "x-request-id"),
]
_DEATH_FIELDS = ["reason", "queue", "exchange", "routing-keys", "count", "time", "original-expiration"]
_DEATHS = st.lists(
    _pairs(
        st.sampled_from(_DEATH_FIELDS).map(text), st.sampled_from([text("expired"), text("core-orphan")]) | PLAIN, 7
    ),
    max_size=3,
).map(lambda deaths: compound(LIST, deaths))
#: Values that the broker hands on to a receiver of AMQP 0-9-1, if it takes them where they are.
_CALM = NEARLY_RIGHT | PLAIN.filter(lambda value: value[0] != 0x98)
_WILD = st.one_of(VALUES, _ODD, _DEATHS, DEPTHS.map(_nested_lists), LONG_TEXTS.map(text), NEARLY_RIGHT)


def _named(values: Encoded, encode: Callable[[str], bytes]) -> Encoded:
    names = st.sampled_from([*_DEATH_NAMES, *OUR_NAMES]).map(encode) | NAMES.map(encode)
    return _pairs(names, values, 6)


def _symbol(name: str) -> bytes:
    return sized(SYMBOL, name.encode())


#: Texts with which all headers, as AMQP 0-9-1 has them, are about as long as a frame, or as what is read of them.
_PADDED = st.tuples(around(LIMITS["a frame"], LIMITS["headers that are read"]), st.integers(0, 120)).map(
    lambda both: compound(MAP, [text("x-pad"), text("v" * (both[0] - both[1]))])
)


def _headers(values: Encoded) -> Encoded:
    return st.none().map(lambda _: b"") | _named(values, text) | _pairs(ANY_NAMES.map(text), values)


def _of(values: Encoded, keys: Encoded, addresses: list[str], headers: Encoded) -> Encoded:
    """All sections, mostly in order, with these values. `headers`: application properties, or nothing."""
    annotations = _named(values, _symbol)
    replies = st.sampled_from([NULL, *map(text, addresses)]) | ADDRESSES | ANY_NAMES.map(text)
    fields = st.tuples(
        *(st.just(NULL) | IDS, st.just(NULL), st.just(NULL) | ADDRESSES, st.just(NULL) | keys, replies, IDS),
        *(st.just(NULL) | values for _ in range(2)),
        *(_MAYBE_TIME, _MAYBE_TIME, _MAYBE_TEXT, st.just(NULL) | _fixed(0x70, 4), _MAYBE_TEXT),
    )
    nothing = st.just(b"")
    sections = st.tuples(
        nothing | HEADER_SECTIONS,
        nothing | annotations.map(lambda value: section(DELIVERY_ANNOTATIONS, value)),
        nothing | annotations.map(lambda value: section(MESSAGE_ANNOTATIONS, value)),
        nothing | fields.map(lambda found: section(PROPERTIES, compound(LIST, list(found)))),
        headers.map(lambda value: section(APPLICATION_PROPERTIES, value) if value else b""),
        BODIES | values.map(lambda value: section(VALUE, value)),
        nothing | annotations.map(lambda value: section(FOOTER, value)),
    )
    return sections.map(b"".join)


def everything(addresses: list[str]) -> Encoded:
    """Messages that ask for replies at these addresses or at others: one in eight has values of all types.

    Not more, because each that the broker cannot deliver costs it dozens of connections. One in eight is long.
    """
    calm, wild, padded = (
        _of(values, keys, addresses, headers)
        for values, keys, headers in (
            (_CALM, TEXTS.map(text), _headers(_CALM)),
            (_WILD, _WILD, _headers(_WILD)),
            (_CALM, TEXTS.map(text), _PADDED),
        )
    )
    # Not to nothing: the broker never settles an empty message.
    cut = st.tuples(wild, st.integers(1, 100)).map(lambda both: both[0][: len(both[0]) * both[1] // 100] or b"\0")
    others = {0: wild, 1: cut, 2: padded, 3: padded}
    return st.integers(0, 15).flatmap(lambda number: others.get(number, calm))
