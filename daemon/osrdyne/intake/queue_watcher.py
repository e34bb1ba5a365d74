"""The queue watcher: polls the management API for the counts that status, metrics and stuck groups need.

The counts also stand in for events that do not arrive: an active key whose workers have requests is renewed.

Writes `state.counts`, and what it sees of lost queues. Counts are seconds late, so nothing is deleted because of them
alone.

The broker has no counts of a queue that it lost. So the watcher checks one by one only queues without counts, and
queues that have not confirmed a forward.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from dataclasses import replace

from osrdyne.broker.management_api import ManagementApi, RequestQueue, never_led
from osrdyne.errors import ManagementError
from osrdyne.intake.activity_rules import latest_use
from osrdyne.state.pool import PoolState
from osrdyne.state.tracker import Status
from osrdyne.state.values import QueueTotals
from osrdyne_pool.broker import listeners

log = logging.getLogger(__name__)

#: Queues that one poll checks one by one. A call takes the broker a millisecond.
_MOST_ASKED = 200


class QueueWatcher:
    """Runs until cancelled; a management API that does not answer is logged and polled again.

    `blocked` says why the broker has blocked the daemon's own connection, None while it has not. `interval` and
    `lateness`, of the broker's counts, in seconds.
    """

    def __init__(
        self,
        state: PoolState,
        management: ManagementApi,
        blocked: Callable[[], str | None],
        *,
        interval: float,
        lateness: float,
    ) -> None:
        self._state = state
        self._counts = state.counts
        self._management = management
        self._blocked = blocked
        self._interval = interval
        self._lateness = lateness
        #: Since when several connections consume a queue of the daemon.
        self._shared_since: dict[str, float] = {}

    async def run(self) -> None:
        self._state.lost.begin(self._counts.totals)
        self._counts.begin()
        try:
            self._note_alarm(self._blocked())
            while True:
                # At once: a broker that restarted may have lost queues.
                await self._look()
                await asyncio.sleep(self._interval)
        finally:
            self._counts.end()
            self._state.lost.end()

    async def _look(self) -> None:
        counts, asked = self._counts, self._state.clock()
        try:
            alarm = await self._management.alarm()
            depths = await self._management.depths(self._state.names)
            queues = await self._management.request_queues(self._state.names)
            await self._look_for_lost(queues)
        except ManagementError as error:
            self._management.outage.failed(str(error), self._state.clock())
            counts.note_failure(str(error))
            self._note_alarm(self._blocked())
            return
        counts.uncounted = None
        self._management.outage.over(self._state.clock())
        self._note_alarm(self._blocked() or alarm)
        self._note(depths, queues, asked)
        # What these looks find is of less weight than the counts, which must not be lost with it.
        with contextlib.suppress(ManagementError):
            await self._look_for_listeners()
        if counts.alarm is not None:
            # A group whose replies, or whose first event, the broker holds back is not stuck.
            counts.forget_waits()

    async def _look_for_lost(self, queues: list[RequestQueue]) -> None:
        lost, now = self._state.lost, self._state.clock()
        own = {queue.key: queue for queue in queues if queue.key is not None}
        silent = [key for key, listed in own.items() if listed.totals is None]
        unconfirmed = [key for key in lost.take_unconfirmed() if key in own]
        before = lost.evidence
        # Queues that already look lost come first: whether they still do matters most.
        suspects = dict.fromkeys([*(key for key in before.seen if key in own), *unconfirmed, *silent])
        looks = dict.fromkeys((key for key in before.seen if key not in own), False)
        for key in list(suspects)[:_MOST_ASKED]:
            if self._state.clock() - now > self._interval:
                break  # a slow API must not delay the rest of the poll
            found = await never_led(self._management, own[key].name)
            if found is not None:
                looks[key] = found
        lost.note_looks(before, looks, now)

    async def _look_for_listeners(self) -> None:
        """Note queues of the daemon that others consume, for longer than an old connection of ours would be shown."""
        counts, before, now = self._counts, self._counts.listeners, self._state.clock()
        names = (self._state.names.orphan_queue, self._state.names.dead_letter_queue)
        found = {name: listeners.problem(await self._management.listeners(name)) for name in names}
        self._shared_since = {name: self._shared_since.get(name, now) for name in names if found[name]}
        late = [name for name, since in self._shared_since.items() if now - since >= self._lateness]
        counts.listeners = {name: str(found[name]) for name in late}
        for name in counts.listeners.keys() - before.keys():
            log.warning("a queue of the daemon has other consumers", extra={"queue": name, "reason": found[name]})
        for name in before.keys() - counts.listeners.keys():
            log.warning("a queue of the daemon has no other consumers any more", extra={"queue": name})

    def _note_alarm(self, alarm: str | None) -> None:
        before, self._counts.alarm = self._counts.alarm, alarm
        if alarm is not None and before is None:
            log.warning("broker alarm: it takes no publishes, and all wait", extra={"reason": alarm})
        elif alarm is None and before is not None:
            log.warning("broker alarm is over", extra={"reason": before})

    def _note(self, depths: dict[str, int], queues: list[RequestQueue], at: float) -> None:
        before = self._counts.totals
        before_at = at if self._counts.counted_at is None else self._counts.counted_at
        totals = {
            queue.key: self._without_own(queue.key, queue.totals, at)
            for queue in queues
            # Counts of a foreign queue must not count for a key of this pool.
            if queue.key is not None and queue.totals is not None
        }
        self._counts.note(depths, totals, at=at, now=self._state.clock())
        for key, found in totals.items():
            used_at = latest_use(before.get(key), found, before_at=before_at - self._lateness, at=at - self._lateness)
            self._renew(key, used_at)

    def _without_own(self, key: str, totals: QueueTotals, at: float) -> QueueTotals:
        """Return counts without consumers where one may be the daemon itself: it is not a worker."""
        own = self._state.queues.consumed_until.get(key, -math.inf) >= at - self._lateness
        return replace(totals, consumers=0) if own else totals

    def _renew(self, key: str, used_at: float | None) -> None:
        """Renew an active key as of a past use of it. A key on its way out stays there: counts are late."""
        wanted = self._state.tracker.wanted.get(key)
        if used_at is not None and wanted is not None and wanted.status is Status.ACTIVE:
            self._state.require(key, extra_lifetime=used_at - self._state.clock())
