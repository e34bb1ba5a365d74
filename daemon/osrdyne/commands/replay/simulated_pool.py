"""The events that a pool would have recorded of a list of calls: the daemon's own decisions in virtual time. Pure.

Target, debouncing, renewal and the plans of queues and groups are the daemon's own code. The rest is simplified: each
group is one worker that serves its queue in order, broker and engine are always up, no request fails or expires, and
starts of groups do not wait for one another.

All times are whole milliseconds since the Unix epoch, so that a delay is exact to the millisecond. Memory grows with
the number of keys that are wanted at once.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from osrdyne.drivers.base import Group, GroupState
from osrdyne.intake import activity_rules
from osrdyne.intake.bursts import Bursts
from osrdyne.lifetime.window_rules import Schedule
from osrdyne.reconcile import group_rules, queue_rules
from osrdyne.reconcile.group_rules import GroupAction
from osrdyne.reconcile.queue_rules import Finding, MessagesFound, QueueStep
from osrdyne.state.tracker import TargetTracker
from osrdyne.state.values import Attempt, Phase, QueueState, QueueTotals
from osrdyne_pool.settings import Delays
from osrdyne_protocol import events, statuses

_RUNNING = Group("", GroupState.RUNNING, 1, "")
_NO_ATTEMPT = Attempt()


class PastCall(NamedTuple):
    """One request, as a caller sends it."""

    time_ms: int
    key: str
    #: How long the worker works for it; None for the value in `Circumstances`.
    run_ms: int | None = None


class PastEvent(NamedTuple):
    """One event of the pool, with what its headers carry; None where an event carries no such header."""

    key: str
    event: str
    event_id: str
    time_ms: int
    worker_id: str | None = None
    request_id: str | None = None
    outcome: str | None = None
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The assumptions of a replay. All times are in milliseconds."""

    delays: Callable[[str], Delays]
    #: Windows in which keys are kept active; none begins after the last call.
    warm: Schedule = field(default_factory=lambda: Schedule({}))
    debounce: int = 1000
    statistics_interval: int = 7500
    #: Time from a group's start until its worker reports that it serves; called once for each start.
    start: Callable[[], int] = lambda: 0
    #: How long a worker works for a call without a duration.
    run: int = 50
    #: Between two signs of life of a worker that works for one request; that of the worker library.
    alive: int = 10_000
    #: From an orphan's arrival until its queue is declared and bound, and from then until it is forwarded.
    binding: int = 6
    forwarding: int = 2
    #: Returns a new id for an event or a worker.
    identity: Callable[[], str]
    #: Who the daemon is: the `worker_id` of its own events.
    daemon_id: str = "replay"
    #: Prefix of every request's id; a running number follows.
    request_prefix: str = ""


@dataclass(slots=True)
class Tally:
    """Totals of a replay so far. Times are in milliseconds."""

    calls: int = 0
    #: Calls that found no bound queue.
    cold: int = 0
    #: Starts of groups.
    starts: int = 0
    events: int = 0
    #: Time that groups existed, and time that their workers worked.
    up: int = 0
    busy: int = 0
    #: Longest time that a call waited for its worker to begin.
    longest_wait: int = 0
    first: int | None = None
    last: int | None = None


class _Request(NamedTuple):
    """A call on its way."""

    id: str
    came: int
    run: int
    #: As an orphan: the generation from which its queue has to be asserted.
    generation: int = 0


@dataclass(slots=True)
class _Key:
    """The state of one key: its queue, its group, and the requests on their way."""

    queue: QueueState = field(default_factory=lambda: QueueState(Phase.GONE))
    asserting: bool = False
    orphans: list[_Request] = field(default_factory=list)
    waiting: deque[_Request] = field(default_factory=deque)
    #: The worker of the group; None where there is no group.
    worker: str | None = None
    #: When the group was started, and whether its worker serves yet.
    since: int = 0
    serves: bool = False
    in_hand: _Request | None = None
    #: When the queue is looked at again.
    timer: float | None = None


