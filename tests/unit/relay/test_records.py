"""Records of the relay: what is written is read, and whatever else is read is a typed error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_relay.errors import InvalidCall, TooLarge, UnreadableRecord
from osrdyne_relay.redis import records
from osrdyne_relay.redis.records import RequestHeader, ResponseHeader, StreamNote

ID = "0123456789abcdef" * 2
MOST = 1_000_000
REQUEST = RequestHeader(id=ID, endpoint="maps/LAX", node=ID, life=ID, headers={"a": "ä"})
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.binary(max_size=200), st.dictionaries(TEXT.filter(bool), TEXT, max_size=4))
def test_a_record_is_read_as_it_was_written(body: bytes, headers: dict[str, str]) -> None:
    request = RequestHeader(
        id=ID, endpoint="e", node=ID, life=ID, headers=headers, streams={"s": StreamNote(id=ID, size=5)}
    )
    response = ResponseHeader(status="failed", reason="no", headers=headers)

    assert records.decode(RequestHeader, records.encode(request, body, MOST), MOST) == (request, body)
    assert records.decode(ResponseHeader, records.encode(response, body, MOST), MOST) == (response, body)


@given(st.binary(max_size=300), st.integers(0, 200), st.binary(max_size=4))
def test_whatever_is_read_is_a_record_or_a_typed_error(noise: bytes, at: int, change: bytes) -> None:
    whole = records.encode(REQUEST, b"body", MOST)
    for raw in (noise, records.VERSION + noise, whole[:at] + change + whole[at + len(change) :], whole[:at]):
        for kind in (RequestHeader, ResponseHeader):
            try:
                header, _ = records.decode(kind, raw, MOST)
            except UnreadableRecord:
                continue
            assert isinstance(header, kind)


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b"[" * 60_000,
        b'{"id": "' + b"f" * 33 + b'"}',
        b'{"id": 1e999}',
        b'{"id":"%s","endpoint":"e","node":"../../x","life":"%s"}' % (ID.encode(), ID.encode()),
        b'{"id":"%s\\n","endpoint":"e","node":"%s","life":"%s"}' % ((ID.encode(),) * 3),
        b'{"id":"%s","endpoint":"e","node":"%s","life":"%s","streams":{"s":{"id":"%s","size":-1}}}'
        % ((ID.encode(),) * 4),
        b"\xff\xfe",
    ],
)
def test_a_header_that_is_none_of_ours_is_refused(text: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        records.decode(RequestHeader, records.VERSION + len(text).to_bytes(4) + text, MOST)


def test_a_record_of_a_later_version_names_both_versions() -> None:
    with pytest.raises(UnreadableRecord, match=r"OR2.*OR1"):
        records.decode(ResponseHeader, b"OR2\0\0\0\0", MOST)


def test_fields_that_a_later_version_adds_are_ignored() -> None:
    text = b'{"status":"ok","colour":"blue"}'

    header, body = records.decode(ResponseHeader, records.VERSION + len(text).to_bytes(4) + text + b"x", MOST)

    assert (header.status, body) == ("ok", b"x")


def test_the_size_of_a_record_is_bounded_both_ways() -> None:
    with pytest.raises(TooLarge, match="data stream"):
        records.encode(REQUEST, b"x" * 1000, 1000)
    with pytest.raises(TooLarge, match="headers"):
        records.encode(ResponseHeader(headers={f"{n}": "x" * 16_000 for n in range(5)}), b"", MOST)
    with pytest.raises(UnreadableRecord, match="most_bytes"):
        records.decode(RequestHeader, records.encode(REQUEST, b"x" * 1000, 2000), 1000)


def test_a_header_that_callers_give_is_checked_without_showing_its_value() -> None:
    with pytest.raises(InvalidCall, match="headers") as error:
        records.made(ResponseHeader, headers={"a": "hidden" * 5000})
    assert "hidden" not in str(error.value)
