"""Virtual time in ticks: what is due within one tick happens at its end, in the order of its times.

For loads under which a real process finds many things to do each time that it looks. Much faster than the exact
clock, because what many keys need at about the same time is done in one go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import Context
from heapq import heappop, heappush
from typing import Any

from simulation.virtual_time import RunStalled, Timer, VirtualLoop

#: Ticks in a second.
TICKS = 250


class TickingLoop(VirtualLoop):
    """A virtual loop whose clock stands still within a tick."""

    def __init__(self) -> None:
        super().__init__()
        #: Ticks in which something is due, as a heap, and what: time and a number that keeps the order of equals.
        self._ticks: list[int] = []
        self._due: dict[int, list[tuple[float, int, Timer]]] = {}
        self._made = 0
        # The order of tasks in sets decides nothing that is asked here.
        self.set_task_factory(None)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Timer:
        timer = Timer(self, when, callback, args, context)
        self._made += 1
        tick = math.ceil(when * TICKS)
        due = self._due.get(tick)
        if due is None:
            due = self._due[tick] = []
            heappush(self._ticks, tick)
        due.append((when, self._made, timer))
        return timer

    def waiting(self) -> int:
        """Return how many timers there are that were not cancelled."""
        return sum(not timer._cancelled for due in self._due.values() for _, _, timer in due)

    def _run_once(self) -> None:
        ready = self._ready
        while True:
            if not ready and not self._stopping:
                if not self._ticks:
                    raise RunStalled("nothing is left that could happen")
                tick = heappop(self._ticks)
                self.now = max(self.now, tick / TICKS)
                ready.extend(timer for _, _, timer in sorted(self._due.pop(tick)))
            self._run_ready()
            if self._stopping:
                return
