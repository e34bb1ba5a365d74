"""What a reply says: an answer of a worker, or the error that its status stands for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osrdyne_calls.errors import REMOTE_ERRORS, RemoteError
from osrdyne_protocol.expiry import STAGES
from osrdyne_protocol.headers import X_EXPIRED_AT, X_REASON, X_STATUS, text
from osrdyne_protocol.statuses import EXPIRED, OK, STATUSES, first_line


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a worker. `headers` are all headers of the message, `x-status` included."""

    status: str
    body: bytes
    headers: Mapping[str, Any]
    correlation_id: str


def answer_of(headers: Mapping[str, Any], body: bytes, correlation_id: str) -> Reply | RemoteError:
    """Return what a reply with these headers and this body says, whatever it came over.

    A reply without `x-status` is an answer: foreign workers may leave it out. A status that is neither text nor a byte
    array of UTF-8 is an error, because it may mean anything.
    """
    value = headers.get(X_STATUS)
    status = OK if value is None else text(value)
    if status == OK:
        return Reply(OK, body, headers, correlation_id)
    if status is None:
        status = f"unreadable status {value!r}"
    reason = text(headers.get(X_REASON))
    meaning = reason or STATUSES.get(status, "This status is not in the protocol's table.")
    if said := first_line(body):
        meaning = f"{meaning.rstrip('.')}: {said}"
    if status == EXPIRED and (stage := text(headers.get(X_EXPIRED_AT))) in STAGES:
        meaning = f"{meaning.rstrip('.')}. {stage}: {STAGES[stage]}"
    return REMOTE_ERRORS.get(status, RemoteError)(
        f"{status}: {meaning} (correlation id {correlation_id})",
        status=status,
        body=body,
        reason=reason,
        correlation_id=correlation_id,
        headers=headers,
    )
