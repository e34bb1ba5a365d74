"""Checks whether the broker has lost one of the pool's static quorum queues, and reports it.

The daemon may not delete them: infrastructure code owns them, and a person mends them. Consuming a lost queue hangs
for a minute and then ends the connection, so the session waits here until the queues that it consumes are mended.
While the session acts, the topology watcher repeats the check. Writes `state.lost.static` and the log.
"""

from __future__ import annotations

import asyncio
import logging

from osrdyne.broker.management_api import ManagementApi, never_led
from osrdyne.state.pool import PoolState
from osrdyne_pool.broker import lost

log = logging.getLogger(__name__)


class StaticQueues:
    """The static quorum queues of one pool, for one session; findings of earlier sessions stay in the state."""

    def __init__(self, state: PoolState, management: ManagementApi) -> None:
        names = state.names
        #: The session consumes these, so they must work. It only publishes to those of the inventory, never uses the
        #: parking queue, and can do without the activity queue.
        self._consumed = (names.orphan_queue, names.dead_letter_queue)
        self._all = (*names.counted, names.activity_queue)
        self._state = state
        self._management = management
        self._evidence = lost.Evidence.known(state.lost.static, state.clock())

    async def usable(self) -> None:
        """Return once no queue that the session consumes is lost or looks lost."""
        while True:
            await self.look()
            if not self._evidence.suspects.intersection(self._consumed):
                return
            await asyncio.sleep(lost.LOOK_AGAIN_SECONDS)

    async def look(self) -> None:
        """Check once, and note lost queues. A queue that cannot be checked keeps its last result."""
        looks = dict(
            zip(
                self._all,
                await asyncio.gather(*(never_led(self._management, queue) for queue in self._all)),
                strict=True,
            )
        )
        known = {name: found for name, found in looks.items() if found is not None}
        self._evidence = self._evidence.after(known, self._state.clock())
        found, before = self._evidence.lost, self._state.lost.static
        self._state.lost.static = {
            name: lost.problem(self._management.vhost, name) for name in self._all if name in found
        }
        for name, problem in self._state.lost.static.items():
            if name not in before:
                log.warning("a static queue is lost; a person has to mend it", extra={"queue": name, "reason": problem})
        for name in before:
            if name not in found:
                log.warning("a static queue that was lost works again", extra={"queue": name})

    def pause(self, interval: float) -> float:
        """Return the seconds until the next check: `interval`, or less while a suspected loss needs another check."""
        return min(interval, lost.LOOK_AGAIN_SECONDS) if self._evidence.suspects else interval