class Replay:
    """One replay. `tally` may be read while it runs."""

    def __init__(self, given: Circumstances) -> None:
        self._given = given
        self._tracker = TargetTracker(given.delays)
        self._debounce = Bursts(given.debounce)
        self._keys: dict[str, _Key] = {}
        self._now = 0
        self._over = False
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._unread_events: list[PastEvent] = []
        self.tally = Tally()

    def run(self, calls: Iterable[PastCall]) -> Iterator[PastEvent]:
        """Yield the events of calls that come in the order of their time, in the order of theirs, until all is over."""
        for call in calls:
            if not self.tally.calls:
                self._keep_warm(call.time_ms)
            self._pass(until=call.time_ms)
            self._now = call.time_ms
            self._arrive(call)
            yield from self._unread_events
            self._unread_events.clear()
        self._over = True
        self._pass(until=math.inf)
        yield from self._unread_events

    def _pass(self, until: float) -> None:
        while True:
            due = self._agenda[0][0] if self._agenda else math.inf
            step_down = self._tracker.next_change()
            if step_down is not None and step_down < due:
                if step_down > until:
                    return
                self._now = int(step_down)
                for key in self._tracker.advance(step_down):
                    self._keys.setdefault(key, _Key())
                    self._consider(key)
            elif due <= until and self._agenda:
                self._now = int(due)
                _, _, action, arguments = heapq.heappop(self._agenda)
                action(*arguments)
            else:
                return

    def _later(self, due: float, action: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._agenda, (due, next(self._order), action, arguments))

    def _tell(
        self,
        key: str,
        event: str,
        worker_id: str | None,
        request_id: str | None = None,
        outcome: str | None = None,
        duration_ms: int | None = None,
    ) -> None:
        tally = self.tally
        tally.events += 1
        if tally.first is None:
            tally.first = self._now
        tally.last = self._now
        identity = self._given.identity()
        self._unread_events.append(
            PastEvent(key, event, identity, self._now, worker_id, request_id, outcome, duration_ms)
        )

    # --- requests ---------------------------------------------------------------------------------------------

    def _arrive(self, call: PastCall) -> None:
        given, tally, key = self._given, self.tally, call.key
        tally.calls += 1
        request = _Request(
            f"{given.request_prefix}{tally.calls}", self._now, given.run if call.run_ms is None else call.run_ms
        )
        one = self._keys.get(key)
        if one is None:
            one = self._keys[key] = _Key()
        if one.queue.phase is Phase.BOUND:
            one.waiting.append(request)
            self._hand_out(key, one)
            return
        tally.cold += 1
        self._tell(key, events.ORPHAN_SEEN, given.daemon_id, request.id)
        generation = self._tracker.require(key, self._now, found_unbound=True)
        one.orphans.append(request._replace(generation=generation))
        self._consider(key)

    def _asserted(self, key: str, generation: int) -> None:
        one = self._keys[key]
        one.asserting = False
        if one.queue.phase is not Phase.BOUND:
            self._tell(key, events.QUEUE_READY, self._given.daemon_id)
        one.queue = QueueState(Phase.BOUND, asserted=generation)
        ready = [request for request in one.orphans if request.generation <= generation]
        one.orphans = one.orphans[len(ready) :]
        for request in ready:
            self._later(self._now + self._given.forwarding, self._forwarded, key, request)
        self._consider(key)

    def _forwarded(self, key: str, request: _Request) -> None:
        self._tell(key, events.FORWARDED, self._given.daemon_id, request.id)
        one = self._keys[key]
        one.waiting.append(request)
        self._hand_out(key, one)

    def _hand_out(self, key: str, one: _Key) -> None:
        if not one.serves or one.in_hand is not None or not one.waiting:
            return
        request = one.in_hand = one.waiting.popleft()
        self.tally.longest_wait = max(self.tally.longest_wait, self._now - request.came)
        self._tell(key, events.REQUEST_RECEIVED, one.worker, request.id)
        self._later(self._now + request.run, self._finished, key, one)
        if request.run > self._given.alive:
            self._later(self._now + self._given.alive, self._alive, key, one, request)
        self._renew(key, events.REQUEST_RECEIVED)

    def _finished(self, key: str, one: _Key) -> None:
        request, one.in_hand = one.in_hand, None
        assert request is not None
        self.tally.busy += request.run
        self._tell(key, events.FINISHED, one.worker, request.id, statuses.OK, request.run)
        self._renew(key, events.FINISHED)
        self._hand_out(key, one)

    def _alive(self, key: str, one: _Key, request: _Request) -> None:
        if one.in_hand is not request:
            return
        self._tell(key, events.ALIVE, one.worker, request.id)
        self._later(self._now + self._given.alive, self._alive, key, one, request)
        self._renew(key, events.ALIVE)

    def _renew(self, key: str, event: str) -> None:
        extra = activity_rules.extra_lifetime(self._tracker, self._debounce, key, event, self._now)
        if extra is None:
            return
        before = self._tracker.generation
        if event == events.STARTED:
            self._tracker.renew_on_worker_start(key, self._now, extra_lifetime=extra)
        else:
            self._tracker.require(key, self._now, extra_lifetime=extra)
        if self._tracker.generation != before:
            self._consider(key)

    def _keep_warm(self, now: int) -> None:
        if self._over:
            return
        self._now = now
        for key, left in self._given.warm.open(now).items():
            self._keys.setdefault(key, _Key())
            self._tracker.keep(key, now + left)
            self._consider(key)
        wait = self._given.warm.next(now)
        if wait is not None:
            self._later(now + wait, self._keep_warm, now + wait)

    # --- queue and group --------------------------------------------------------------------------------------

    def _consider(self, key: str) -> None:
        """Do everything that is due for a key's queue and group."""
        one = self._keys.get(key)
        if one is None:
            return
        while self._act_on_queue(key, one) or self._act_on_group(key, one):
            pass
        if one.queue.phase is Phase.GONE and not one.asserting and key not in self._tracker.wanted:
            del self._keys[key]

    def _act_on_queue(self, key: str, one: _Key) -> bool:
        if one.asserting:
            return False
        plan = queue_rules.plan(
            self._tracker.wanted.get(key),
            one.queue,
            group_gone=one.worker is None,
            interval=self._given.statistics_interval,
            now=self._now,
        )
        if plan.step is None:
            if plan.at is not None and plan.at != one.timer:
                one.timer = plan.at
                self._later(plan.at, self._consider, key)
            return False
        if plan.step is QueueStep.ASSERT:
            one.asserting = True
            self._later(self._now + self._given.binding, self._asserted, key, self._tracker.generation)
        elif plan.step is QueueStep.UNBIND:
            self._tell(key, events.UNBOUND, self._given.daemon_id)
            one.queue = QueueState(Phase.UNBOUND)
        else:
            self._go_on(key, one, plan.step)
        return True

    def _go_on(self, key: str, one: _Key, step: QueueStep) -> None:
        """Take one step towards a queue's deletion; messages found in it make the key Active again."""
        ready, in_hand = len(one.waiting), int(one.in_hand is not None)
        found: Finding = one.queue
        if step is not QueueStep.LOOK:
            totals = QueueTotals(ready, in_hand, consumers=int(one.serves), bindings=0)
            found = queue_rules.after_sample(one.queue, totals, recheck=0, now=self._now)
        if isinstance(found, QueueState) and step is not QueueStep.SAMPLE:
            found = queue_rules.after_look(found, ready=ready, consumers=int(one.serves), recheck=0, now=self._now)
        if isinstance(found, MessagesFound):
            self._tracker.require(key, self._now, found_unbound=True)
            found = found.queue
        elif step is QueueStep.DELETE:
            self._tell(key, events.QUEUE_DELETED, self._given.daemon_id)
            found = QueueState(Phase.GONE)
        one.queue = found

    def _act_on_group(self, key: str, one: _Key) -> bool:
        plan = group_rules.plan(
            wanted=key in self._tracker.wanted,
            phase=one.queue.phase,
            group=_RUNNING if one.worker is not None else None,
            attempt=_NO_ATTEMPT,
            template="",
            stuck=None,
            now=self._now,
        )
        if plan.action is GroupAction.START:
            self.tally.starts += 1
            one.worker, one.since = self._given.identity(), self._now
            self._tell(key, events.GROUP_STARTED, self._given.daemon_id)
            self._later(self._now + self._given.start(), self._serves, key, one.worker)
        elif plan.action is GroupAction.STOP:
            if one.serves:
                self._tell(key, events.STOPPING, one.worker)
            self._tell(key, events.GROUP_STOPPED, self._given.daemon_id, outcome=plan.reason)
            self.tally.up += self._now - one.since
            one.worker, one.serves = None, False
        return plan.action is not None

    def _serves(self, key: str, worker: str) -> None:
        one = self._keys.get(key)
        if one is None or one.worker != worker:
            return  # stopped before it could serve
        one.serves = True
        self._tell(key, events.STARTED, worker)
        self._renew(key, events.STARTED)
        self._hand_out(key, one)
