"""What a worker does with one request: refuse it, or run the handler and turn its result into an outcome.

Pure except for the handler and the wall clock of deadlines: no broker here. `invoke` can run in any thread or process,
because it takes and returns plain values.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from osrdyne_protocol import statuses
from osrdyne_protocol.events import REQUEUED
from osrdyne_protocol.headers import X_DEADLINE, integer
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as a handler gets it."""

    key: str
    body: bytes
    #: All headers as the client sent them.
    headers: Mapping[str, Any]
    #: The client's id for the call; None when a foreign client sends none.
    correlation_id: str | None
    #: It was delivered to a worker before, which failed, lost its connection, or gave it back.
    redelivered: bool
    #: Moment after which the caller no longer waits, in seconds since the Unix epoch; None without a deadline.
    deadline: float | None


class Requeue(Exception):
    """The request cannot be processed here and now: it goes back to its queue and counts towards the delivery limit."""


class Reject(Exception):
    """The request must not be processed, here or elsewhere: its client gets the status `rejected` and the reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class WorkerError(Exception):
    """The request was processed and has no good answer: its client gets the status `error` with this body."""

    def __init__(self, body: bytes = b"", reason: str | None = None) -> None:
        super().__init__(body, reason)
        self.body = body
        self.reason = reason


Handler = Callable[[Request], bytes | None] | Callable[[Request], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a request: a reply with this status, or back to the queue (`requeued`, which is not a status)."""

    status: str = statuses.OK
    body: bytes = b""
    #: A sentence for a person, where the status is not `ok`.
    reason: str | None = None
    #: Module and name of the class of exception that the handler raised. The bus passes it on to the caller, a worker
    #: of a pool to readers of its events.
    error: str | None = None


def deadline_of(headers: Mapping[str, Any]) -> float | None:
    """Return the request's deadline in seconds since the Unix epoch; None unless the header is an integer."""
    milliseconds = integer(headers, X_DEADLINE)
    return None if milliseconds is None else milliseconds / 1000


def expired(deadline: float | None, now: float, who: str = "worker") -> Outcome | None:
    """Return the outcome of a request whose deadline has passed at `now` (wall clock), else None."""
    if deadline is None or now < deadline:
        return None
    late = now - deadline
    return Outcome(statuses.EXPIRED, reason=f"the deadline passed {late:.1f} s before a {who} could begin")


def invoke(handler: Callable[[Request], bytes | None], request: Request) -> Outcome:
    """Run a plain handler. Never raises, whatever the handler raises."""
    late = expired(request.deadline, time.time())
    if late is not None:
        return late
    try:
        return _answer(handler(request))
    except BaseException as error:  # noqa: BLE001 - a handler must not end the worker
        return _failure(request, error)


async def invoke_async(handler: Callable[[Request], Awaitable[bytes | None]], request: Request) -> Outcome:
    """Run an `async def` handler. Raises only CancelledError."""
    late = expired(request.deadline, time.time())
    if late is not None:
        return late
    try:
        return _answer(await handler(request))
    except Exception as error:  # noqa: BLE001
        return _failure(request, error)


def _answer(result: object) -> Outcome:
    if result is None:
        return Outcome(statuses.OK)
    if isinstance(result, bytes):
        return Outcome(statuses.OK, result)
    if isinstance(result, bytearray | memoryview):
        return Outcome(statuses.OK, bytes(result))
    raise TypeError(f"the handler returned {type(result).__name__}; return bytes, or None for an empty answer")


def _failure(request: Request, error: BaseException) -> Outcome:
    if isinstance(error, Requeue):
        return Outcome(REQUEUED)
    # A class of the user's may not have called our __init__.
    if isinstance(error, Reject):
        return Outcome(statuses.REJECTED, reason=getattr(error, "reason", None) or None)
    if isinstance(error, WorkerError):
        return Outcome(statuses.ERROR, getattr(error, "body", b""), getattr(error, "reason", None))
    log.error(
        "handler failed",
        extra={"key": request.key, "request_id": request.correlation_id},
        exc_info=(type(error), error, error.__traceback__),
    )
    # Type and message help a client's author; a traceback is for the worker's log only.
    text = f"{type(error).__name__}: {text_of(error)}"[:1000]
    body = text.encode("utf-8", "replace")
    return Outcome(statuses.ERROR, body, reason="the handler raised an exception", error=class_name(type(error)))


def class_name(kind: type[BaseException]) -> str:
    """Return module and name of a class, as in `x-error`."""
    return f"{kind.__module__}.{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    """Return the text of an exception; none where its class raises instead."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a handler must not end the worker
        return ""


def error_if_too_large(outcome: Outcome, limit: int) -> Outcome:
    """Return the outcome, or an error in its place when its body is larger than `limit` bytes."""
    if len(outcome.body) <= limit:
        return outcome
    reason = f"the reply has {len(outcome.body)} bytes; this worker sends at most {limit} (max_body)"
    return Outcome(statuses.ERROR, reason=reason)
