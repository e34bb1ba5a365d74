"""Names of the headers on the wire, and how a header's value is read from peers of any kind.

Times are integer milliseconds: AMQP floats are not carried by every client library.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping

#: Reply: `ok`, a dead-letter reason or one of ours; see `statuses`.
X_STATUS = "x-status"
#: Reply: a sentence for a person about a status that is not `ok`, or about the end of a worker (`events`). Optional.
X_REASON = "x-reason"
#: Request and reply: opaque to us, passed through untouched; existing peers use it.
X_RPC_PATH = "x-rpc-path"
#: Request: moment after which its caller no longer waits, in integer milliseconds since the Unix epoch.
X_DEADLINE = "x-deadline"
#: Request: when it was published, by its client's wall clock, in integer milliseconds since the Unix epoch. Optional.
X_PUBLISH_TIME = "x-publish-time"
#: Reply `throttled`, `start_failed`: after how many milliseconds another try may succeed.
X_RETRY_AFTER = "x-retry-after"
#: Reply `expired`: the stage at which the request's time ran out; see `expiry`.
X_EXPIRED_AT = "x-expired-at"

#: Activity: the event's type; see `events`.
X_EVENT = "x-event"
#: Activity: 128-bit random identity of the event, hexadecimal; readers deduplicate by it.
X_EVENT_ID = "x-event-id"
#: Activity: the sender's wall clock in integer milliseconds since the Unix epoch.
X_EVENT_TIME = "x-event-time"
#: Activity: the identity of the sending worker (`WORKER_ID`).
X_WORKER_ID = "x-worker-id"
#: Activity: the correlation id of the request that the event is about.
X_REQUEST_ID = "x-request-id"
#: Activity `finished`: the status that was sent to the client, or `requeued`. Of the daemon: how something ended.
X_OUTCOME = "x-outcome"
#: Activity `finished`: duration of the handler in integer milliseconds. `worker-ended`: for how long the worker ran.
X_DURATION = "x-duration-ms"

#: Activity `finished`: module and name of the class of exception that the handler raised, without `builtins.`. Also in
#: an error reply of the bus. Optional.
X_ERROR = "x-error"
#: Activity `request-received`: how long the request waited in its queue for a worker that was there, in integer
#: milliseconds. Optional.
X_QUEUED = "x-queued-ms"
#: Activity `worker-ended`, `start-failed`: the worker; whether it had said `started` (1 or 0); requests that it held;
#: its last lines; where its log is.
X_ENDED_WORKER = "x-ended-worker"
X_STARTED = "x-started"
X_HELD = "x-held"
X_OUTPUT = "x-output"
X_LOG = "x-log"

#: Activity `interrupted`: how many earlier events of this sender are lost.
X_LOST_EVENTS = "x-lost-events"
#: Activity `batch`: the form of the message's body; see `event_batches`.
X_BATCH_VERSION = "x-batch-version"

#: Argument of a request queue: the true key, where a restart finds it.
X_OSRDYNE_KEY = "x-osrdyne-key"
#: Mandatory publish of the daemon: matches a return to its publish. Peers ignore it.
X_PUBLISH_ID = "x-osrdyne-publish-id"
#: Forwarded request: how often the daemon has forwarded it, so that it can end one that keeps coming back.
X_HOPS = "x-osrdyne-hops"
#: Request or dead letter put back by the daemon: first time it was seen, integer milliseconds since the epoch.
X_FIRST_SEEN = "x-osrdyne-first-seen"
#: Request taken out of its queue by the daemon: how often workers had taken it before, in all queues, if at all.
X_DELIVERED = "x-osrdyne-delivered"
#: Activity `orphan-seen`, `request-received`: the user of the request that the broker checked; empty or absent where it
#: named none. A worker knows no more than the message's `user-id`, which is the daemon's own of a forwarded request.
#: Request published again by the daemon, with the daemon's own `user-id`: the user that the broker checked first, empty
#: where it named none; and whether it was let in, so that it costs its user no new key any more. Of no meaning on a
#: message of any other user (`intake.orphan_rules.origin`).
X_USER = "x-osrdyne-user"
X_LET_IN = "x-osrdyne-let-in"
#: Dead letter put back by the daemon: its caller has its answer already.
X_ANSWERED = "x-osrdyne-answered"

#: Kept message (poison inventory): its identity, why, from which queue, of which key, a sentence for a person, when.
X_POISON_ID = "x-osrdyne-poison-id"
X_POISON_REASON = "x-osrdyne-poison-reason"
X_POISON_QUEUE = "x-osrdyne-poison-queue"
X_POISON_KEY = "x-osrdyne-poison-key"
X_POISON_DETAIL = "x-osrdyne-poison-detail"
X_POISON_TIME = "x-osrdyne-poison-time"
#: Kept message: how often it was delivered to workers, and to which of them when, as far as they reported.
X_POISON_DELIVERIES = "x-osrdyne-poison-deliveries"
X_POISON_ATTEMPTS = "x-osrdyne-poison-attempts"
POISON = frozenset(
    {
        X_POISON_ID,
        X_POISON_REASON,
        X_POISON_QUEUE,
        X_POISON_KEY,
        X_POISON_DETAIL,
        X_POISON_TIME,
        X_POISON_DELIVERIES,
        X_POISON_ATTEMPTS,
    }
)

#: Set by the broker when it dead-letters (docs/reference/rabbitmq-facts.md#what-a-dead-letter-says).
X_FIRST_DEATH_REASON = "x-first-death-reason"
X_FIRST_DEATH_QUEUE = "x-first-death-queue"
X_FIRST_DEATH_EXCHANGE = "x-first-death-exchange"
X_LAST_DEATH_REASON = "x-last-death-reason"
X_LAST_DEATH_QUEUE = "x-last-death-queue"
X_LAST_DEATH_EXCHANGE = "x-last-death-exchange"
X_DEATH = "x-death"
X_DELIVERY_COUNT = "x-delivery-count"
X_ACQUIRED_COUNT = "x-acquired-count"

#: Sender-selected distribution: a message with these is copied to more queues at each publish.
CC = "CC"
BCC = "BCC"

#: Headers that the broker added on the way: drop them when a message is published again.
BROKER_ADDED = frozenset(
    {
        X_FIRST_DEATH_REASON,
        X_FIRST_DEATH_QUEUE,
        X_FIRST_DEATH_EXCHANGE,
        X_LAST_DEATH_REASON,
        X_LAST_DEATH_QUEUE,
        X_LAST_DEATH_EXCHANGE,
        X_DEATH,
        X_DELIVERY_COUNT,
        X_ACQUIRED_COUNT,
    }
)

#: All that the broker and the daemon add to a message on its way, beside what its client wrote.
ADDED = BROKER_ADDED | POISON | {X_DEADLINE, X_PUBLISH_TIME, X_PUBLISH_ID, X_HOPS, X_FIRST_SEEN, X_USER, X_LET_IN}
ADDED |= {X_ANSWERED, X_DELIVERED}

#: Integers of a header are below this: AMQP's longest type has 64 bits and a sign.
_INTEGERS = 1 << 63
#: More than a request is ever delivered. A client may write any number, and sums must fit into a header.
_MOST_DELIVERED = 1_000_000


def text(value: object) -> str | None:
    """Return a header's value as text, from a string or a byte array; None for any other type, or invalid UTF-8."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return None
    return None


