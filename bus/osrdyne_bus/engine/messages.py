"""Envelopes as AMQP 1.0 messages, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from proton import Message, ProtonException

from osrdyne_bus.envelopes import Envelope, Header, Id

#: Most characters of what is said of an unreadable message.
_MOST_WORDS = 200


class UnreadableMessage(ValueError):
    """A message is no AMQP 1.0, or holds what an envelope cannot."""


def encoded(envelope: Envelope) -> bytes:
    """Return the message to send. Its body is one section of data."""
    message = Message(body=envelope.body, inferred=True)
    for name in ("id", "correlation_id", "reply_to", "subject", "content_type"):
        if (value := getattr(envelope, name)) is not None:
            setattr(message, name, value)
    if envelope.expires is not None:
        message.expiry_time = envelope.expires
    if envelope.headers:
        message.properties = dict(envelope.headers)
    return bytes(message.encode())


def decoded(data: bytes) -> Envelope:
    """Return what a message holds. Raises UnreadableMessage.

    A body of text is taken as its UTF-8. Headers of other types than `Header` are left out: they are for others.
    """
    message = Message()
    try:
        message.decode(data)
        return Envelope(
            body=_body(message.body),
            id=_id(message.id),
            correlation_id=_id(message.correlation_id),
            reply_to=message.reply_to or None,
            subject=message.subject or None,
            content_type=_content_type(message),
            expires=message.expiry_time or None,
            headers=_headers(message.properties or {}),
        )
    except (ProtonException, UnicodeError, ValueError, TypeError, AttributeError) as error:
        raise UnreadableMessage(f"the message cannot be read: {error}"[:_MOST_WORDS]) from error


def _content_type(message: Message) -> str | None:
    # proton 0.40 makes the text "None" of a field that is not there.
    found = str(message.content_type or "")
    return None if found in ("", "None") else found


def _body(body: Any) -> bytes:
    body = _own(b"" if body is None else body)
    if isinstance(body, str):
        return body.encode()
    if not isinstance(body, bytes):
        raise UnreadableMessage(f"its body is {type(body).__name__}; send bytes or text")
    return body


def _id(found: Any) -> Id | None:
    found = _own(found)
    return found if isinstance(found, (str, bytes, int, UUID)) else None


def _headers(properties: Mapping[Any, Any]) -> dict[str, Header]:
    found = {str(name): _own(value) for name, value in properties.items()}
    return {name: value for name, value in found.items() if isinstance(value, Header)}


def _own(value: Any) -> Any:
    # proton gives bytes as views of its own memory.
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value
