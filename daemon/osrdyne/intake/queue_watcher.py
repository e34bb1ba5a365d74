"""The queue watcher: polls the management API for the counts that status, metrics and stuck groups need.

The counts also stand in for events that do not arrive: an active key whose workers have requests is renewed.

Writes `state.totals`, `state.former_totals`, `state.counted_at`, `state.counted_since`, `state.served_at`,
`state.ready_since`, `state.depths`, `state.listeners`, `state.alarm`, `state.uncounted` and `state.lost`. Its counts
are seconds late, so nothing is deleted because of them alone.

The broker has no counts of a queue that it lost. So the watcher checks one by one only queues without counts, and
queues that have not confirmed a forward.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from osrdyne.broker.management_api import ManagementApi, RequestQueue, never_led
from osrdyne.errors import ManagementError
from osrdyne.intake.activity_rules import latest_use, was_delivered
from osrdyne.state.pool import PoolState
from osrdyne.state.tracker import Status
from osrdyne_pool.broker import listeners
from osrdyne_pool.broker.lost import Evidence

log = logging.getLogger(__name__)

#: Queues that one poll checks one by one. A call takes the broker a millisecond.
_MOST_ASKED = 200


class QueueWatcher:
    """Runs until cancelled; an unreachable management API is logged once and polled again.

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
        self._management = management
        self._blocked = blocked
        self._interval = interval
        self._lateness = lateness
        #: Since when several connections consume a queue of the daemon.
        self._shared_since: dict[str, float] = {}

    async def run(self) -> None:
        # Counts from before an outage prove nothing: the workers had no broker meanwhile.
        self._state.former_totals, self._state.totals = self._state.totals or self._state.former_totals, {}
        self._state.counted_at = None
        self._forget_waits()
        try:
            self._note_alarm(self._blocked())
            while True:
                # At once: a broker that restarted may have lost queues.
                await self._look()
                await asyncio.sleep(self._interval)
        finally:
            # These values would look current after the session.
            self._state.depths, self._state.listeners = {}, {}
            self._state.lost = Evidence()
            self._state.alarm = self._state.uncounted = None

    async def _look(self) -> None:
        asked = self._state.clock()
        try:
            alarm = await self._management.alarm()
            depths = await self._management.depths(self._state.names)
            queues = await self._management.request_queues(self._state.names)
            await self._look_for_lost(queues)
        except ManagementError as error:
            if self._state.uncounted is None:
                log.warning("cannot list request queues; trying again", extra={"reason": str(error)})
            self._state.uncounted = str(error)
            # Without counts, nothing shows that a group is stuck, or that it consumes nothing.
            self._forget_waits()
            self._state.depths = {}
            self._note_alarm(self._blocked())
            return
        self._state.uncounted = None
        self._note_alarm(self._blocked() or alarm)
        before, self._state.counted_at = self._state.counted_at, asked
        self._state.depths = depths
        self._note(queues, asked if before is None else before, asked)
        # What these looks find is of less weight than the counts, which must not be lost with it.
        with contextlib.suppress(ManagementError):
            await self._look_for_listeners()
        if self._state.alarm is not None:
            # A group whose replies, or whose first event, the broker holds back is not stuck.
            self._forget_waits()

    def _forget_waits(self) -> None:
        self._state.ready_since.clear()
        self._state.counted_since.clear()

    async def _look_for_lost(self, queues: list[RequestQueue]) -> None:
        state, now = self._state, self._state.clock()
        own = {one.key: one for one in queues if one.key is not None}
        silent = [key for key, one in own.items() if one.totals is None]
        unconfirmed = [key for key in sorted(state.unconfirmed) if key in own]
        state.unconfirmed.clear()
        before = state.lost
        # Queues that already look lost come first: whether they still do matters most.
        suspects = dict.fromkeys([*(key for key in before.seen if key in own), *unconfirmed, *silent])
        looks = dict.fromkeys((key for key in before.seen if key not in own), False)
        for key in list(suspects)[:_MOST_ASKED]:
            if state.clock() - now > self._interval:
                break  # a slow API must not delay the rest of the poll
            found = await never_led(self._management, own[key].name)
            if found is not None:
                looks[key] = found
        # The queue loop may have handled some meanwhile, which makes what was seen of them out of date.
        taken = {key: False for key in before.seen if key not in state.lost.seen}
        state.lost = state.lost.after({**looks, **taken}, now)
        for key in dict.fromkeys([*before.seen, *state.lost.seen]):
            state.lost_changes.add(key)

    async def _look_for_listeners(self) -> None:
        """Note queues of the daemon that others consume, for longer than an old connection of ours would be shown."""
        state, before, now = self._state, self._state.listeners, self._state.clock()
        names = (state.names.orphan_queue, state.names.dead_letter_queue)
        found = {name: listeners.problem(await self._management.listeners(name)) for name in names}
        self._shared_since = {name: self._shared_since.get(name, now) for name in names if found[name]}
        late = [name for name, since in self._shared_since.items() if now - since >= self._lateness]
        state.listeners = {name: str(found[name]) for name in late}
        for name in state.listeners.keys() - before.keys():
            log.warning("a queue of the daemon has other consumers", extra={"queue": name, "reason": found[name]})
        for name in before.keys() - state.listeners.keys():
            log.warning("a queue of the daemon has no other consumers any more", extra={"queue": name})

    def _note_alarm(self, alarm: str | None) -> None:
        before, self._state.alarm = self._state.alarm, alarm
        if alarm is not None and before is None:
            log.warning("broker alarm: it takes no publishes, and all wait", extra={"reason": alarm})
        elif alarm is None and before is not None:
            log.warning("broker alarm is over", extra={"reason": before})

    def _note(self, queues: list[RequestQueue], before_at: float, at: float) -> None:
        state, now, before = self._state, self._state.clock(), self._state.totals
        totals = {
            one.key: one.totals
            for one in queues
            # Counts of a foreign queue must not count for a key of this pool.
            if one.key is not None and one.totals is not None
        }
        state.totals = totals
        for key in [key for key in state.ready_since if key not in totals or totals[key].ready == 0]:
            del state.ready_since[key]
        for times in (state.counted_since, state.served_at):
            for key in [key for key in times if key not in totals]:
                del times[key]
        for key, one in totals.items():
            # A queue that was made again is a new one: its workers have the whole grace to find it.
            state.counted_since.setdefault(key, at)
            if was_delivered(before.get(key), one):
                state.ready_since.pop(key, None)
            if one.ready > 0:
                state.ready_since.setdefault(key, now)
            if one.consumers > 0:
                state.served_at[key] = at
            if one.ready > 0 or one.consumers == 0:
                state.totals_changes.add(key)
            used_at = latest_use(before.get(key), one, before_at=before_at - self._lateness, at=at - self._lateness)
            self._renew(key, used_at)

    def _renew(self, key: str, used_at: float | None) -> None:
        """Renew an active key as of a past use of it. A key on its way out stays there: counts are late."""
        wanted = self._state.tracker.wanted.get(key)
        if used_at is not None and wanted is not None and wanted.status is Status.ACTIVE:
            self._state.require(key, extra_lifetime=used_at - self._state.clock())
