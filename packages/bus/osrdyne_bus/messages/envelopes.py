"""A message as the bus sees it, whatever library carries it: a body of bytes and a few fields. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from uuid import UUID

from osrdyne_bus.errors import UnsendableMessage

#: What a message may be called. A reply has to repeat it with its type.
Id = str | bytes | int | UUID
#: What a header may hold.
Header = str | int | float | bool | bytes

#: Most characters of a reason.
MOST_WORDS = 1000


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message. Its fields are those of AMQP 1.0, part 3, sections 3.2.4 and 3.2.5; None where one is not there."""

    body: bytes = b""
    #: Whether the body is sent as text, and is UTF-8.
    text: bool = False
    #: A body that is neither bytes nor text, in messages of the peer itself.
    value: object = None
    id: Id | None = None
    correlation_id: Id | None = None
    #: Where it goes, over a link that is for any address. Elsewhere the link says so.
    to: str | None = None
    reply_to: str | None = None
    #: Whether a broker writes it to disk where its queue can lose messages. Quorum queues keep every message.
    durable: bool = False
    subject: str | None = None
    content_type: str | None = None
    #: When the message is of no use any more, in seconds since 1970.
    expires: float | None = None
    #: The application properties.
    headers: Mapping[str, Header] = field(default_factory=lambda: MappingProxyType({}))


def checked_body(body: bytes) -> bytes:
    """Return a body. Raises UnsendableMessage where it is not bytes."""
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise UnsendableMessage(f"a body is bytes, not {type(body).__name__}; nothing was sent")
    return bytes(body)


def checked_headers(headers: Mapping[Any, Any]) -> dict[str, Header]:
    """Return a copy of headers. Raises UnsendableMessage for what application properties cannot hold."""
    if not isinstance(headers, Mapping):
        raise UnsendableMessage(f"headers are a mapping, not {type(headers).__name__}; nothing was sent")
    found = dict(headers)
    for name, value in found.items():
        if not (isinstance(name, str) and isinstance(value, Header) and _fits(name) and _fits(value)):
            raise UnsendableMessage(
                f"header {name!r} cannot be sent, and nothing was: names are text, and values text, bytes, a bool, a "
                "float, or an integer of 64 bits"
            )
    return found


def _fits(value: Header) -> bool:
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def words(text: str) -> str:
    """Return a reason as a message can carry it: short, and without surrogates, as a file name may have."""
    return text[:MOST_WORDS].encode("utf-8", "replace").decode()
