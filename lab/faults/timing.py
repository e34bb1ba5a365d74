"""The times of the load and its pool, in seconds: short, so that everything comes to its end within a run."""

from __future__ import annotations

import time
from collections.abc import Iterable

#: Time to live of a request in its queue, and as an orphan.
MESSAGE_TTL = ORPHAN_TTL = 12.0
#: What clients say they wait for an answer, in `x-deadline`.
DEADLINE = 40.0
#: After this a client really gives up; no run lasts as long.
GIVE_UP = 3600.0
#: A cold key without requests is unbound after the one, and its queue deleted after the other.
UNBIND_DELAY, STOP_DELAY = 5.0, 1.0
#: AMQP heartbeat of all sides: a silent connection is given up after two of them.
HEARTBEAT = 2.0
DELIVERY_LIMIT = 2
#: Deliveries from the orphan queue and the dead-letter queue: more than faults cost a message that can be delivered.
PARKED_AFTER = 8
#: Without a consumer for so long, a group is restarted. No other fault keeps a warm key from its workers as long.
START_GRACE = 20.0


def p99(times: Iterable[float]) -> float:
    """Return within which of these times 99 of 100 of them are. Raises IndexError where there are none."""
    ordered = sorted(times)
    return ordered[(len(ordered) * 99 - 1) // 100]


def deadline() -> int:
    """Return the moment until which a client waits, in the milliseconds of `x-deadline`."""
    return int((time.time() + DEADLINE) * 1000)
