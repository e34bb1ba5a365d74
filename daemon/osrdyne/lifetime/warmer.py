"""The warmer: keeps keys active through their windows, so that their groups run before the first request.

Reads wall time and writes only the target; the other tasks treat such a key like any other. It notices a changed
wall clock within half a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from osrdyne.lifetime.window_rules import Schedule
from osrdyne.state.pool import PoolState

#: Longest time between two readings of the clock.
_LONGEST_WAIT_SECONDS = 30.0


async def keep_warm(state: PoolState, schedule: Schedule, wall_ms: Callable[[], int]) -> None:
    """Run until cancelled; return at once where no key has a window. `wall_ms` reads the wall clock."""
    while True:
        now = wall_ms()
        for key, left in schedule.open(now).items():
            state.tracker.keep(key, state.clock() + left / 1000)
        wait = schedule.next(now)
        if wait is None:
            return
        await asyncio.sleep(min(wait / 1000 + 0.001, _LONGEST_WAIT_SECONDS))
