"""How requests, replies and notifications look as messages. Pure.

| | request | reply | notification |
|---|---|---|---|
| `message-id` | the call; none for a cast | | |
| `reply-to` | where the reply goes; none for a cast | | |
| `correlation-id` | | the request's `message-id` | |
| `subject` | the method | | the type of the event |
| headers | `x-namespace`, `x-version`, `x-deadline` | `x-status`, `x-reason`, `x-error` | `x-publisher` |

`x-status`, `x-reason`, `x-error` and `x-deadline` are those of pools (`osrdyne_protocol.headers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from osrdyne_bus.messages.envelopes import Envelope, Header, Id
from osrdyne_calls.errors import RemoteError
from osrdyne_calls.handling import Outcome, deadline_of
from osrdyne_calls.replies import Reply, answer_of
from osrdyne_protocol.headers import X_DEADLINE, X_ERROR, X_REASON, X_STATUS, text
from osrdyne_protocol.statuses import OK

X_NAMESPACE = "x-namespace"
X_VERSION = "x-version"
X_PUBLISHER = "x-publisher"

#: What a request asks for that names no version.
DEFAULT_VERSION = "1.0"
NO_HEADERS: Mapping[str, Header] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class BusRequest:
    """A request, as a handler gets it."""

    method: str
    body: bytes = b""
    namespace: str = ""
    version: str = DEFAULT_VERSION
    #: All headers as they came.
    headers: Mapping[str, Header] = field(default_factory=lambda: NO_HEADERS)
    content_type: str | None = None
    #: When the caller stops waiting, in seconds since 1970; None where it does not wait, or does not say.
    deadline: float | None = None
    #: The caller's name for the call, and where its reply goes; None for a cast.
    id: Id | None = None
    reply_to: str | None = None

    @property
    def wants_reply(self) -> bool:
        return self.reply_to is not None


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification, as a handler gets it."""

    event_type: str
    body: bytes = b""
    publisher: str | None = None
    headers: Mapping[str, Header] = field(default_factory=lambda: NO_HEADERS)
    content_type: str | None = None


def request_envelope(request: BusRequest) -> Envelope:
    """Return the message of a request."""
    headers: dict[str, Header] = dict(request.headers)
    # A program may pass on the headers of another request.
    if request.version != DEFAULT_VERSION or X_VERSION in headers:
        headers[X_VERSION] = request.version
    if request.namespace or X_NAMESPACE in headers:
        headers[X_NAMESPACE] = request.namespace
    if request.deadline is not None:
        headers[X_DEADLINE] = int(request.deadline * 1000)
    return Envelope(
        body=request.body,
        id=request.id,
        reply_to=request.reply_to,
        subject=request.method,
        content_type=request.content_type,
        headers=headers,
    )


def read_request(envelope: Envelope) -> BusRequest:
    """Return what a message asks for. What is missing, or has another type, is taken for its default."""
    return BusRequest(
        method=envelope.subject or "",
        body=envelope.body,
        namespace=text(envelope.headers.get(X_NAMESPACE)) or "",
        version=text(envelope.headers.get(X_VERSION)) or DEFAULT_VERSION,
        headers=envelope.headers,
        content_type=envelope.content_type,
        deadline=deadline_of(envelope.headers),
        id=envelope.id,
        reply_to=envelope.reply_to,
    )


def reply_envelope(request: BusRequest, answer: Outcome) -> Envelope:
    """Return the message of a reply; `to` names its address."""
    # A reply without a status is an answer.
    status = None if answer.status == OK else answer.status
    given = {X_STATUS: status, X_REASON: answer.reason, X_ERROR: answer.error}
    headers: dict[str, Header] = {name: value for name, value in given.items() if value}
    return Envelope(body=answer.body, to=request.reply_to, correlation_id=request.id, headers=headers)


def read_reply(envelope: Envelope, allowed: Mapping[str, type[Exception]] | None = None) -> Reply | Exception:
    """Return the answer, or the exception that it stands for.

    That is a class of `allowed`, by module and name, where the handler raised it; it is made of the reason alone.
    Otherwise it is a RemoteError, by the status.
    """
    found = answer_of(envelope.headers, envelope.body, str(envelope.correlation_id))
    if not isinstance(found, RemoteError) or not allowed:
        return found
    kind = allowed.get(text(envelope.headers.get(X_ERROR)) or "")
    if kind is None:
        return found
    try:
        made = kind(found.reason or "")
    except Exception:  # noqa: BLE001 - a class that wants other arguments
        return found
    made.__cause__ = found
    return made


def notification_envelope(notification: Notification) -> Envelope:
    """Return the message of a notification."""
    headers = dict(notification.headers)
    if notification.publisher is not None:
        headers[X_PUBLISHER] = notification.publisher
    return Envelope(
        body=notification.body,
        subject=notification.event_type,
        content_type=notification.content_type,
        headers=headers,
    )


def read_notification(envelope: Envelope) -> Notification:
    """Return what a message says."""
    return Notification(
        event_type=envelope.subject or "",
        body=envelope.body,
        publisher=text(envelope.headers.get(X_PUBLISHER)),
        headers=envelope.headers,
        content_type=envelope.content_type,
    )
