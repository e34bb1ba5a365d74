"""The queue watcher: lists the pool's request queues now and then, for status, metrics and stuck groups.

Writes `state.totals` and `state.ready_since`. What it sees is seconds late, so nothing is deleted on its word.
"""

from __future__ import annotations

import asyncio
import logging

from osrdyne.errors import ManagementError
from osrdyne.management_api import ManagementApi
from osrdyne.pool_state import PoolState
from osrdyne.queue_plan import Totals
from osrdyne_protocol.names import PoolNames

log = logging.getLogger(__name__)


class QueueWatcher:
    """Runs until cancelled; a management API that is away is logged once and asked again."""

    def __init__(self, names: PoolNames, state: PoolState, management: ManagementApi, *, interval: float) -> None:
        self._names = names
        self._state = state
        self._management = management
        self._interval = interval
        self._failing = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                queues = await self._management.request_queues(self._names)
            except ManagementError as error:
                if not self._failing:
                    log.warning("cannot list request queues; trying again", extra={"reason": str(error)})
                self._failing = True
                # What cannot be seen cannot show that a group takes nothing.
                self._state.ready_since.clear()
                continue
            self._failing = False
            self._note({one.key: one.totals for one in queues if one.key is not None and one.totals is not None})

    def _note(self, totals: dict[str, Totals]) -> None:
        state, now = self._state, self._state.clock()
        state.totals = totals
        for key in [key for key in state.ready_since if key not in totals or totals[key].ready == 0]:
            del state.ready_since[key]
        for key, one in totals.items():
            if one.ready > 0:
                state.ready_since.setdefault(key, now)
                state.totals_changes.add(key)
