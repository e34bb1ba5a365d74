"""Totals as the management API shows them: samples taken now and then, and shown later still."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from simulation.model.contents import Contents
    from simulation.model.objects import Objects


class Sample(NamedTuple):
    """Totals of a queue at a moment."""

    ready: int
    unacknowledged: int
    #: these, and dead letters that have not arrived
    messages: int
    consumers: int
    #: messages that it has delivered so far
    delivered: int


class Samples:
    """The samples of one queue. None is taken by a timer: before each change of the queue, those that have
    become due since the last change are noted, and all of them show the same.
    """

    __slots__ = ("_due", "_later", "_shown")

    def __init__(self) -> None:
        self._due: float | None = None  # when the next sample is taken
        self._later: deque[tuple[float, Sample]] = deque()  # taken, and from when each is shown
        self._shown: Sample | None = None

    def note(self, broker: Objects, queue: Contents) -> None:
        """Take the samples that are due; the queue still is what it was when they were."""
        now = broker.now
        interval = broker.timing.statistics_interval
        if self._due is None:
            self._due = now + broker.rng.random() * interval
        if now < self._due:
            return
        missed = int((now - self._due) // interval)
        # What matters of a long quiet time is when its first sample was shown.
        first = self._due
        self._due += (missed + 1) * interval
        least, most = broker.timing.statistics_lag
        shown_from = first + least + (most - least) * broker.rng.random()
        ready, held = queue.ready_count, len(queue.unacked)
        sample = Sample(ready, held, ready + held + len(queue.dead_lettering), len(queue.consumers), queue.delivered)
        self._later.append((shown_from, sample))
        if len(self._later) > 8:
            self._forget(now)

    def shown(self, broker: Objects, queue: Contents) -> Sample | None:
        """Return the sample that the management API shows now; None: there is none yet."""
        self.note(broker, queue)
        self._forget(broker.now)
        return self._shown

    def _forget(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            self._shown = self._later.popleft()[1]
