"""Bytes that a peer of AMQP 0-9-1 writes after it has logged in and opened a channel, whole or broken.

They are not those of our own encoder, which refuses most of it: field tables of all types with any content, properties
of all kinds, frames that lie about themselves.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hypothesis import strategies as st

from testbed.hostile.chance import DEPTHS, LIMITS, LONG_TEXTS, MOST_FIELDS, NAMES, SIZES, around

Bytes = st.SearchStrategy[bytes]

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
PUBLISH = (60, 40)
#: Most bytes of a frame's payload, as RabbitMQ agrees to it.
MOST = 131_072 - 8


def frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def method(number: tuple[int, int], arguments: bytes = b"", channel: int = 1) -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", *number) + arguments)


def short(data: bytes) -> bytes:
    """Return a short string, cut to what its length can say."""
    return bytes([len(data[:255])]) + data[:255]


def long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def table(fields: list[tuple[bytes, bytes]]) -> bytes:
    return long(b"".join(short(name) + value for name, value in fields))


def publish(exchange: bytes, key: bytes, properties: bytes, body: bytes) -> bytes:
    """Return the frames of one message; a header beyond a frame is one frame all the same."""
    head = struct.pack(">HHQ", PUBLISH[0], 0, len(body)) + properties
    parts = [frame(BODY, 1, body[at : at + MOST]) for at in range(0, len(body), MOST)]
    return method(PUBLISH, b"\0\0" + short(exchange) + short(key) + b"\0") + frame(HEADER, 1, head) + b"".join(parts)


# --- field tables -----------------------------------------------------------------------------------------------------

#: Types with a fixed size, by their letters.
_FIXED = {b"t": 1, b"b": 1, b"B": 1, b"s": 2, b"u": 2, b"I": 4, b"i": 4, b"l": 8, b"L": 8, b"f": 4, b"d": 8, b"T": 8}
_SCALARS = st.one_of(
    st.sampled_from(sorted(_FIXED)).flatmap(
        lambda letter: st.binary(min_size=_FIXED[letter], max_size=_FIXED[letter]).map(lambda data: letter + data)
    ),
    st.just(b"V"),
    # A decimal: how many digits follow the point, and the number.
    st.binary(min_size=5, max_size=5).map(lambda data: b"D" + data),
    (NAMES.map(lambda name: name.encode()) | st.binary(max_size=40)).map(lambda data: b"S" + long(data)),
    LONG_TEXTS.map(lambda text: b"S" + long(text.encode())),
    st.binary(max_size=40).map(lambda data: b"x" + long(data)),
)
#: Names of fields that programs read, and others.
_FIELDS = st.sampled_from(
    [
        *(b"x-deadline", b"x-status", b"x-reason", b"x-error", b"x-publisher", b"x-worker-id", b"x-event", b"x-events"),
        *(b"x-death", b"x-first-death-queue", b"x-first-death-reason", b"x-first-death-exchange", b"x-delivery-count"),
        *(b"x-osrdyne-hops", b"x-osrdyne-first-seen", b"x-request-id", b"x-key", b"CC", b"BCC", b"x-acquired-count"),
        *(b"", b"\xff", b"\0", b"n" * 255),
    ]
) | st.binary(max_size=20)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: b"A" + long(b"".join(items)))
        | st.lists(st.tuples(_FIELDS, inner), max_size=4).map(lambda fields: b"F" + table(fields))
    ),
    max_leaves=12,
)


def _nested(depth: int) -> bytes:
    value = b"V"
    for _ in range(depth):
        value = b"A" + long(value)
    return value


#: One death, as the broker writes it or nearly so.
_DEATHS = st.lists(
    st.tuples(
        st.sampled_from([b"reason", b"queue", b"exchange", b"routing-keys", b"count", b"time", b"original-expiration"]),
        _VALUES
        | st.sampled_from([b"rejected", b"expired", b"delivery_limit", b"core-req-42"]).map(
            lambda text: b"S" + long(text)
        ),
    ),
    max_size=7,
).map(lambda fields: b"F" + table(fields))
_FORGED = st.lists(_DEATHS, max_size=3).map(lambda deaths: (b"x-death", b"A" + long(b"".join(deaths))))
#: Many small fields: dear to read.
_MANY = st.tuples(
    st.sampled_from([b"V", b"t\2", b"D\0\0\0\0\1", b"A\0\0\0\0"]), around(MOST_FIELDS) | st.sampled_from([100, 3000])
).map(lambda found: [(b"%d" % number, found[0]) for number in range(found[1])])
TABLES = st.lists(
    st.tuples(_FIELDS, _VALUES) | _FORGED | DEPTHS.map(lambda depth: (b"x-deep", _nested(depth))), max_size=5
).map(table) | _MANY.map(table)
#: Unknown types, lengths that lie, and no table at all.
BROKEN_TABLES = st.one_of(
    st.tuples(_FIELDS, st.binary(min_size=1, max_size=20)).map(lambda field: table([field])),
    st.tuples(TABLES, st.integers(0, 2**32 - 1)).map(lambda both: struct.pack(">I", both[1]) + both[0][4:]),
    st.binary(max_size=40),
)

# --- messages ---------------------------------------------------------------------------------------------------------

_TEXTS = (NAMES.map(lambda name: name.encode()) | st.binary(max_size=255)).map(short)
_BYTE = st.binary(min_size=1, max_size=1)
#: Mostly what a broker takes: it closes the channel of a client that sends another lifetime.
_LIFETIMES = st.sampled_from([b"0", b"1", b"60000", b"600000", b"4294967295"] * 3 + [b"-1", b"1e3", b"9" * 255]).map(
    short
)
#: By the bit that says that it is there.
_PROPERTIES = {
    15: _TEXTS,
    14: _TEXTS,
    13: TABLES,
    12: _BYTE,
    11: _BYTE,
    10: _TEXTS,
    9: _TEXTS,
    8: _LIFETIMES,
    7: _TEXTS,
    6: st.binary(min_size=8, max_size=8),
    5: _TEXTS,
    3: _TEXTS,
}


def properties(tables: Bytes = TABLES) -> Bytes:
    """Properties as a content header has them: flags, and the values of those that are there."""
    chosen = st.fixed_dictionaries({}, optional={**_PROPERTIES, 13: tables})
    return chosen.map(
        lambda found: (
            struct.pack(">H", sum(1 << bit for bit in found))
            + b"".join(found[bit] for bit in sorted(found, reverse=True))
        )
    )


def padded(size: int) -> bytes:
    """Return properties with one long header, of which the content header has this many bytes in all."""
    name = short(b"x-pad")
    return struct.pack(">H", 1 << 13) + long(name + b"S" + long(b"v" * (size - 12 - 2 - 4 - len(name) - 5)))


#: Content headers that just fit into a frame, or do not.
_LONG = around(MOST, MOST + 8).map(padded)
BODIES = st.binary(max_size=60) | around(1, MOST, 2 * MOST).map(bytes)
KEYS = NAMES.map(lambda name: name.encode()) | st.binary(max_size=255)


def messages(exchange: str, keys: Bytes = KEYS) -> Bytes:
    """Messages to an exchange that a broker can take."""
    made = properties()
    return st.builds(publish, st.just(exchange.encode()), keys, made | made | made | _LONG, BODIES)


# --- what a broker hands on ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Content:
    """A content header's payload and a body, in the parts in which its frames have it."""

    header: bytes
    parts: tuple[bytes, ...]

    @property
    def frames(self) -> list[bytes]:
        return [frame(HEADER, 1, self.header), *(frame(BODY, 1, part) for part in self.parts)]


