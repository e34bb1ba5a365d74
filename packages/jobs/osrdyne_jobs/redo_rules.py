"""When a redo process lets another one lead: the broker takes none of its casts. Pure: the time is an argument."""

from __future__ import annotations

#: A process that led in vain leads again for twice as long, and so on up to so many leases.
MOST_LEASES = 32


class Reach:
    """Whether the casts of this process get through. Times are seconds of one monotonic clock."""

    def __init__(self, lease: float) -> None:
        """`lease`: of the leader, in seconds."""
        self._leases = 1
        self._lease = lease
        self._silent_since: float | None = None

    def note(self, *, casts: int, not_cast: int, now: float) -> bool:
        """Note what a scan cast; return whether another process should lead now.

        That is so when for longer than the lease there were only casts that failed. Then it begins from the start, with
        twice the patience: where the broker is away from all processes, they need not take turns so often.
        """
        if casts:
            self._silent_since, self._leases = None, 1
        elif not_cast and self._silent_since is None:
            self._silent_since = now
        elif not_cast and self._silent_since is not None and now - self._silent_since > self._leases * self._lease:
            self._silent_since, self._leases = None, min(2 * self._leases, MOST_LEASES)
            return True
        return False
