"""What goes between nodes, workers and clients: whatever is written is read again, and nothing else is believed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_relay import wire
from osrdyne_relay.errors import (
    CallRefused,
    CallTimedOut,
    Cancelled,
    InvalidCall,
    NodeFailed,
    RedisAway,
    Stage,
    TooLarge,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
json_like = st.recursive(
    st.none() | st.booleans() | st.floats() | texts, lambda value: st.lists(value) | st.dictionaries(texts, value)
)


@given(st.dictionaries(texts, texts, max_size=5))
def test_headers_are_read_as_they_were_written_and_fit_into_an_http_header(headers: dict[str, str]) -> None:
    written = wire.dump_headers(headers)

    assert wire.load_headers(written) == headers
    assert written.isascii()
    assert written.isprintable()


def test_headers_that_do_not_fit_or_are_none_are_refused() -> None:
    with pytest.raises(TooLarge):
        wire.dump_headers({"x": "ä" * 4000})
    for text in ("[", "[]", "1", '{"a": 1}', '{"a": {}}', "[" * 10_000):
        with pytest.raises(InvalidCall):
            wire.load_headers(text)
    assert wire.load_headers(None) == wire.load_headers("") == {}


@given(st.dictionaries(texts, texts, max_size=5), st.binary(max_size=200))
def test_a_frame_is_read_as_it_was_written(head: dict[str, str], body: bytes) -> None:
    assert wire.unframe(wire.frame(head, body)) == (head, body)


@given(st.binary(max_size=100) | json_like.map(lambda value: json.dumps(value).encode()))
def test_of_any_bytes_comes_a_head_or_an_error(data: bytes) -> None:
    try:
        head, _ = wire.unframe(data)
    except InvalidCall:
        return
    assert isinstance(head, dict)


@given(json_like)
def test_of_any_answer_comes_an_error_of_ours(said: object) -> None:
    assert isinstance(wire.error_of(500, json.dumps(said).encode()), NodeFailed)


def test_every_code_is_an_error_that_a_client_can_raise() -> None:
    for code, status in wire.STATUS_OF.items():
        said = {"code": code, "error": "why", "stage": "never collected", "timeout": 1}
        assert type(wire.error_of(status, json.dumps(said).encode())).__name__ == code
    for body in (b"", b'{"code": "RelayError", "error": "x"}', b'{"code": "os", "error": "x"}', b"\xff", b"[" * 10_000):
        assert isinstance(wire.error_of(500, body), NodeFailed)


def test_an_error_is_read_as_it_was_written() -> None:
    for error in (Cancelled(Stage.WHILE_RUNNING), CallTimedOut(Stage.NEVER_COLLECTED, 2.5), InvalidCall("why")):
        read = wire.error_in(wire.problem(error))
        assert (type(read), str(read)) == (type(error), str(error))
    assert "10.0.0.1" not in wire.problem(RedisAway("no answer of 10.0.0.1:6379"))["error"]


def test_a_path_has_its_endpoint_and_times_in_the_query() -> None:
    path = wire.path(wire.CALL, "maps/L X?&=#é", timeout=1234567.5, pickup_timeout=None)

    assert path == "/v1/call?endpoint=maps%2FL%20X%3F%26%3D%23%C3%A9&timeout=1234567.5"


def test_the_text_of_a_refusal_has_the_reason_and_the_first_line_of_what_the_worker_said() -> None:
    assert str(CallRefused("error", "it failed", b"KeyError: '9'\nmore")) == (
        "the worker answered 'error': it failed: KeyError: '9'"
    )
    assert str(CallRefused("rejected", "")) == "the worker answered 'rejected'"