def _content(made: bytes, body: bytes, most: int) -> Content:
    parts = tuple(body[at : at + most] for at in range(0, len(body), most))
    return Content(struct.pack(">HHQ", PUBLISH[0], 0, len(body)) + made, parts)


def handed_on() -> st.SearchStrategy[Content]:
    """Contents of messages that a publisher of AMQP 1.0 may have sent: their headers are one frame of any length."""
    sizes = around(LIMITS["a frame"], LIMITS["headers that are read"])
    # As RabbitMQ cuts it, and with a last part that is small.
    most = st.sampled_from([MOST, MOST, MOST, 60, 59, 1000])
    return st.builds(_content, properties() | sizes.map(padded), BODIES, most)


# --- what is not a message --------------------------------------------------------------------------------------------

_NUMBERS = st.tuples(st.sampled_from([10, 20, 30, 40, 50, 60, 85, 90, 0, 65535]), st.integers(0, 130))
#: A number of a frame, a channel, a class.
_ANY = st.sampled_from([0, 1, 2, 2047, 2048, 65535])


def broken(exchange: str) -> Bytes:
    """Frames that no client sends: the broker ends the connection, or the channel, or takes no notice."""
    to = exchange.encode()
    return st.one_of(
        # Any method with any arguments, also those of servers.
        st.builds(method, _NUMBERS, st.binary(max_size=60), _ANY),
        # Content without a method, of another size than it said, and in the middle of another one's.
        st.builds(frame, st.sampled_from([HEADER, BODY]), _ANY, st.binary(max_size=60)),
        st.builds(
            lambda size, body: (
                method(PUBLISH, b"\0\0" + short(to) + b"\0\0")
                + frame(HEADER, 1, struct.pack(">HHQH", 60, 0, size, 0))
                + frame(BODY, 1, body)
            ),
            st.sampled_from([0, 1, 2**31, 2**63, 2**64 - 1]),
            st.binary(min_size=1, max_size=60),
        ),
        st.builds(publish, st.just(to), KEYS, properties(BROKEN_TABLES), BODIES),
        # Frames of no kind, of a wrong length, and without their end.
        st.builds(frame, st.integers(0, 255), _ANY, st.binary(max_size=60), st.sampled_from([b"\xce", b"", b"\0"])),
        st.builds(lambda size, data: struct.pack(">BHI", 1, 1, size) + data, st.integers(0, 2**32 - 1), st.binary()),
        SIZES.map(lambda size: frame(HEARTBEAT, 0, bytes(size))),
        st.binary(max_size=200),
    )
