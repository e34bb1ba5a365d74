"""What to do with a dead letter: a pure decision from the message.

The caller is answered with the reason. A request that its workers failed on, and one whose caller cannot be
answered, is also kept in the poison inventory: nothing is lost. RabbitMQ puts the newest death first into
`x-death` (docs/reference/rabbitmq-facts.md#what-a-dead-letter-says).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from osrdyne.base.republish import REFUSED_REPLY_TO, republished
from osrdyne.state.delivery_history import PastDelivery
from osrdyne_amqp import Message, Properties
from osrdyne_protocol import headers, statuses
from osrdyne_protocol.names import PoolNames, is_reply_address

#: Reason of a kept letter that has none: it was published directly to the dead-letter exchange.
NOT_DEAD_LETTERED = "not_dead_lettered"

_REASONS: Mapping[str, str] = {
    statuses.EXPIRED: "no worker took the request in time",
    statuses.DELIVERY_LIMIT: "workers took the request and failed, too often",
    statuses.MAXLEN: "the request queue is full",
    statuses.REJECTED: "a worker refused the request",
}
_DAEMON_FAILED = "the daemon took the request and failed, too often"

#: Most digits of a time to live in milliseconds that a broker accepts.
_MOST_TTL_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with one dead letter."""

    #: Status of the error reply; None when there is no caller to answer, or the caller was answered already.
    status: str | None
    #: A sentence for a person.
    reason: str
    #: Reason under which a copy is kept in the poison inventory; None when none is kept.
    keep_as: str | None
    #: Key and queue in which the request was dead-lettered, as far as the letter says.
    key: str | None
    queue: str


def decide(message: Message, names: PoolNames) -> Verdict:
    """Decide what to do with one dead letter."""
    cause, queue = first_death(message)
    key = original_key(message)
    reply_to = message.properties.reply_to
    answerable = is_reply_address(reply_to)
    if message.malformed is not None:
        fate = statuses.INVALID_REQUEST
        return Verdict(fate if answerable else None, message.malformed, None if answerable else fate, key, queue)
    if cause not in statuses.DEAD_LETTER_REASONS:
        return Verdict(None, "came without a dead-letter reason", cause or NOT_DEAD_LETTERED, key, queue)
    failed = workers_failed(names, cause, queue)
    # Only such a letter is put back after its answer; on any other, a client set the mark.
    answered = failed and was_answered(message)
    return Verdict(
        status=cause if answerable and not answered else None,
        reason=_reason(cause, failed=failed, refused=bool(reply_to) and not answerable),
        keep_as=cause if failed or not answerable else None,
        key=key,
        queue=queue,
    )


def _reason(cause: str, *, failed: bool, refused: bool) -> str:
    if cause == statuses.DELIVERY_LIMIT and not failed:
        return _DAEMON_FAILED
    # Workers reject such a request unseen.
    return REFUSED_REPLY_TO if refused and cause == statuses.REJECTED else _REASONS[cause]


def with_cause(verdict: Verdict, cause: str | None) -> str:
    """Return the sentence of a verdict, with how workers failed on the request, or could not be started for it."""
    explained = verdict.keep_as or verdict.status
    known = cause is not None and explained in (statuses.EXPIRED, statuses.DELIVERY_LIMIT)
    return f"{verdict.reason}; the last one failed: {cause}" if known else verdict.reason


def original_key(message: Message) -> str | None:
    """Return the routing key with which the request was first published, as text; None when it cannot be read."""
    routing_keys = _first_death(message).get("routing-keys")
    if isinstance(routing_keys, list) and routing_keys:
        return headers.text(routing_keys[0])
    return headers.text(message.routing_key)


def first_death(message: Message) -> tuple[str | None, str]:
    """Return why and in which queue a letter died first; None and no name where it does not say."""
    return _why_and_where(message, headers.X_FIRST_DEATH_REASON, headers.X_FIRST_DEATH_QUEUE)


def kept_for(message: Message) -> tuple[str | None, str]:
    """Return why a copy of the inventory is kept, and the queue that it came from."""
    return _why_and_where(message, headers.X_POISON_REASON, headers.X_POISON_QUEUE)


def _why_and_where(message: Message, why: str, where: str) -> tuple[str | None, str]:
    given = message.properties.headers or {}
    return headers.text(given.get(why)), headers.text(given.get(where)) or ""


def workers_failed(names: PoolNames, reason: str | None, queue: str) -> bool:
    """Return whether a request that died in `queue` for `reason` is one that workers failed on."""
    return reason == statuses.DELIVERY_LIMIT and queue.startswith(names.request_queue_prefix)


