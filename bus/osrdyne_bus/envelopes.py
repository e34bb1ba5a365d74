"""A message as the bus sees it, whatever library carries it: a body of bytes and a few fields. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

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


def words(text: str) -> str:
    """Return a reason as a message can carry it: short, and without surrogates, as a file name may have."""
    return text[:MOST_WORDS].encode("utf-8", "replace").decode()