def status_for(request: Mapping[str, object] | None, status: str) -> str | bytes:
    """Return a status in the type that the sender of a request can read, by the headers of the request.

    Existing clients read `x-status` as a byte array only. They also send their `x-rpc-path` as a byte array, which
    identifies them. All other clients get text.
    """
    return status.encode() if isinstance((request or {}).get(X_RPC_PATH), bytes) else status


def deadline_problem(headers: Mapping[str, object]) -> str | None:
    """Say why the deadline of a request cannot be read; None where it can, or where there is none.

    Such a request is not begun: its caller thinks that it has a deadline.
    """
    value = headers.get(X_DEADLINE)
    if value is None or integer(headers, X_DEADLINE) is not None:
        return None
    found = f"{type(value).__name__} {reprlib.repr(value)}"
    return f"{X_DEADLINE} is {found}: write milliseconds since 1970 as an integer of 64 bits"


def delivered_before(headers: Mapping[str, object]) -> int:
    """Return how often workers took a request in queues that it was taken back from (`X_DELIVERED`)."""
    return min(max(0, integer(headers, X_DELIVERED) or 0), _MOST_DELIVERED)


def integer(headers: Mapping[str, object], name: str) -> int | None:
    """Return an integer header; None when it is absent, has more than 64 bits or another type, also a boolean."""
    value = headers.get(name)
    fits = isinstance(value, int) and not isinstance(value, bool) and -_INTEGERS <= value < _INTEGERS
    return value if fits else None  # type: ignore[return-value]
