"""Looks whether the broker has lost one of the pool's static quorum queues, and says so.

The daemon may not delete them: infrastructure code owns them, and a person mends them. To consume a lost queue hangs
for a minute and then ends the connection, so the session waits here until those that it consumes are mended. While the
session acts, the topology watcher has it look again. Writes `state.lost_static` and the log.
"""

from __future__ import annotations

import asyncio
import logging

from osrdyne.broker.management_api import ManagementApi, never_led
from osrdyne.state import PoolState
from osrdyne_protocol.broker import lost
from osrdyne_protocol.names import PoolNames

log = logging.getLogger(__name__)


class StaticQueues:
    """The static quorum queues of one pool, for one session; what earlier sessions found stays in the state."""

    def __init__(self, names: PoolNames, state: PoolState, management: ManagementApi) -> None:
        #: To consume one of these takes a queue that works; the poison queue is only published to.
        self._consumed = (names.orphan_queue, names.dead_letter_queue, names.activity_queue)
        self._all = (*self._consumed, names.poison_queue)
        self._state = state
        self._management = management
        self._evidence = lost.Evidence.known(state.lost_static, state.clock())

    async def usable(self) -> None:
        """Return once no queue that the session consumes is lost, or may be."""
        while True:
            await self.look()
            if not self._evidence.suspects.intersection(self._consumed):
                return
            await asyncio.sleep(lost.LOOK_AGAIN)

    async def look(self) -> None:
        """Look once, and note what is lost. A queue that cannot be asked keeps what is known of it."""
        looks = dict(
            zip(self._all, await asyncio.gather(*(never_led(self._management, one) for one in self._all)), strict=True)
        )
        known = {name: found for name, found in looks.items() if found is not None}
        self._evidence = self._evidence.after(known, self._state.clock())
        self._note(self._evidence.lost)

    def pause(self, interval: float) -> float:
        """Return the seconds to the next look: `interval`, or less while another look is to prove or end a loss."""
        return min(interval, lost.LOOK_AGAIN) if self._evidence.suspects else interval

    def _note(self, found: frozenset[str]) -> None:
        before = self._state.lost_static
        self._state.lost_static = {
            name: lost.problem(self._management.vhost, name) for name in self._all if name in found
        }
        for name, problem in self._state.lost_static.items():
            if name not in before:
                log.warning("a static queue is lost; a person has to mend it", extra={"queue": name, "reason": problem})
        for name in before:
            if name not in found:
                log.warning("a static queue that was lost works again", extra={"queue": name})
