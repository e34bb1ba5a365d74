"""Events as messages: single ones, batches, and what a reader makes of hostile batches."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_protocol import events, headers
from osrdyne_protocol.event_batches import BATCH, MAX_BATCH_BYTES, VERSION, UnreadableBatch, pack, unpack

BATCHED = {headers.X_EVENT: BATCH, headers.X_BATCH_VERSION: VERSION}


def event(number: int = 0, worker_id: str | None = "w1", request_id: str = "r") -> dict[str, str | int]:
    return events.headers(events.FINISHED, now_ms=number, worker_id=worker_id, request_id=request_id, outcome="ok")


def read(sent: list[Any]) -> list[dict[str, Any]]:
    return [dict(event) for message in pack(sent) for event in unpack(message.headers, message.body)]


def test_one_event_is_a_message_with_its_headers_and_no_body() -> None:
    sent = event()
    assert [*pack([sent])] == [(sent, b"", 1)]
    assert unpack(sent, b"") == (sent,)


def test_events_that_are_sent_together_are_one_message() -> None:
    sent = [event(number) for number in range(300)]
    [message] = pack(sent)
    assert (message.headers, message.events) == ({**BATCHED, "x-worker-id": "w1"}, 300)
    assert len(message.body) <= MAX_BATCH_BYTES
    assert read(sent) == sent


def test_what_is_too_large_for_one_message_is_several_and_keeps_its_order() -> None:
    sent = [event(number, request_id="ü" * 250) for number in range(100)]
    messages = [*pack(sent)]
    assert len(messages) > 1
    assert all(len(message.body) <= MAX_BATCH_BYTES for message in messages)
    assert sum(message.events for message in messages) == 100
    assert read(sent) == sent


def test_events_of_several_workers_keep_their_workers() -> None:
    sent = [event(1, "w1"), event(2, "w2"), event(3, None)]
    assert read(sent) == sent


@given(
    st.lists(
        st.dictionaries(
            st.text(st.characters(codec="utf-8")),
            st.text(st.characters(codec="utf-8")) | st.integers(-(2**63), 2**63 - 1),
        ).filter(lambda event: event.get("x-event") not in (BATCH, BATCH.encode())),
        min_size=1,
        max_size=8,
    )
)
def test_every_event_comes_out_as_it_went_in(sent: list[dict[str, Any]]) -> None:
    assert read(sent) == sent


@pytest.mark.parametrize(
    ("body", "version", "words"),
    [
        (b"[{", VERSION, "is not JSON"),
        (b"\xff[]", VERSION, "is not UTF-8: invalid start byte at byte 0"),
        ('[{"x-event": "alive"}]'.encode("utf-16"), VERSION, "is not UTF-8"),
        (b"[" * 60_000, VERSION, "more than 64 objects and arrays are within each other"),
        (b'[{"x-event-time": ' + b"1" * 5000 + b"}]", VERSION, "the number 11111111111111111111… is too large"),
        (b'{"x-event": "alive"}', VERSION, "is not an array of objects"),
        (b'["alive"]', VERSION, "is not an array of objects"),
        (b"[]" + b" " * MAX_BATCH_BYTES, VERSION, f"has {MAX_BATCH_BYTES + 2} bytes, of at most {MAX_BATCH_BYTES}"),
        (b"[" + b"{}," * 1000 + b"{}]", VERSION, "has 1001 events, of at most 1000"),
        (b"[]", 2, "version 2; this program reads version 1"),
        (b"[]", None, "version None"),
        (b"[]", "x" * 9999, "version 'xxx"),
    ],
)
def test_a_batch_that_cannot_be_read_is_refused_with_the_reason(body: bytes, version: object, words: str) -> None:
    with pytest.raises(UnreadableBatch, match=words) as raised:
        unpack({**BATCHED, headers.X_BATCH_VERSION: version}, body)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("half", ['"\\ud800"', '"\\uDFFF x"'])
def test_a_text_that_no_encoding_can_write_is_left_out(half: str) -> None:
    body = f'[{{"x-event": "alive", "x-request-id": {half}, "x-worker-id": "\\u00e9"}}]'.encode()
    assert unpack(BATCHED, body) == [{"x-event": "alive", "x-worker-id": "é"}]


def test_the_name_of_a_batch_may_be_a_byte_array() -> None:
    body = json.dumps([event()]).encode()
    assert [*unpack({**BATCHED, headers.X_EVENT: b"batch"}, body)] == json.loads(body)


def test_what_is_not_a_batch_is_an_event_whatever_its_body_is() -> None:
    sent = {headers.X_EVENT: "made-up", headers.X_BATCH_VERSION: 9}
    assert unpack(sent, b"[{") == (sent,)
    assert unpack(None, b"") == ({},)


def test_an_integer_of_more_than_64_bits_is_not_an_integer() -> None:
    [sent] = unpack(BATCHED, b'[{"x-event-time": 100000000000000000000}]')
    assert headers.integer(sent, "x-event-time") is None
    assert headers.integer({"t": 2**63 - 1}, "t") == 2**63 - 1
