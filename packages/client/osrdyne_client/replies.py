"""A reply over AMQP 0-9-1, read. Pure."""

from __future__ import annotations

from osrdyne_amqp import Message
from osrdyne_calls.errors import RemoteError
from osrdyne_calls.replies import Reply, answer_of

__all__ = ["UNREADABLE", "Reply", "read"]

#: Stands for the status of a reply whose headers cannot be read. No program sends it.
UNREADABLE = "unreadable"


def read(message: Message) -> Reply | RemoteError:
    """Return the answer, or the error of a status that is not `ok`, as `answer_of`; an error if it is unreadable."""
    properties = message.properties
    if message.malformed is not None:
        return RemoteError(
            f"the reply cannot be read: {message.malformed} (correlation id {properties.correlation_id})",
            status=UNREADABLE,
            reason=message.malformed,
            correlation_id=str(properties.correlation_id),
        )
    return answer_of(properties.headers or {}, message.body, str(properties.correlation_id))
