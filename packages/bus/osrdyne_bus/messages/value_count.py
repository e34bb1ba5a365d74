"""How many values an AMQP 1.0 message holds, found without making them. Pure.

Each value costs proton and Python the same, however few bytes it has: 100 kB of booleans hold up an event loop for as
long as 10 MB of text. The formats are those of AMQP 1.0, part 1, section 1.2.
"""

from __future__ import annotations

#: Values of a message that is taken: fields, names, headers, and what headers hold.
MOST_VALUES = 2000

#: The upper half of a format code -> bytes of such a value.
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
#: -> bytes of the size, of a value that has one: text and binary, then lists and maps, then arrays.
_VARIABLE = {0xA: 1, 0xB: 4}
_COMPOUND = {0xC: 1, 0xD: 4}
_ARRAY = {0xE: 1, 0xF: 4}


def exceeds(data: bytes, most: int = MOST_VALUES) -> bool:
    """Say whether a message holds more than `most` values. What is not AMQP counts up to there."""
    at = count = 0
    while at < len(data) and count <= most:
        code = data[at] >> 4
        at += 1
        count += 1
        if code in _FIXED:
            at += _FIXED[code]
        elif code in _COMPOUND:  # its values follow its size and count
            at += 2 * _COMPOUND[code]
        elif width := _VARIABLE.get(code):
            at += width + int.from_bytes(data[at : at + width])
        elif width := _ARRAY.get(code):
            # The values of an array may have no bytes at all.
            count += int.from_bytes(data[at + width : at + 2 * width])
            at += width + int.from_bytes(data[at : at + width])
        elif code:  # a descriptor (0x00) is followed by two values
            break
    return count > most
