"""How many values a message of AMQP 1.0 holds, by its bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_bus.messages.value_count import exceeds

#: What is encoded, and how many values that is.
ENCODED = {
    "null": (b"\x40", 1),
    "a number of each width": (b"\x50\x01\x60\x00\x01\x70" + bytes(4) + b"\x80" + bytes(8) + b"\x98" + bytes(16), 5),
    "a long text": (b"\xb1\x00\x01\x00\x00" + b"\x40" * 65536, 1),
    "a short binary": (b"\xa0\x04" + b"\x40" * 4, 1),
    "a section of data": (b"\x00\x53\x75\xa0\x03abc", 3),
    "a list of three": (b"\xc0\x04\x03\x40\x41\x42", 4),
    "a list of lists": (b"\xc0\x04\x03\x45\x45\x45", 4),
    "a map of one": (b"\xd1\x00\x00\x00\x08\x00\x00\x00\x02\xa1\x01k\x41", 3),
    "an array of five without bytes": (b"\xe0\x02\x05\x41", 6),
    "a long array of three": (b"\xf0\x00\x00\x00\x08\x00\x00\x00\x03\x50\x01\x02\x03", 4),
}


@pytest.mark.parametrize("data,values", ENCODED.values(), ids=ENCODED.keys())
def test_values_are_counted_as_they_are_encoded(data: bytes, values: int) -> None:
    assert exceeds(data, values - 1)
    assert not exceeds(data, values)
    assert exceeds(data * 2, 2 * values - 1)
    assert not exceeds(data * 2, 2 * values)


@given(st.binary(max_size=200), st.integers(0, 20))
def test_any_bytes_are_counted(data: bytes, most: int) -> None:
    assert exceeds(data, most) in (True, False)
    assert not exceeds(data, 2**40)
