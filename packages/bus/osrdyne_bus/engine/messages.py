"""Envelopes as AMQP 1.0 messages, and back."""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import Any
from uuid import UUID

from proton import Data, Message

from osrdyne_bus.messages import value_count
from osrdyne_bus.messages.envelopes import Envelope, Header, Id

#: Most characters of what is said of an unreadable message.
_MOST_WORDS = 200
#: Codes of sections, and how one of data begins in both encodings of its code.
_DATA_SECTION, _FOOTER = 0x75, 0x78
_DATA, _LONG_DATA = b"\x00\x53\x75", b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75"


class UnreadableMessage(ValueError):
    """A message is not valid AMQP 1.0, or holds what an envelope cannot."""


#: The section that proton leaves out for a body of None.
_NULL_BODY = b"\x00\x53\x77\x40"
#: A body that is one AMQP value: a map or null.
Value = Mapping[str, Any] | None


def encoded(envelope: Envelope, value: Value | EllipsisType = ...) -> bytes:
    """Return the message to send. Its body is one section of data, or text, or the `value` where one is given."""
    body = envelope.body.decode() if envelope.text else envelope.body
    message = Message(body=body, inferred=True) if value is ... else Message(body=value)
    for name in ("id", "correlation_id", "reply_to", "subject", "content_type"):
        if (given := getattr(envelope, name)) is not None:
            setattr(message, name, given)
    if envelope.durable:
        message.durable = True
    if envelope.to is not None:
        message.address = envelope.to
    if envelope.expires is not None:
        message.expiry_time = envelope.expires
    if envelope.headers:
        message.properties = dict(envelope.headers)
    return bytes(message.encode()) + (_NULL_BODY if value is None else b"")


def decoded(data: bytes, *, any_body: bool = False) -> Envelope:
    """Return what a message holds. Raises UnreadableMessage; with `any_body` no more for what a body is.

    A body of text is taken as its UTF-8. Headers of other types than `Header` are left out: they are for others.
    """
    if value_count.exceeds(data):
        raise UnreadableMessage(
            f"the message holds more than {value_count.MOST_VALUES} values, headers and what is in them"
        )
    message = Message()
    try:
        message.decode(data)
        return Envelope(
            body=_joined(data) if _has_parts(data) else _body(message.body, any_body=any_body),
            value=message.body if any_body else None,
            id=_id(message.id),
            correlation_id=_id(message.correlation_id),
            to=message.address or None,
            durable=bool(message.durable),
            reply_to=message.reply_to or None,
            subject=message.subject or None,
            content_type=_content_type(message),
            expires=message.expiry_time or None,
            headers=_headers({**_extensions(message.annotations), **(message.properties or {})}),
        )
    except UnreadableMessage:
        raise
    except Exception as error:  # proton raises what it meets: RecursionError for lists in lists, OverflowError, ...
        raise UnreadableMessage(f"the message cannot be read: {type(error).__name__}: {error}"[:_MOST_WORDS]) from error


def _has_parts(data: bytes) -> bool:
    # Of several data sections proton keeps the last. Their first bytes, in both encodings, may also be within one.
    return data.count(_DATA) + data.count(_LONG_DATA) > 1


def _joined(data: bytes) -> bytes:
    """Return the body of a message that may have several data sections (AMQP 1.0, part 3, section 3.2.6)."""
    parts, others, rest = [], None, data
    while rest:
        section = Data()
        rest = rest[section.decode(rest) :]
        section.rewind()
        section.next()
        found = section.get_py_described()
        if int(found.descriptor) == _DATA_SECTION:
            parts.append(bytes(found.value))
        elif int(found.descriptor) > _DATA_SECTION and int(found.descriptor) != _FOOTER:
            others = found.value
    return b"".join(parts) if parts else _body(others)


def _content_type(message: Message) -> str | None:
    # proton 0.40 makes the text "None" of a field that is not there.
    found = str(message.content_type or "")
    return None if found in ("", "None") else found


def _body(body: Any, *, any_body: bool = False) -> bytes:
    body = _own(b"" if body is None else body)
    if isinstance(body, str):
        return body.encode()
    if not isinstance(body, bytes):
        if any_body:
            return b""
        raise UnreadableMessage(f"its body is {type(body).__name__}; send bytes or text")
    return body


def _id(found: Any) -> Id | None:
    found = _own(found)
    return found if isinstance(found, (str, bytes, int, UUID)) else None


#: Annotations that RabbitMQ adds itself.
_OF_THE_BROKER = ("x-exchange", "x-routing-key", "x-opt-")


def _extensions(annotations: object) -> dict[str, Any]:
    # RabbitMQ makes annotations of headers that begin with x- when it turns AMQP 0-9-1 into AMQP 1.0
    # (www.rabbitmq.com/docs/conversions).
    if not isinstance(annotations, Mapping):
        return {}
    found = {str(name): value for name, value in annotations.items()}
    return {
        name: value for name, value in found.items() if name.startswith("x-") and not name.startswith(_OF_THE_BROKER)
    }


def _headers(properties: Mapping[Any, Any]) -> dict[str, Header]:
    found = {str(name): _own(value) for name, value in properties.items()}
    return {name: value for name, value in found.items() if isinstance(value, Header)}


def _own(value: Any) -> Any:
    # proton gives bytes as views of its own memory.
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value
