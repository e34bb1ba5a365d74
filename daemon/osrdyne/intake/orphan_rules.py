"""What to do with an orphan: a pure decision from the message and the time.

A request is forwarded as it came, without what would break or mislead the forward: headers that the broker added, and
time to live already used up. Its `user_id` becomes the daemon's, because the broker refuses another one, and a header
names the first user. CC and BCC would copy the request to more queues at each publish, so a request with them is
refused. docs/reference/rabbitmq-facts.md#publishing-a-message-once-more says how the broker treats each of these.

Times in headers are integer milliseconds of the wall clock: they cross processes and restarts.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

from osrdyne.base.republish import REFUSED_REPLY_TO, republished
from osrdyne.state.values import Attempt
from osrdyne_amqp import Message, Properties
from osrdyne_protocol import headers, keys, statuses
from osrdyne_protocol.errors import InvalidKey
from osrdyne_protocol.names import is_reply_address

#: Longest time to live that a broker accepts.
_LONGEST_EXPIRATION_MS = 2**32 - 1
#: Forwards of one request after which it counts as unroutable. Each waits longer than the one before.
MAX_HOPS = 12


@dataclass(frozen=True, slots=True)
class Forward:
    """Forward to the request exchange under `key`. After `deadline_ms`, answer `expired` instead."""

    key: str
    properties: Properties
    deadline_ms: int
    #: How often it was forwarded before.
    hops: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose request it is, and what the daemon decided about it before."""

    #: The user that the broker has checked; empty where the request names none.
    user: str = ""
    #: It was let in before, and costs its user no new key.
    let_in: bool = False


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """Answer with an error status; `reason` is for a person."""

    status: str
    reason: str
    #: For `throttled` and `start_failed`: after how many milliseconds another try may succeed.
    retry_after_ms: int | None = None
    #: Where a new key was not woken: by what (`keys`, `budget` or `groups`).
    refused: str | None = None


def decide(message: Message, *, orphan_ttl_ms: int, now_ms: int, own_user: str | None = None) -> Forward | ErrorAnswer:
    """Decide what to do with one orphan that is seen at `now_ms`; `own_user` as in `origin`."""
    if message.malformed is not None:
        return ErrorAnswer(statuses.INVALID_REQUEST, message.malformed)
    try:
        key = keys.decode(message.routing_key)
    except InvalidKey as error:
        return ErrorAnswer(statuses.INVALID_KEY, str(error))
    given = message.properties.headers or {}
    if headers.CC in given or headers.BCC in given:
        return ErrorAnswer(
            statuses.INVALID_REQUEST, "CC and BCC headers are not supported; publish one request for each key"
        )
    if (problem := headers.deadline_problem(given)) is not None:
        return ErrorAnswer(statuses.INVALID_REQUEST, problem)
    if message.properties.reply_to and not is_reply_address(message.properties.reply_to):
        return ErrorAnswer(statuses.REJECTED, REFUSED_REPLY_TO)
    hops = max(0, headers.integer(given, headers.X_HOPS) or 0)
    if hops >= MAX_HOPS:
        return ErrorAnswer(statuses.UNROUTABLE, f"forwarded {hops} times and found no queue each time")
    properties = stamped(message.properties, now_ms, own_user=own_user, let_in=True)
    deadline = _deadline(properties, orphan_ttl_ms)
    if now_ms >= deadline:
        return ErrorAnswer(statuses.EXPIRED, "waited too long for its worker group's queue")
    properties.headers[headers.X_HOPS] = hops + 1
    return Forward(key, properties, deadline, hops)


def start_failed(attempt: Attempt, wait: float, *, with_reason: bool) -> ErrorAnswer:
    """Return the answer while workers of a key cannot be started. `wait`: seconds until the next try, or infinity."""
    reason = f"workers of this key could not be started, {attempt.unstarted} times in a row"
    if with_reason and attempt.error is not None:
        reason = f"{reason}; the last time: {' '.join(attempt.error.split())}"
    later = None if wait == math.inf else max(0, math.ceil(1000 * wait))
    return ErrorAnswer(statuses.START_FAILED, reason, retry_after_ms=later)


def origin(original: Properties, own_user: str | None) -> Origin:
    """Return whose request it is: its `user-id`, or what the daemon noted when it published the request again.

    `own_user` is the daemon's, None where it is not known. The broker lets no other user send as it, so a note beside
    it is the daemon's own. A pool whose clients log in as the daemon has one user, and trusts it.
    """
    user, given = headers.text(original.user_id) or "", original.headers or {}
    first = headers.text(given.get(headers.X_USER))
    if not own_user or user != own_user or first is None:
        return Origin(user)
    return Origin(first, given.get(headers.X_LET_IN) is True)


