"""The target: each wanted key is Active or Unbound, under one 64-bit generation.

Pure: time is an argument (monotonic seconds), there is no I/O. Facts come in through `require`, time through
`advance`; the result is `wanted`. A key that is not in it should have neither queue nor group.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from osrdyne.base.changes import Changes
from osrdyne_pool.settings import Delays

_GENERATION_MASK = (1 << 64) - 1
#: One part in 8 of a pool's groups is kept free where idle ones can give way: their way out takes its time.
_FREE_PART = 8


class Status(Enum):
    """What a key's queue should be: bound, or declared but not bound."""

    ACTIVE = "active"
    UNBOUND = "unbound"


@dataclass(frozen=True, slots=True)
class KeyTarget:
    """What should be true of one key."""

    status: Status
    #: The generation from which this holds; a queue asserted earlier must be asserted again.
    generation: int
    #: Monotonic time of the next step down: to Unbound, or out of the target.
    until: float


class TargetTracker:
    """Keeps the target. A key not required for its unbind delay becomes Unbound, its stop delay later it leaves."""

    def __init__(self, delays: Callable[[str], Delays]) -> None:
        self._delays = delays
        self._generation = 0
        self._wanted: dict[str, KeyTarget] = {}
        self._deadlines: list[tuple[float, str]] = []
        #: Of keys with spans in which they are kept again: the last activity, and when to look at its spans next.
        self._last: dict[str, float] = {}
        #: Until when a span keeps a key for which it is the reason.
        self._spans: dict[str, float] = {}
        self._again: dict[str, float] = {}
        self._agains: list[tuple[float, str]] = []
        #: Keys that a worker's start or `keep` renewed, without demand since.
        self._renewed_by_start: set[str] = set()
        #: Keys whose wanted status or generation changed.
        self.changes = Changes()

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def wanted(self) -> Mapping[str, KeyTarget]:
        """The target's keys as they are now; not to be changed."""
        return self._wanted

    def require(self, key: str, now: float, *, extra_lifetime: float = 0.0, found_unbound: bool = False) -> int:
        """Make a key Active and return the generation from which that holds.

        `extra_lifetime` (seconds) is added to the unbind delay, for a caller that will report the next activity that
        much later; it is negative for activity that was so long ago. `found_unbound` says that a message proved the key
        to be unbound, whatever was believed: its queue must then be asserted again, under a new generation.
        """
        self.note_demand(key)
        delays = self._delays(key)
        until = now + extra_lifetime + delays.unbind_delay
        if delays.prewarm:
            self._last[key] = max(now + extra_lifetime, self._last.get(key, now + extra_lifetime))
            self._look_again(key, self._last[key] + delays.prewarm[0][0])
            self._end_span(key, until)
        return self._activate(key, until, found_unbound=found_unbound)

    def keep(self, key: str, until: float) -> int:
        """Make a key Active at least until then, without demand; return the generation from which that holds.

        The key's delays do not apply: neither this nor the worker start that it causes renews the key.
        """
        current = self._wanted.get(key)
        if current is None or current.status is not Status.ACTIVE:
            self._renewed_by_start.add(key)
        return self._activate(key, until)

    def _activate(self, key: str, until: float, *, found_unbound: bool = False) -> int:
        current = self._wanted.get(key)
        if current is not None and current.status is Status.ACTIVE and not found_unbound:
            if until > current.until:
                self._put(key, KeyTarget(Status.ACTIVE, current.generation, until))
            return current.generation
        if current is not None and current.status is Status.ACTIVE:
            until = max(until, current.until)
        self._put(key, KeyTarget(Status.ACTIVE, self._changed(key), until))
        return self._generation

    def _look_again(self, key: str, due: float) -> None:
        if due < self._again.get(key, math.inf):
            self._again[key] = due
            heapq.heappush(self._agains, (due, key))

    def _prewarm(self, key: str, now: float) -> bool:
        """Keep a key in a span after its last activity, and return whether it is; look again when the next begins."""
        last = self._last[key]
        span = next((each for each in self._delays(key).prewarm if last + each[1] > now), None)
        if span is None:
            del self._last[key]
            return False
        begun = last + span[0] <= now
        self._look_again(key, last + span[begun])
        if begun:
            self.keep(key, last + span[1])
            self._spans[key] = last + span[1]
        return begun

    def _end_span(self, key: str, until: float) -> None:
        """Let the delays of an activity count from now on: the span that the key was kept for has served."""
        current = self._wanted.get(key)
        if current is not None and current.until == self._spans.pop(key, None) and until < current.until:
            self._put(key, KeyTarget(current.status, current.generation, until))
            # The clock, which waits for the end of the span, has to look earlier.
            self.changes.add(key)

    def note_demand(self, key: str) -> None:
        """Note that a key has demand (a request, or work on one): the next start of a worker counts again."""
        self._renewed_by_start.discard(key)

    def start_counts(self, key: str) -> bool:
        """Return whether a worker's start renews a key: once after each demand, while the key is wanted.

        Otherwise a worker that crashes and restarts again and again would keep its key for ever, without demand.
        """
        return key in self._wanted and key not in self._renewed_by_start

    def renew_on_worker_start(self, key: str, now: float, *, extra_lifetime: float = 0.0) -> bool:
        """Renew a key because a worker of it started, and return True; return False where that does not count."""
        if not self.start_counts(key):
            return False
        self.require(key, now, extra_lifetime=extra_lifetime)
        self._renewed_by_start.add(key)
        return True

    def advance(self, now: float) -> list[str]:
        """Let time pass until `now`; return the keys that stepped down, or that a span of theirs made active again."""
        changed: list[str] = []
        while self._agains and self._agains[0][0] <= now:
            due, key = heapq.heappop(self._agains)
            if self._again.get(key) == due:
                del self._again[key]
                if self._prewarm(key, now):
                    changed.append(key)
        while self._deadlines and self._deadlines[0][0] <= now:
            until, key = heapq.heappop(self._deadlines)
            current = self._wanted.get(key)
            if current is None or current.until != until:
                continue  # renewed since: a later heap entry replaces this one
            if current.status is Status.ACTIVE:
                # Counted from when the step was due, so that a late call does not lengthen the key's life.
                self._put(key, KeyTarget(Status.UNBOUND, self._changed(key), until + self._delays(key).stop_delay))
            else:
                self._drop(key)
            changed.append(key)
        return changed

    def make_room(self, most: int, now: float, *, idle: float, busy: Callable[[str], bool]) -> list[str]:
        """Let idle keys leave at once, those first that are unused for longest, so that one more has room; return them.

        `most` is how many keys there may be. A key is idle when nothing required it for `idle` seconds, it is not
        `busy`, and it has no windows or spans in which it is kept.
        """
        excess = len(self._wanted) + 1 - (most - most // _FREE_PART)
        if excess <= 0:
            return []
        used = ((self._used_at(key), key) for key in self._wanted if not (busy(key) or self._stays(key)))
        gone = [key for _, key in heapq.nsmallest(excess, (use for use in used if use[0] <= now - idle))]
        for key in gone:
            self._drop(key)
        return gone

    def _stays(self, key: str) -> bool:
        delays = self._delays(key)
        return bool(delays.warm or delays.prewarm)

    def _used_at(self, key: str) -> float:
        wanted, delays = self._wanted[key], self._delays(key)
        return wanted.until - delays.unbind_delay - (0.0 if wanted.status is Status.ACTIVE else delays.stop_delay)

    def _drop(self, key: str) -> None:
        del self._wanted[key]
        self._spans.pop(key, None)
        self._renewed_by_start.discard(key)
        self._changed(key)

    def _changed(self, key: str) -> int:
        """Report a key to the readers of the target, and return the new generation."""
        self._generation = (self._generation + 1) & _GENERATION_MASK
        self.changes.add(key)
        return self._generation

    def next_change(self) -> float | None:
        """Return the monotonic time at which `advance` may have something to do; None when there is nothing."""
        return min((heap[0][0] for heap in (self._deadlines, self._agains) if heap), default=None)

    def _put(self, key: str, wanted: KeyTarget) -> None:
        self._wanted[key] = wanted
        heapq.heappush(self._deadlines, (wanted.until, key))
        if len(self._deadlines) > 64 + 4 * len(self._wanted):
            self._deadlines = [(wanted.until, name) for name, wanted in self._wanted.items()]
            heapq.heapify(self._deadlines)
