"""JSON that others wrote: the one way in which osrdyne reads it. Pure.

What comes out is safe to compare, to write again and to walk through. Of a name that comes twice in an object, the last
counts, as in most readers: an answer of an engine may repeat names that its users chose. Files that osrdyne wrote
itself are read with `json`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from osrdyne_protocol.errors import ProtocolError

#: Objects and arrays within each other. Writing a value again must not reach Python's limit, wherever that happens.
MOST_DEPTH = 64
#: Bytes of a document, or characters of a text, unless its reader says otherwise.
MOST_BYTES = 1_000_000
#: For answers of an engine, which list all that it has.
MOST_BYTES_OF_ENGINES = 256_000_000

#: Escaped, or as it is: a text from an environment can hold that.
_SURROGATE = re.compile("\\\\u[dD][89a-fA-F]|[\ud800-\udfff]")


class UnreadableJson(ProtocolError):
    """This is not JSON, or it holds what cannot be taken in."""


def read(data: bytes | str, *, most: int = MOST_BYTES, halves: bool = False) -> Any:
    r"""Return the value that a document holds, of `most` bytes at most.

    Raises `UnreadableJson` for

    - what is not UTF-8, or not JSON: also `NaN`, `Infinity`, and a byte order mark;
    - more than `MOST_DEPTH` objects and arrays within each other;
    - a number beyond what a double holds: 308 digits, or 1.8e308. Integers are exact: check where 64 bits are needed;
    - half of a surrogate pair (`"\ud800"`), which nothing can encode again; with `halves` the caller sorts that out.
    """
    if len(data) > most:
        raise UnreadableJson(f"it has {len(data)} bytes, of at most {most}")
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
        value = _decode(text)
    except UnicodeDecodeError as error:
        raise UnreadableJson(f"it is not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise UnreadableJson(f"it is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise UnreadableJson(_TOO_DEEP) from None
    # No document is deeper than it has brackets: most need no second look.
    if text.count("[") + text.count("{") > MOST_DEPTH and _is_deep(value):
        raise UnreadableJson(_TOO_DEEP)
    if not halves and _SURROGATE.search(text) and not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise UnreadableJson("a text holds half of a surrogate pair")
    return value


def is_unicode(text: str) -> bool:
    """Say whether a text can be encoded: without halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_TOO_DEEP = f"more than {MOST_DEPTH} objects and arrays are within each other"
#: A longer integer may be beyond a double, and takes Python a time that grows with the square of its length.
_MOST_DIGITS = 308


def _integer(text: str) -> int:
    if len(text.removeprefix("-")) > _MOST_DIGITS:
        raise UnreadableJson(f"the number {text[:20]}… is too large")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise UnreadableJson(f"the number {text[:20]} is too large")
    return number


def _constant(name: str) -> Any:
    raise UnreadableJson(f"it is not JSON: {name}, which JSON does not have")


_decode = json.JSONDecoder(parse_float=_float, parse_int=_integer, parse_constant=_constant).decode


def _is_deep(value: Any) -> bool:
    """Say whether a value has more levels than allowed. Level by level: no call within a call."""
    level = _containers([value])
    for _ in range(MOST_DEPTH):
        level = [
            within
            for container in level
            for within in _containers(container.values() if type(container) is dict else container)
        ]
    return bool(level)


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if type(value) is dict or type(value) is list]
