"""Which requests may wake a key that has no queue: a pure decision; time is an argument, in monotonic seconds.

A key outside of `pool.keys` is never woken. Each broker user has a token bucket of new keys, so that none can spend
what the others need. Whether there is room for one more group is the target's matter (`TargetTracker.make_room`). A
refusal is an answer, never a wait.
"""

from __future__ import annotations

import math

from osrdyne.intake.orphan_rules import ErrorAnswer, Origin
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import statuses

#: Most users whose buckets are remembered; all further ones share a bucket. A broker has fewer.
MOST_USERS = 1000
#: A key that nothing used for so many seconds gives way to a new one, once the pool has nearly all its groups. Counts
#: of the broker, which renew a key whose events were lost, are not later than this.
IDLE_SECONDS = 30.0
#: Seconds by which sums of times may be wrong: a token that is so near is there.
_ROUNDING_SECONDS = 1e-6
#: The bucket of requests whose user is not known; the user of an `Origin` is then empty, too.
_UNKNOWN = ""


class WakeBudget:
    """For each user, a bucket with `burst` tokens, which gets one more every `interval` seconds."""

    def __init__(self, *, burst: int, interval: float) -> None:
        self._interval = interval
        self._capacity = burst * interval
        #: When the bucket of each user is full again; a full one is not kept.
        self._full_at: dict[str, float] = {}

    def take(self, user: str, now: float) -> float:
        """Take a token and return 0; without one, return the seconds until there is one."""
        if user not in self._full_at and len(self._full_at) >= MOST_USERS:
            self._full_at = {name: at for name, at in self._full_at.items() if at > now}
            user = user if len(self._full_at) < MOST_USERS else _UNKNOWN
        full_at = max(self._full_at.get(user, now), now) + self._interval
        missing = full_at - self._capacity - now
        if missing > _ROUNDING_SECONDS:
            return missing
        self._full_at[user] = full_at
        return 0.0

    def give_back(self, user: str) -> None:
        """Give back a token that `take` has just returned 0 for."""
        self._full_at[user if user in self._full_at else _UNKNOWN] -= self._interval


def refusal(key: str, origin: Origin, pool: PoolSettings, budget: WakeBudget, *, now: float) -> ErrorAnswer | None:
    """Return why a request may not wake a key; None when it may. A token of its user is then spent, once for it."""
    if not pool.may_wake(key):
        return ErrorAnswer(statuses.REJECTED, "pool.keys does not name this key", refused="keys")
    wait = 0.0 if origin.let_in else budget.take(origin.user, now)
    return _later("budget", "this user has woken too many new keys", wait) if wait else None


def no_room(origin: Origin, groups: int, budget: WakeBudget) -> ErrorAnswer:
    """Return the answer for a new key while the pool has all its groups, and none of them is idle.

    The token that `refusal` has spent is given back: nothing was woken for it.
    """
    if not origin.let_in:
        budget.give_back(origin.user)
    return _later("groups", f"the pool has all of its {groups} worker groups, and none of them is idle", IDLE_SECONDS)


def _later(refused: str, reason: str, seconds: float) -> ErrorAnswer:
    return ErrorAnswer(statuses.THROTTLED, reason, retry_after_ms=math.ceil(seconds * 1000), refused=refused)
