"""The group loop: brings worker groups to the target through the driver, each key on its own.

Reads target, queues, activity and totals. Only this loop writes `state.groups` and calls the
driver. It is event driven: a key that needs a group gets one at once; the periodic listing only corrects drift.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from osrdyne.broker.lifecycle_events import LifecycleEvents
from osrdyne.drivers.base import Change, Driver, Group, GroupState, How, WorkerEnd
from osrdyne.errors import DriverError, is_away
from osrdyne.metrics import Metrics
from osrdyne.reconcile import group_rules
from osrdyne.reconcile.keyed_loop import KeyedLoop
from osrdyne.reconcile.turns import Turns
from osrdyne.settings.daemon import LimitSettings
from osrdyne.state.pool import PoolState
from osrdyne.state.values import Attempt, Phase
from osrdyne.state.worker_ends import LONGEST_REASON, EndFact, had_started
from osrdyne_protocol import events
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry

log = logging.getLogger(__name__)

#: Longest time that one call to the driver may take.
_DRIVER_TIMEOUT_SECONDS = 60.0
#: Changes reported by the engine are collected for this long before it is listed.
_COLLECT_CHANGES_SECONDS = 0.05
#: The end of a worker is judged so much later: what it said right before may still be on its way.
_EVENTS_LATE_SECONDS = 0.2
#: An engine may report an end so much later, and count the seconds of a run in whole ones.
_NEWS_LATE_SECONDS = 2.0
#: The plan of a stop that this daemon has not made.
_BY_REQUEST = group_rules.GroupPlan(reason="by request")
#: A lost event stream that was healthy for this long is asked for again soon.
_HEALTHY_STREAM_SECONDS = 5.0


class GroupLoop:
    """Runs until cancelled. A failure of one group affects no other group and does not end the loop."""

    def __init__(
        self,
        state: PoolState,
        driver: Driver,
        lifecycle: LifecycleEvents,
        metrics: Metrics,
        limits: LimitSettings,
        *,
        patience: float,
        late: float,
        listing_interval: float,
    ) -> None:
        """Take times in seconds: how long a running group may take none of its ready messages before it counts as
        stuck, how late the broker's counts may be, and the time between two listings of the engine.
        """
        self._state = state
        self._driver = driver
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._limits = limits
        self._patience = patience
        self._late = late
        self._listing_interval = listing_interval
        self._engine = OutageLog(log, "the engine")
        self._changes = OutageLog(log, "the engine's changes", meanwhile="listing groups until they can")
        self._turns = Turns(limits)
        self._accepted: dict[str, float] = {}
        #: Why groups were asked to stop.
        self._stops: dict[str, group_rules.GroupPlan] = {}
        #: What workers said before this session began is not known.
        self._since = state.clock()
        #: Since when the engine has listed a group as running, without an interruption.
        self._running_since: dict[str, float] = {}
        #: When the last listing that was adopted began.
        self._listed_at = -1.0
        #: Keys whose group changed during an action on it: the action's result may be out of date.
        self._changed_meanwhile: set[str] = set()
        self._listing = asyncio.Event()
        self._loop = KeyedLoop(
            state.clock, [state.tracker.changes, state.queues.changes, state.activity.changes, state.counts.changes]
        )

    async def run(self) -> None:
        attempts = self._state.groups.attempts
        for key, attempt in list(attempts.items()):
            if key in self._state.tracker.wanted:
                # Another daemon may have started its workers meanwhile.
                attempts[key] = group_rules.in_a_new_session(attempt)
            else:
                del attempts[key]
        self._adopt(await self._list(), began=self._state.clock())
        await self._loop.run(
            self._look_at,
            keys=(*self._state.tracker.wanted, *self._state.groups),
            beside=(self._list_again(), self._watch()),
            afterwards=self._give_turns,
        )

    def _look_at(self, key: str) -> None:
        state, now = self._state, self._state.clock()
        group, attempt = state.groups.get(key), state.groups.attempt(key)
        if group is None:
            self._stops.pop(key, None)
        attempt = self._note_life(key, attempt, group, now)
        if group is None or group.state is not GroupState.RUNNING:
            self._running_since.pop(key, None)
        else:
            self._running_since.setdefault(key, now)
        plan = group_rules.plan(
            wanted=key in state.tracker.wanted,
            phase=state.queues.phase(key),
            group=group,
            attempt=attempt,
            template=self._driver.template,
            stuck=self._stuck(key, group, attempt),
            now=now,
        )
        if self._turns.wait(key, plan):
            return
        if plan.action is not None:
            self._begin(key, plan)
        elif plan.at is not None:
            self._loop.look_at(key, plan.at)
        elif group is None and key not in state.tracker.wanted:
            if not attempt.unstarted or state.queues.phase(key) is Phase.GONE:  # requests may still wait
                state.groups.attempts.pop(key, None)
            self._accepted.pop(key, None)
        elif (at := group_rules.makes_up_at(attempt)) is not None:
            if now < at:
                self._loop.look_at(key, at)
            else:
                self._listing.set()  # only the engine knows whether the worker runs, or waits for its next start

    def _note_life(self, key: str, attempt: Attempt, group: Group | None, now: float) -> Attempt:
        """Note what workers reported, or requests show of them, and return what is remembered then."""
        activity, queue = self._state.activity.get(key), self._state.queues.get(key)
        if queue is not None and (found := group_rules.after_started(attempt, at=queue.taken_at)) != attempt:
            self._state.groups.attempts[key] = attempt = found
            self._state.groups.changes.add(key)
        if activity is not None and attempt != Attempt():
            attempt, unstarted = group_rules.after_started(attempt, at=activity.consuming_at), attempt.unstarted
            if attempt.unstarted != unstarted:
                self._state.groups.changes.add(key)  # its queue may be bound at once
            attempt = group_rules.after_sign_of_life(attempt, group, at=activity.last_event, now=now)
            self._state.groups.attempts[key] = attempt
        served_at = self._state.counts.served_at.get(key)
        if served_at is not None and (found := group_rules.after_served(attempt, at=served_at - self._late)) != attempt:
            self._state.groups.attempts[key] = attempt = found
        self._turns.note(key, attempt, group, template=self._driver.template, now=now)
        return attempt

    def _stuck(self, key: str, group: Group | None, attempt: Attempt) -> str | None:
        if group is None or group.state is GroupState.STOPPING or self._state.counts.counted_at is None:
            return None
        grace = group_rules.consumer_grace(attempt, start_grace=self._limits.start_grace, patience=self._patience)
        activity = self._state.activity.get(key)
        reason = self._state.signs(key).unserved_reason(
            grace=grace, late=self._late, running_since=self._running_since.get(key, 0.0)
        ) or group_rules.stuck_reason(
            ready_since=self._state.counts.ready_since.get(key),
            held_since=self._state.counts.held_since.get(key),
            last_taken=activity.last_taken if activity else None,
            started_at=attempt.started_at,
            patience=self._patience,
            counted_at=self._state.counts.counted_at,
            late=self._late,
        )
        if group.state is not GroupState.STARTING:
            return reason
        if reason is not None and self._accepted.get(key, -1.0) >= self._listed_at:
            self._listing.set()  # not listed since its start: only the engine knows whether it runs by now
        return None

    def _give_turns(self) -> None:
        now, attempt = self._state.clock(), self._state.groups.attempt
        for key, plan in self._turns.take(now, has_failed=lambda key: attempt(key).failures > 0):
            self._loop.look_at(key, now + self._limits.start_hold)
            self._begin(key, plan)
        self._state.groups.outdated = self._turns.outdated

    def _begin(self, key: str, plan: group_rules.GroupPlan) -> None:
        if plan.action is group_rules.GroupAction.START:
            action = partial(self._guarded, key, partial(self._start, key), self._not_started)
        else:
            action = partial(self._guarded, key, partial(self._stop, key, plan), self._not_stopped)
        self._loop.begin(key, action, "group-action")

    async def _guarded(
        self, key: str, action: Callable[[], Awaitable[None]], failed: Callable[[str, str, Exception], None]
    ) -> None:
        try:
            async with asyncio.timeout(_DRIVER_TIMEOUT_SECONDS):
                await action()
        except (DriverError, TimeoutError) as error:
            failed(key, str(error) or f"the driver did not answer within {_DRIVER_TIMEOUT_SECONDS:.0f} s", error)
        except Exception as error:
            # A driver's bug with one key must not end the whole session.
            log.exception("the driver failed unexpectedly", extra={"key": key})
            failed(key, f"{type(error).__name__}: {error}", error)
        finally:
            if key in self._changed_meanwhile:
                self._changed_meanwhile.discard(key)
                self._listing.set()

    async def _start(self, key: str) -> None:
        started, groups = self._state.clock(), self._state.groups
        groups.trying.add(key)
        try:
            await self._driver.start(key)
        finally:
            groups.trying.discard(key)
        groups.attempts[key] = group_rules.after_start(groups.attempt(key), now=started)
        groups.note(key, Group(key, GroupState.STARTING, 1, self._driver.template))
        self._accepted[key] = self._state.clock()
        log.info("group started", extra={"key": key})
        self._lifecycle.record(events.GROUP_STARTED, key)

    async def _stop(self, key: str, plan: group_rules.GroupPlan) -> None:
        log.info("stopping group", extra={"key": key, "reason": plan.reason})
        await self._driver.stop(key)
        self._stops[key] = plan
        self._state.groups.note_stopping(key)
        self._lifecycle.record(events.GROUP_STOPPED, key, outcome=plan.reason)
        if plan.failed:
            self._failed(key, plan.reason)

    def _failed(self, key: str, error: str) -> None:
        now = self._state.clock()
        attempt = group_rules.after_failure(self._state.groups.attempt(key), error, now=now)
        self._state.groups.attempts[key] = attempt
        self._turns.failed(key)
        log.warning(
            "group failed; it is tried again",
            extra={"key": key, "reason": error, "retry_in": round(attempt.not_before - now, 1)},
        )
        self._loop.look_at(key)

    def _not_stopped(self, key: str, reason: str, _: Exception) -> None:
        self._failed(key, reason)

    def _not_started(self, key: str, reason: str, error: Exception) -> None:
        self._failed(key, reason)
        self._note_end(key, WorkerEnd(How.NO_START), reason, self._state.clock(), None, counts=not is_away(error))

    def _ended(self, key: str, end: WorkerEnd, error: str | None) -> None:
        """Note that a worker ended, once what it said before has come."""
        plan, stopped = self._stops.get(key, _BY_REQUEST), end.how is How.STOPPED
        if stopped and plan.failed:
            # Only its output may say why it does not work, and an engine may delete that with it.
            attempts = self._state.groups.attempts
            attempts[key] = group_rules.after_end_of_stop(self._state.groups.attempt(key), plan, end.trace)
        elif stopped and error is None:
            end = replace(end, output=())
        trace = end.trace if plan.failed else ""
        reason = error or (f"stopped: {plan.reason}{trace}" if stopped else "ended while no daemon watched it")
        # What no daemon watched may be why requests expire, but says nothing about a start.
        failed, counts = plan.failed or not stopped, stopped or error is not None
        now, began = self._state.clock(), self._state.groups.attempt(key).started_at
        if end.seconds is not None:
            # An engine may have restarted it since the daemon's start, or since its first word.
            began = now - end.seconds - _NEWS_LATE_SECONDS
        later = 0.0 if end.how is How.NO_START else _EVENTS_LATE_SECONDS
        asyncio.get_running_loop().call_later(later, self._note_end, key, end, reason, now, began, failed, counts)

    def _note_end(
        self,
        key: str,
        end: WorkerEnd,
        reason: str,
        at: float,
        began: float | None,
        failed: bool = True,
        counts: bool = True,
    ) -> None:
        """`counts` is False where it says nothing about how workers of the key start: the engine was away, or this end
        was not watched.
        """
        state, activity = self._state, self._state.activity.get(key)
        former, served_at = state.ends.former(key, end.worker_id), state.counts.served_at.get(key)
        started = had_started(
            end,
            activity.started_at if activity is not None else {},
            former=former or 0.0,
            began=max((time for time in (began, former) if time is not None), default=None),
            since=self._since - _NEWS_LATE_SECONDS,
            served_at=None if served_at is None else served_at - self._late,
        )
        held = 0 if started is False else state.activity.delivery_history.held_by(key, end.worker_id) or None
        text = " ".join(reason.split())[:LONGEST_REASON]
        fact = EndFact(key, end, text, started, held, at, failed)
        state.ends.note(fact)
        if counts or end.how is not How.NO_START:
            self._metrics.worker_exits.labels(end.how.value).inc()
        if failed and key in state.tracker.wanted:
            state.groups.attempts[key] = group_rules.after_end(
                state.groups.attempt(key),
                started=started if counts else None,
                held=None if end.how is How.STOPPED else held,
                now=state.clock(),
            )
            self._loop.look_at(key)
            state.groups.changes.add(key)
        self._lifecycle.record(fact.event, key, outcome=end.short, more=fact.headers())

    async def _watch(self) -> None:
        retry = Retry(stable_after=_HEALTHY_STREAM_SECONDS)
        while True:
            began = self._state.clock()
            # An engine where nothing happens sends nothing.
            works = asyncio.get_running_loop().call_later(_HEALTHY_STREAM_SECONDS, self._changes_come)
            try:
                async for change in self._driver.changes():
                    self._changes_come()
                    self._changed(change)
                return
            except DriverError as error:
                self._changes.failed(str(error), self._state.clock())
            finally:
                works.cancel()
            self._listing.set()
            await asyncio.sleep(retry.failed(self._state.clock() - began))

    def _changes_come(self) -> None:
        self._changes.over(self._state.clock())

    def _changed(self, change: Change) -> None:
        group = self._state.groups.get(change.key)
        asked_for = group is not None and group.state is GroupState.STOPPING
        if change.end is not None:
            # Counts of a worker that says nothing are looked at only now.
            self._note_life(change.key, self._state.groups.attempt(change.key), group, self._state.clock())
            self._ended(change.key, change.end, change.error)
        if change.error is not None and change.key in self._state.tracker.wanted and not asked_for:
            self._failed(change.key, change.error)
        if self._loop.is_busy(change.key):
            self._changed_meanwhile.add(change.key)
        self._loop.look_at(change.key)
        self._listing.set()

    async def _list_again(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._listing_interval):
                    await self._listing.wait()
            # Many changes at once need one listing.
            await asyncio.sleep(_COLLECT_CHANGES_SECONDS)
            self._listing.clear()
            began = self._state.clock()
            self._adopt(await self._list(), began=began)

    async def _list(self) -> list[Group]:
        retry = Retry()
        while True:
            try:
                async with asyncio.timeout(_DRIVER_TIMEOUT_SECONDS):
                    listed = await self._driver.list()
            except (DriverError, TimeoutError) as error:
                self._engine.failed(str(error), self._state.clock())
                await asyncio.sleep(retry.failed())
            else:
                self._engine.over(self._state.clock())
                return listed

    def _adopt(self, listed: list[Group], *, began: float) -> None:
        groups, self._listed_at = self._state.groups, began
        found = {group.key: group for group in listed}
        for key in dict.fromkeys((*found, *groups)):
            if found.get(key) == groups.get(key):
                continue
            if key not in found and self._loop.is_busy(key):
                self._changed_meanwhile.add(key)
                continue
            if key not in found and self._accepted.get(key, -1.0) >= began:
                continue  # the listing is older than the start
            groups.note(key, found.get(key))
            self._loop.look_at(key)
