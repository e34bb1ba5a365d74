"""Checks before a call of pika: names, bindings, arguments; and of headers, before a message waits. Pure.

Each rule prevents something that was measured to close a channel or a whole connection, or to wait for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any

from osrdyne_amqp.codec.frames import NO_PROPERTIES, write_properties, write_short
from osrdyne_amqp.codec.table_writing import write_table
from osrdyne_amqp.errors import Unencodable

#: Bytes reserved for the rest of a declare or consume frame, beside its arguments.
_RESERVED_BYTES = 1024


def check_name(name: str, what: str) -> None:
    """A queue's or exchange's name. Brokers strip line breaks from it: the caller would work on another
    queue.
    """
    if not isinstance(name, str):
        raise Unencodable(f"a {what} name must be text, not {type(name).__name__}")
    if "\n" in name or "\r" in name:
        raise Unencodable(f"a {what} name must not hold line breaks, which brokers strip: {name!r}")
    write_short(name, f"{what} name")


def check_binding(queue: str, exchange: str, routing_key: str) -> None:
    """A binding's three names. A routing key that is not UTF-8 makes brokers close the whole connection
    (501).
    """
    check_name(queue, "queue")
    check_name(exchange, "exchange")
    if not isinstance(routing_key, str):
        raise Unencodable(f"the routing key of a binding must be text, not {type(routing_key).__name__}")
    write_short(routing_key, "routing key")


def checked_arguments(arguments: Mapping[str, Any] | None, frame_max: int) -> dict[str, Any]:
    """Arguments of a declare or consume: pika's codec carries them, and knows fewer types than ours."""
    copy = dict(arguments or {})
    for name, value in copy.items():
        if not isinstance(value, (str, int, bytes, list, dict, NoneType)):
            raise Unencodable(f"argument {name!r} of type {type(value).__name__} cannot be sent")
    if len(write_table(copy)) + _RESERVED_BYTES > frame_max:
        raise Unencodable("the arguments do not fit in one frame")
    return copy


def checked_headers(headers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of a message's headers. Raises Unencodable where AMQP cannot carry them, and not only when they
    are sent.
    """
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise Unencodable(f"headers are a mapping, not {type(headers).__name__}")
    copy = dict(headers)
    write_properties({**NO_PROPERTIES, "headers": copy})
    return copy
