"""The stage at which a request's time ran out: `x-expired-at` of every reply with the status `expired`. Pure.

Where a request expires in its request queue, only signs of life show whether its workers were there. Times are seconds,
all on the same clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ORPHAN = "orphan"
START = "start"
QUEUE = "queue"

#: Every stage, and what it says.
STAGES: Mapping[str, str] = MappingProxyType(
    {
        ORPHAN: "It had no request queue yet: no daemon acted, or the queue could not be made.",
        START: "It waited in its request queue, and no worker of its key had shown life.",
        QUEUE: "Workers of its key had shown life, and none began with it in time.",
    }
)


def in_request_queue(*, entered: float | None, last_life: float | None, group_started: float | None) -> str:
    """Return the stage of a request that expired in its request queue.

    `entered`: when it was first seen or published, None where unknown. `last_life`: the last sign of life of a worker
    of its key. `group_started`: when the present worker group was started. A sign of life since either shows that
    workers were there; an older one may come from a group that has ended since.
    """
    since = [moment for moment in (entered, group_started) if moment is not None]
    if last_life is None:
        return START
    return QUEUE if not since or last_life >= min(since) else START