def at_publish(forward: Forward, *, now_ms: int) -> Properties:
    """Return the properties with which a held request is published now: with the rest of its time to live.

    Raises TimeoutError when its deadline has passed.

    `expiration` is relative, and each publish starts it again. So the rest comes from the absolute deadline, the
    client's or the one set at first sight. The broker then expires the request in its queue, even where workers
    ignore deadlines.
    """
    if now_ms >= forward.deadline_ms:
        raise TimeoutError
    result = copy.copy(forward.properties)
    expiration, deadline = _expiration(result), headers.integer(result.headers or {}, headers.X_DEADLINE)
    if deadline is not None:
        left = deadline - now_ms
        if expiration is not None or left <= _LONGEST_EXPIRATION_MS:
            result.expiration = str(left if expiration is None else min(expiration, left))
    return result


def stamped(original: Properties, now_ms: int, *, own_user: str | None = None, let_in: bool = False) -> Properties:
    """Return the properties that a forward keeps, with the times of first sight and of the deadline, and its origin.

    `expiration` becomes an absolute deadline at first sight. Later on it is that of a publish of the daemon.
    """
    result = republished(original, without=headers.BROKER_ADDED | {headers.X_USER, headers.X_LET_IN})
    if own_user:
        before = origin(original, own_user)
        result.user_id = own_user
        result.headers |= {headers.X_USER: before.user, headers.X_LET_IN: let_in or before.let_in}
    expiration, deadline = _expiration(original), headers.integer(result.headers, headers.X_DEADLINE)
    if headers.integer(result.headers, headers.X_FIRST_SEEN) is not None:
        result.expiration = None
    elif expiration is not None:
        result.headers[headers.X_DEADLINE] = (
            now_ms + expiration if deadline is None else min(deadline, now_ms + expiration)
        )
    result.headers[headers.X_FIRST_SEEN] = _first_seen(original, now_ms)
    return result


def put_back(
    original: Properties, *, seen_ms: int, orphan_ttl_ms: int, own_user: str | None = None, let_in: bool = False
) -> Properties:
    """Return the properties with which an orphan that was seen at `seen_ms` goes back to the tail of its queue.

    The queue's time to live begins again at each publish, so its own is what is left: it goes round no longer than it
    may live. Then the broker makes a dead letter of it.
    """
    result = stamped(original, seen_ms, own_user=own_user, let_in=let_in)
    left = _deadline(result, orphan_ttl_ms) - seen_ms
    result.expiration = str(min(max(1, left), _LONGEST_EXPIRATION_MS))
    return result


def taken_back(
    original: Properties,
    *,
    delivered: int,
    now_ms: int,
    orphan_ttl_ms: int,
    message_ttl_ms: int,
    own_user: str | None = None,
) -> Properties:
    """Return the properties with which a request that waited in its queue becomes an orphan again.

    `delivered` is how often workers took it, in this queue and in those that it was taken back from before; 0 where
    they did not take it since it was put into this one.

    Its time as an orphan begins again: it may have waited in its queue for longer. So that this has an end, it gets a
    deadline: the time that requests may wait in their queue, from when the daemon first saw it, and its own where it
    has one. What is not known is how long one waited that never was an orphan. Then both that time and that of its
    `expiration` begin again, once.
    """
    result = stamped(original, now_ms, own_user=own_user, let_in=True)
    given = result.headers
    ends, own = given[headers.X_FIRST_SEEN] + message_ttl_ms, headers.integer(given, headers.X_DEADLINE)
    given[headers.X_DEADLINE] = ends if own is None else min(ends, own)
    # It had found its queue, so that its forwards do not count.
    for name in (headers.X_FIRST_SEEN, headers.X_HOPS, headers.X_DELIVERED):
        given.pop(name, None)
    if delivered:
        given[headers.X_DELIVERED] = delivered
    return put_back(result, seen_ms=now_ms, orphan_ttl_ms=orphan_ttl_ms, own_user=own_user, let_in=True)


def buried(original: Properties, *, queue: str, delivered: int) -> Properties:
    """Return the properties with which a request on which workers failed too often becomes a dead letter.

    The broker does so at the delivery limit of a queue. This request was taken back, and `delivered` is its count for
    all its queues. `queue` is the last one.
    """
    result = republished(original, without={*headers.BROKER_ADDED, headers.X_ANSWERED})
    result.headers |= {
        headers.X_FIRST_DEATH_REASON: statuses.DELIVERY_LIMIT,
        headers.X_FIRST_DEATH_QUEUE: queue,
        headers.X_DELIVERED: delivered,
    }
    result.expiration = None
    return result


def _deadline(properties: Properties, orphan_ttl_ms: int) -> int:
    """Return when a request with stamped properties ends as an orphan."""
    given = properties.headers or {}
    ends, own = given[headers.X_FIRST_SEEN] + orphan_ttl_ms, headers.integer(given, headers.X_DEADLINE)
    return int(ends if own is None else min(ends, own))


def _first_seen(properties: Properties, now_ms: int) -> int:
    seen = headers.integer(properties.headers or {}, headers.X_FIRST_SEEN)
    return now_ms if seen is None or seen > now_ms else seen


def _expiration(properties: Properties) -> int | None:
    text = headers.text(properties.expiration) if properties.expiration is not None else None
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
