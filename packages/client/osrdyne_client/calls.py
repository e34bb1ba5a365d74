"""A call on its way, and what the end of a link means for it. Pure."""

from __future__ import annotations

import asyncio
import concurrent.futures
import enum
import re
from dataclasses import dataclass
from typing import Any

from osrdyne_amqp import Properties
from osrdyne_amqp.errors import AccessRefused, BrokerError, Nacked, NotFound, Returned
from osrdyne_calls.errors import BodyTooLarge, Unconfirmed, Undeliverable

#: What the clients hand in; the dispatcher sets a result or an exception.
Future = asyncio.Future[Any] | concurrent.futures.Future[Any]

#: A request is given up after the broker closed a channel this often while the request was outstanding.
MOST_COMPLAINTS = 3
#: Reply code of a connection that an operator or the broker's shutdown closed: not caused by a request.
CONNECTION_FORCED = 320

_TOO_LARGE = re.compile(r"message size (\d+) is larger than configured max size (\d+)")


class State(enum.Enum):
    """How far a request got."""

    UNSENT = 1
    SENT = 2
    #: Confirmed by the broker; or just sent, where confirms are off.
    ACCEPTED = 3


@dataclass(slots=True, eq=False)
class PendingCall:
    """One request on its way, with everything that is needed to send it again. `timeout` in seconds."""

    key: str
    body: bytes
    future: Future
    timeout: float
    wants_reply: bool
    state: State = State.UNSENT
    #: It left at least once.
    left: bool = False
    complaints: int = 0
    correlation_id: str = ""
    properties: Properties | None = None
    timer: asyncio.TimerHandle | None = None
    #: When its deadline passes, on the loop's clock; None for a call that has none.
    expires: float | None = None
    #: Its confirm while the request may still wait for a channel; cancelling it then prevents the send.
    leaving: asyncio.Future[None] | None = None


def failure(call: PendingCall, error: BaseException, *, resend: bool) -> BaseException | None:
    """Return the error of a call whose publish failed with `error`; None when it is to be published again.

    Counts the broker's complaints in the call, so that a request ends that the broker refuses for unknown reasons.
    """
    if isinstance(error, Returned | NotFound):
        return undeliverable(error)
    if isinstance(error, Nacked):
        return Nacked(f"the broker did not accept the request for key {call.key!r}: its queue is full")
    if isinstance(error, AccessRefused) or not isinstance(error, BrokerError):
        return error
    large = _TOO_LARGE.search(str(error))
    if large and int(large[1]) == len(call.body):
        return BodyTooLarge(
            f"body of {large[1]} bytes; this broker takes at most {large[2]} (max_message_size)",
            size=int(large[1]),
            limit=int(large[2]),
        )
    if not resend:
        return Unconfirmed(f"the broker may have the request for key {call.key!r} or not: {error}")
    if not large and error.code not in (0, CONNECTION_FORCED):
        call.complaints += 1
    return error if call.complaints >= MOST_COMPLAINTS else None


def undeliverable(error: BrokerError) -> Undeliverable:
    """Return the error for a returned request or a missing exchange."""
    result = Undeliverable(
        f"nothing takes requests: the pool is not set up in this virtual host ({error}); apply its topology, "
        "and check it with `osrdyne lint`"
    )
    result.__cause__ = error
    return result
