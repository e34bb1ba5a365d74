"""When requests of a key are answered at once, because its workers cannot be started. Pure; in monotonic seconds."""

from __future__ import annotations

import math

from osrdyne.drivers.base import Group, GroupState
from osrdyne.state.values import Attempt


def refused_until(
    attempt: Attempt, group: Group | None, *, most: int, now: float, trying: bool = False, served: bool = False
) -> float | None:
    """Return until when requests of a key are refused; None while they wait for a worker.

    `most` is how many starts in a row have to end before `started`; 0: requests are never refused. Then requests wait
    only while a try is under way; `trying` says that the engine is asked for a start just now. Between two tries of
    the daemon requests are refused until the next one is due. An engine that tries again by itself does not say when it
    does, so the time has no end (infinity) until its group runs.

    Nor are they refused while the last counts showed a consumer (`served`): a person may run a worker by hand.

    A request without a caller cannot be refused. As orphans, many of them would stand in the way of those of other keys
    until the next try. So once more come than the daemon holds, requests wait in their queue until a start fails.
    """
    if trying or served or attempt.queued or not 0 < most <= attempt.unstarted:
        return None
    if group is None:
        return attempt.not_before if now < attempt.not_before else None
    waits = group.state is GroupState.STARTING and attempt.started_at is None
    return math.inf if waits else None


#: Deliveries that show a worker at the least, where a session of the daemon looks for the first time.
_LEAST_PROOF = 2


def taken_by_workers(count: int, *, unstarted: int, looked: int) -> int:
    """Return how many of the deliveries that the broker counted of a waiting request were to workers.

    `unstarted` is as in `Attempt`, and `looked` what it was when the daemon last looked at the queue; 0 where it has
    not in this row and session, or gave requests back.

    What ends the workers of a key was delivered at each start since then. A smaller count proves nothing: it may be
    of a session of the daemon that ended while it had the request in hand.
    """
    starts = unstarted - looked if 0 < looked < unstarted else max(_LEAST_PROOF, unstarted)
    return count if count >= starts else 0
