"""The target clock: lets time pass in the target, so that keys without activity step down on time."""

from __future__ import annotations

from osrdyne.runtime.changes import wait_for
from osrdyne.state import PoolState


class TargetClock:
    """Runs until cancelled."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._required = state.target_changes.reader()

    async def run(self) -> None:
        state = self._state
        try:
            while True:
                due = state.tracker.next_change()
                # A key that is required meanwhile may be due earlier.
                await self._required.take(wait_for(due, state.clock()))
                for key in state.tracker.advance(state.clock()):
                    state.target_changes.add(key)
        finally:
            self._required.close()
