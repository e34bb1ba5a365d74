"""The key codec: AMQP routing key to key and back, and the part of a queue name that stands for a key.

A key is any UTF-8 string of 0 to 255 bytes without NUL. The binding always uses the key itself; only names
of objects are derived, because brokers strip line breaks from names and hold them to 255 bytes.
"""

from __future__ import annotations

import hashlib
import unicodedata

from osrdyne_protocol.errors import InvalidKey

#: Longest AMQP short string (routing key, queue name), in bytes.
SHORT_STRING_BYTES = 255

#: First character of the hashed form of a key in a queue name; keys that begin with it are hashed too.
HASH_MARK = "~"

#: A key that would give a request queue the name ending of the request exchange.
RESERVED_KEY = "xchg"


def decode(routing_key: str | bytes) -> str:
    """Return the key that a routing key names.

    `bytes` is what an AMQP client hands over when the routing key is not UTF-8 text.
    Raises `InvalidKey` for NUL, for invalid UTF-8, for more than 255 bytes, and for what is not text.
    """
    if not isinstance(routing_key, (str, bytes)):
        raise InvalidKey(f"a key is text, not {type(routing_key).__name__}")
    try:
        raw = routing_key if isinstance(routing_key, bytes) else routing_key.encode("utf-8")
        key = raw.decode("utf-8")
    except UnicodeError as error:
        raise InvalidKey(f"key {routing_key!r} is not UTF-8 text; send a UTF-8 routing key") from error
    if len(raw) > SHORT_STRING_BYTES:
        raise InvalidKey(f"key of {len(raw)} bytes; a routing key holds at most {SHORT_STRING_BYTES}")
    if "\0" in key:
        raise InvalidKey("key holds NUL, which no worker environment can carry; send a key without it")
    return key


def name_part(key: str, room: int) -> str:
    """Return what stands for `key` at the end of an object's name that has `room` bytes left for it.

    The key itself where that is safe, else `~` and 32 hexadecimal digits of its SHA-256 (128 bits).
    """
    unsafe = (
        key == RESERVED_KEY
        or key.startswith(HASH_MARK)
        or len(key.encode("utf-8")) > room
        # What is printable has none of these; to look at each character costs more than all the rest.
        or (not key.isprintable() and any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in key))
    )
    return HASH_MARK + digest(key)[:32] if unsafe else key


def digest(*parts: str) -> str:
    """Return the SHA-256 of the parts as hexadecimal digits; NUL, which no key holds, separates the parts."""
    return hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest()