def _first_death(message: Message) -> Mapping[str, Any]:
    """Return what the broker says of the first death; nothing where a client wrote something else there."""
    deaths = (message.properties.headers or {}).get(headers.X_DEATH)
    first = deaths[-1] if isinstance(deaths, list) and deaths else None
    return first if isinstance(first, dict) else {}


def entered(message: Message, *, message_ttl: float) -> float | None:
    """Return when an expired request entered its request queue, in seconds since the epoch; None when unknown.

    A forwarded request carries the time of first sight. For others the broker records when they expired (to the
    second), after their own time to live or the queue's, `message_ttl` in seconds.
    """
    seen = headers.integer(message.properties.headers or {}, headers.X_FIRST_SEEN)
    if seen is not None:
        return seen / 1000
    first = _first_death(message)
    died = first.get("time")
    if not isinstance(died, datetime):
        return None
    own = headers.text(first.get("original-expiration"))
    # A forged letter can hold more digits than Python makes a number of.
    readable = own is not None and len(own) <= _MOST_TTL_DIGITS and own.isascii() and own.isdigit()
    lifetime = int(own or 0) / 1000 if readable else message_ttl
    return died.timestamp() - min(lifetime, message_ttl)


def deliveries(message: Message) -> int | None:
    """Return how often the request was delivered to a worker, as the broker counted; None where it did not.

    RabbitMQ 4.3 counts failures and deliveries separately, and every failure is a delivery; 4.0 has one count for both.
    The daemon counts those before it took the request back (`X_DELIVERED`).
    """
    given = message.properties.headers or {}
    counts = [headers.integer(given, name) for name in (headers.X_DELIVERY_COUNT, headers.X_ACQUIRED_COUNT)]
    counted = max((count for count in counts if count is not None), default=None)
    before = headers.delivered_before(given)
    return before + (counted or 0) if before else counted


def kept(
    message: Message,
    *,
    poison_id: str,
    reason: str,
    detail: str,
    key: str | None,
    queue: str,
    attempts: Sequence[PastDelivery] = (),
    now_ms: int,
) -> Properties:
    """Return the properties of the copy in the poison inventory: it never expires and goes to no other queue."""
    # Drop poison headers that the client set: an old identity would name two entries.
    result = republished(message.properties, without={*headers.POISON, headers.CC, headers.BCC})
    result.headers |= {
        headers.X_POISON_ID: poison_id,
        headers.X_POISON_REASON: reason,
        headers.X_POISON_DETAIL: detail,
        headers.X_POISON_QUEUE: queue,
        headers.X_POISON_TIME: now_ms,
    }
    # RabbitMQ 4.0 adds no count to a rejected request; then the deliveries that workers reported count.
    handed_out = max(deliveries(message) or 0, len(attempts))
    if handed_out:
        result.headers[headers.X_POISON_DELIVERIES] = handed_out
    if attempts:
        result.headers[headers.X_POISON_ATTEMPTS] = [
            {headers.X_WORKER_ID: attempt.worker_id, headers.X_EVENT_TIME: attempt.time_ms} for attempt in attempts
        ]
    if key is not None:
        result.headers[headers.X_POISON_KEY] = key
    result.expiration = None
    result.delivery_mode = 2
    return result


def room(names: PoolNames, reason: str, queue: str) -> str:
    """Return the queue of the inventory in which a request that is kept for `reason` belongs; it came from `queue`.

    What workers failed on costs them their failures, and has room of its own. All else a client makes at no cost.
    """
    return names.poison_queue if workers_failed(names, reason, queue) else names.unanswered_queue


def died_in(message: Message) -> str | None:
    """Return the queue in which a letter died last, as the broker says: no client can write this header."""
    return headers.text((message.properties.headers or {}).get(headers.X_LAST_DEATH_QUEUE))


def kept_again(message: Message) -> Properties:
    """Return the properties with which a copy that had to wait is put into the inventory once more."""
    return republished(message.properties, without=headers.BROKER_ADDED)


def was_answered(message: Message) -> bool:
    """Return whether a dead letter carries the mark that its caller was answered."""
    return (message.properties.headers or {}).get(headers.X_ANSWERED) is True


def put_back(message: Message, *, answered: bool) -> Properties:
    """Return the properties with which a dead letter goes back to the tail; `answered` marks that its caller was."""
    result = republished(message.properties, without=(headers.CC, headers.BCC, headers.X_ANSWERED))
    if answered:
        result.headers[headers.X_ANSWERED] = True
    return result
