"""What callers give, checked before anything is written, stored or sent for it. Pure."""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, Iterable, Mapping
from pathlib import Path

from osrdyne_protocol.durations import timeout_of
from osrdyne_protocol.errors import InvalidTimeout
from osrdyne_protocol.headers import X_DEADLINE
from osrdyne_relay.errors import InvalidCall, TooLarge
from osrdyne_relay.messages import Request, is_deadline
from osrdyne_relay.redis import records
from osrdyne_relay.redis.records import RequestHeader, StreamNote

#: Longest time that a request may wait for a node, in seconds. The life of an endpoint stays for longer.
MOST_PICKUP_SECONDS = 43_200.0
#: Stands for the parts of a header that the relay makes.
_ID = "0" * 32
_STREAM = StreamNote(id=_ID, size=0)


def checked_timeouts(timeout: float | None, pickup_timeout: float | None) -> tuple[float | None, float | None]:
    """Return both timeouts of a call in seconds; None for a call without an end, and for the setting's pickup timeout.

    Raises InvalidCall.
    """
    try:
        whole = math.inf if timeout is None else timeout_of(timeout)
        pickup = None if pickup_timeout is None else timeout_of(pickup_timeout, "pickup_timeout")
    except InvalidTimeout as error:
        raise InvalidCall(str(error)) from None
    if pickup is not None and pickup > MOST_PICKUP_SECONDS:
        raise InvalidCall(
            f"pickup_timeout={pickup:g} is more than {MOST_PICKUP_SECONDS:g} s, the longest that a request waits"
        )
    return (None if whole == math.inf else whole), pickup


def checked_wait(wait: object) -> float:
    """Return the seconds that a worker waits for a request. Raises InvalidCall."""
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not wait >= 0:
        raise InvalidCall(f"wait={wait!r} is not a number of seconds; math.inf is a wait without an end")
    return wait


def checked_request(request: Request | bytes, most: int | None = None) -> Request:
    """Return a request that can be sent, in a record of `most` bytes. Raises InvalidCall or TooLarge."""
    whole = request if isinstance(request, Request) else Request(request)
    body = records.checked_body(whole.body)
    mappings: tuple[object, object] = whole.headers, whole.streams
    if not all(isinstance(mapping, Mapping) for mapping in mappings):
        raise InvalidCall("headers are a mapping of text by name, and streams one of sources")
    for name, source in whole.streams.items():
        if isinstance(source, (str, bytes, bytearray, memoryview)) or not isinstance(
            source, (Path, Iterable, AsyncIterable)
        ):
            raise InvalidCall(f"data stream {name!r} is a Path or chunks of bytes, not {type(source).__name__}")
    headers = dict(whole.headers)
    if X_DEADLINE in headers and not is_deadline(headers[X_DEADLINE]):
        raise InvalidCall(f"header {X_DEADLINE} is the milliseconds since 1970 as digits")
    names = dict.fromkeys(whole.streams, _STREAM)
    header = records.made(RequestHeader, id=_ID, endpoint="-", node=_ID, life=_ID, headers=headers, streams=names)
    size = len(records.encode(header, b"", records.MOST_HEADER * 2))
    if most is not None and size + len(body) > most:
        raise TooLarge(f"a record of {size + len(body)} bytes, {most} at most: send the body as a data stream")
    return Request(body, headers, whole.streams)
