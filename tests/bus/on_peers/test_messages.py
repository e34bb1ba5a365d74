"""Messages on the wire: what is sent comes back, and of any other bytes comes an envelope or a reason."""

from __future__ import annotations

import math
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message, symbol, timestamp, ulong

from osrdyne_bus.engine.messages import UnreadableMessage, decoded, encoded
from osrdyne_bus.messages.envelopes import Envelope
from testbed.hostile.chance import mutated

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
HEADERS = st.dictionaries(
    TEXT,
    TEXT | st.binary(max_size=20) | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False),
    max_size=4,
)
IDS = TEXT | st.binary(min_size=1, max_size=20) | st.uuids() | st.integers(0, 2**64 - 1)
MAYBE = st.none() | TEXT
WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
ENVELOPES = st.builds(
    Envelope,
    body=st.binary(max_size=200),
    id=st.none() | IDS,
    correlation_id=st.none() | IDS,
    to=MAYBE,
    durable=st.booleans(),
    reply_to=MAYBE,
    subject=MAYBE,
    content_type=st.none() | WORDS.filter(lambda word: word != "None"),
    expires=st.none() | st.integers(1, 2**33).map(float),
    headers=HEADERS,
)


@given(ENVELOPES)
def test_what_is_encoded_is_decoded_to_the_same(envelope: Envelope) -> None:
    found = decoded(encoded(envelope))

    assert found == envelope
    assert type(found.id) in (type(envelope.id), ulong)
    assert [type(header) for header in found.headers.values()] == [type(header) for header in envelope.headers.values()]


def test_headers_that_rabbitmq_made_annotations_of_are_headers_and_others_are_not() -> None:
    message = Message(body=b"", inferred=True)
    message.annotations = {symbol("x-status"): "expired", symbol("x-reason"): "late", symbol("other"): "no"}
    message.annotations |= {symbol("x-exchange"): "e", symbol("x-routing-key"): "k", symbol("x-opt-delivery"): 1}
    message.properties = {"x-reason": "as it was sent"}
    assert decoded(message.encode()).headers == {"x-status": "expired", "x-reason": "as it was sent"}


def array_of_nothing(count: int) -> bytes:
    """Application properties with one array of values that have no bytes."""
    array = count.to_bytes(4) + b"\x41"
    header = b"\xa1\x01k\xf0" + len(array).to_bytes(4) + array
    return b"\x00\x53\x74\xd1" + (len(header) + 4).to_bytes(4) + (2).to_bytes(4) + header


DEAR = {
    "many headers": Message(
        body=b"x", inferred=True, properties={f"{number}": True for number in range(2000)}
    ).encode(),
    "a list in a header": Message(body=b"x", inferred=True, properties={"k": [True] * 5000}).encode(),
    "a list as an annotation": Message(body=b"x", inferred=True, annotations={symbol("k"): [[]] * 5000}).encode(),
    "a list as body": Message(body=[True] * 5000).encode(),
    "an array of a million values in 31 bytes": array_of_nothing(1_000_000) + b"\x00\x53\x75\xa0\x01x",
}


@pytest.mark.parametrize("data", DEAR.values(), ids=DEAR.keys())
def test_a_message_of_very_many_values_is_refused_before_they_are_made(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Message, "decode", None)
    with pytest.raises(UnreadableMessage, match="more than 2000 values"):
        decoded(data)


def read(data: bytes) -> Envelope | UnreadableMessage:
    try:
        return decoded(data)
    except UnreadableMessage as error:
        return error


@settings(max_examples=500)
@given(st.binary(max_size=300) | ENVELOPES.map(encoded).flatmap(mutated))
def test_of_any_bytes_comes_an_envelope_or_a_reason(data: bytes) -> None:
    found = read(data)

    assert 0 < len(str(found)) <= 200 or isinstance(found, Envelope)


def nested(depth: int) -> bytes:
    """A message whose body is a list in a list in a list."""
    value = b"\x45"
    for _ in range(depth):
        value = b"\xd0" + (len(value) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + value
    return b"\x00\x53\x77" + value


@pytest.mark.parametrize("depth", [1, 900, 3000])
def test_lists_in_lists_of_any_depth_are_refused(depth: int) -> None:
    assert isinstance(read(nested(depth)), UnreadableMessage)


def test_a_character_that_python_has_not_is_refused() -> None:
    # An application property of the type char with the highest bit set
    properties = b"\x00\x53\x74\xc1\x09\x02\xa1\x01a\x73\xff\xff\xff\xff"

    assert isinstance(read(properties + b"\x00\x53\x75\xa0\x01x"), UnreadableMessage)


@given(st.lists(st.binary(max_size=20) | st.just(b"\x00\x53\x75\xa0\x01x"), min_size=1, max_size=4), HEADERS)
def test_several_sections_of_data_are_one_body(parts: list[bytes], headers: dict[str, str]) -> None:
    head = encoded(Envelope(headers=headers)).removesuffix(b"\x00\x53\x75\xa0\x00")
    sections = b"".join(b"\x00\x53\x75\xa0" + bytes([len(part)]) + part for part in parts)

    assert decoded(head + sections) == Envelope(body=b"".join(parts), headers=headers)


@pytest.mark.parametrize(
    "body, said", [({"a": 1}, "its body is dict"), ([1], "its body is list"), (7, "its body is int")]
)
def test_a_body_that_is_neither_bytes_nor_text_is_refused_with_what_to_send(body: object, said: str) -> None:
    with pytest.raises(UnreadableMessage, match=f"{said}; send bytes or text"):
        decoded(Message(body=body).encode())


def test_text_of_other_clients_is_taken_as_its_utf_8_and_headers_of_other_types_are_left_out() -> None:
    message = Message(body="é", properties={"kept": "a", "list": [1, 2], "time": timestamp(5), "none": None})
    message.id = UUID(int=5)
    message.content_type = symbol("text/plain")

    found = decoded(message.encode())

    assert (found.body, found.id, found.content_type) == ("é".encode(), UUID(int=5), "text/plain")
    assert found.headers["kept"] == "a"
    assert not {"list", "none"} & set(found.headers)
    assert not any(isinstance(header, float) and math.isnan(header) for header in found.headers.values())
