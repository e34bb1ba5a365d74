"""The times of the load and its pool, in seconds: short, so that everything comes to its end within a run."""

from __future__ import annotations

import time
from collections.abc import Iterable

#: Time to live of a request in its queue, and as an orphan, in seconds.
MESSAGE_TTL_SECONDS = ORPHAN_TTL_SECONDS = 12.0
#: How many seconds clients say in `x-deadline` that they wait for an answer.
DEADLINE_SECONDS = 40.0
#: Seconds after which a client really gives up; no run lasts as long.
GIVE_UP_SECONDS = 3600.0
#: Seconds after which a key without requests is unbound, and after that its queue deleted.
UNBIND_DELAY_SECONDS, STOP_DELAY_SECONDS = 5.0, 1.0
#: Seconds between AMQP heartbeats of all sides: a silent connection is given up after two of them.
HEARTBEAT_SECONDS = 2.0
DELIVERY_LIMIT = 2
#: Deliveries from the orphan queue and the dead-letter queue: more than faults cost a message that can be delivered.
PARKED_AFTER = 8
#: Seconds without a consumer after which a group is restarted. No other fault keeps a warm key so long from workers.
START_GRACE_SECONDS = 20.0


def p99(times: Iterable[float]) -> float:
    """Return within which of these times 99 of 100 of them are. Raises IndexError where there are none."""
    ordered = sorted(times)
    return ordered[(len(ordered) * 99 - 1) // 100]


def deadline() -> int:
    """Return the moment until which a client waits, in the milliseconds of `x-deadline`."""
    return int((time.time() + DEADLINE_SECONDS) * 1000)
