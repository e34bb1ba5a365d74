"""Activity events: their types, who sends them, and the headers of one event.

Workers must send `started` and `request-received`; all other events are optional for a peer. The daemon's own events,
and those of a person's commands, use the same exchange, so that one stream records everything in a pool.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable

from osrdyne_protocol import headers as names

STARTED = "started"
REQUEST_RECEIVED = "request-received"
FINISHED = "finished"
ALIVE = "alive"
STOPPING = "stopping"

#: The first event of a daemon or worker after a time in which its events could not be sent.
INTERRUPTED = "interrupted"

#: Events that prove that a group works: only these renew a key's lifetime.
ACTIVITY = frozenset({STARTED, REQUEST_RECEIVED, FINISHED, ALIVE})

ORPHAN_SEEN = "orphan-seen"
QUEUE_READY = "queue-ready"
GROUP_STARTED = "group-started"
START_FAILED = "start-failed"
WORKER_ENDED = "worker-ended"
FORWARDED = "forwarded"
UNBOUND = "unbound"
GROUP_STOPPED = "group-stopped"
QUEUE_DELETED = "queue-deleted"
QUEUE_LOST = "queue-lost"
DEAD_LETTERED = "dead-lettered"

#: Events that the daemon sends about its own actions.
LIFECYCLE = frozenset(
    {
        ORPHAN_SEEN,
        QUEUE_READY,
        GROUP_STARTED,
        START_FAILED,
        WORKER_ENDED,
        FORWARDED,
        UNBOUND,
        GROUP_STOPPED,
        QUEUE_DELETED,
        QUEUE_LOST,
        DEAD_LETTERED,
    }
)

BURIED = "buried"
REPLAYED = "replayed"

#: Events that the command line sends about what a person did to the poison inventory.
BY_A_PERSON = frozenset({BURIED, REPLAYED})

#: `x-outcome` of a request that a worker gave back to its queue.
REQUEUED = "requeued"


def headers(
    event: str,
    *,
    now_ms: int,
    worker_id: str | None = None,
    request_id: str | None = None,
    outcome: str | None = None,
    duration_ms: int | None = None,
    queued_ms: int | None = None,
    error: str | None = None,
    user: str | None = None,
    lost_events: int | None = None,
) -> dict[str, str | int]:
    """Return the headers of one event, with a new event id. `now_ms` is milliseconds since the Unix epoch."""
    values: dict[str, str | int] = {
        names.X_EVENT: event,
        names.X_EVENT_ID: secrets.token_hex(16),
        names.X_EVENT_TIME: now_ms,
    }
    # One after the other: a worker makes two of these for each request, and a loop over all would take twice as long.
    if worker_id is not None:
        values[names.X_WORKER_ID] = worker_id
    if request_id is not None:
        values[names.X_REQUEST_ID] = request_id
    if outcome is not None:
        values[names.X_OUTCOME] = outcome
    if duration_ms is not None:
        values[names.X_DURATION] = duration_ms
    if queued_ms is not None:
        values[names.X_QUEUED] = queued_ms
    if error is not None:
        values[names.X_ERROR] = error
    if user is not None:
        values[names.X_USER] = user
    if lost_events is not None:
        values[names.X_LOST_EVENTS] = lost_events
    return values


def steady_ms(clock: Callable[[], float]) -> Callable[[], int]:
    """Return a wall clock that is right now, and from now on goes by `clock`, in monotonic seconds.

    A step of the machine's wall clock changes nothing that was begun before it. Rounded up: a deadline is not exceeded.
    """
    began, began_ms = clock(), wall_ms()
    return lambda: began_ms + math.ceil(1000 * (clock() - began))


def wall_ms() -> int:
    """Return the wall clock in integer milliseconds since the Unix epoch, for headers only."""
    return time.time_ns() // 1_000_000
