"""JSON of others: what is read, and what is refused with the reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from osrdyne_protocol import foreign_json
from osrdyne_protocol.foreign_json import MOST_DEPTH, UnreadableJson, read

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**307), 10**308 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda within: st.lists(within, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), within),
    max_leaves=20,
)


@given(VALUES, st.booleans())
@example(value=-(10**307), ascii_only=True)
def test_what_json_can_say_comes_out_as_it_went_in(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert read(text) == value
    assert read(text.encode()) == value


@pytest.mark.parametrize("left, right", [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_a_document_may_be_so_deep_and_no_deeper(left: str, right: str) -> None:
    levels = MOST_DEPTH // len(right)
    read(left * levels + "1" + right * levels)
    for more in (1, 100, 100_000):
        with pytest.raises(UnreadableJson, match=f"more than {MOST_DEPTH} objects and arrays"):
            read(left * (levels + more) + "1" + right * (levels + more))
    with pytest.raises(UnreadableJson, match=f"more than {MOST_DEPTH} objects and arrays|is not JSON"):
        read(left * 100_000)


def test_brackets_in_texts_and_many_beside_each_other_are_not_deep() -> None:
    beside = [["[" * 500]] * 1000
    assert read(json.dumps(beside)) == beside


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"", "is not JSON: Expecting value"),
        (b"{} {}", "is not JSON: Extra data"),
        (b"\xff", "is not UTF-8: invalid start byte at byte 0"),
        ("{}".encode("utf-16"), "is not UTF-8"),
        (b"\xef\xbb\xbf{}", "is not JSON"),
        (b"[NaN]", "is not JSON: NaN"),
        (b"[-Infinity]", "is not JSON: -Infinity"),
        (b"[1e999]", "the number 1e999 is too large"),
        (b"[" + b"9" * 309 + b"]", "the number 99999999999999999999… is too large"),
        (b"9" * 100_000, "the number 99999999999999999999… is too large"),
        (b'{"\\ud800": 1}', "half of a surrogate pair"),
        (b'["\\ud83d\\ude00", "\\uDE00"]', "half of a surrogate pair"),
    ],
)
def test_what_cannot_be_taken_in_is_refused_with_the_reason(document: bytes, why: str) -> None:
    with pytest.raises(UnreadableJson, match=why) as raised:
        read(document)
    assert len(str(raised.value)) < 150


def test_an_integer_is_exact_up_to_the_size_of_a_double() -> None:
    assert read(b"9" * 308) == 10**308 - 1
    assert float(read(b"9" * 308)) > 0


def test_of_a_name_that_comes_twice_the_last_counts() -> None:
    assert read('{"a": 1, "b": 2, "a": 3}') == {"a": 3, "b": 2}


def test_a_document_has_a_largest_size() -> None:
    assert read(b"[1]", most=3) == [1]
    with pytest.raises(UnreadableJson, match="it has 4 bytes, of at most 3"):
        read(b"[10]", most=3)
    with pytest.raises(UnreadableJson, match="of at most 1000000"):
        read(b'"' + b"x" * 1_000_000 + b'"')


def test_halves_of_surrogate_pairs_are_left_to_who_asks_for_them() -> None:
    assert read(b'["\\ud800", "\\ud83d\\ude00"]', halves=True) == ["\ud800", "😀"]
    assert not foreign_json.is_unicode("\ud800")
    with pytest.raises(UnreadableJson, match="half of a surrogate pair"):
        read('["\ud800"]')
