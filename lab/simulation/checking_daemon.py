"""The checker's part on what the daemon does: acknowledgements, queues, groups, sessions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from osrdyne_protocol import events, headers
from simulation import scenario, virtual_time
from simulation.findings import Checks, Verdict, name_of
from simulation.model import Event
from simulation.model import history as kinds
from simulation.model.entries import CHANNEL
from simulation.model.message import Message
from simulation.scenario import Kind
from simulation.workers import DIED_AT_WORK
from simulation.world import FOREIGN_QUEUE, INVENTORY, LIMITS, NAMES, NEW_KEY_INTERVAL_SECONDS, Outcome

#: Seconds without a consumer after which a group may count as unserved.
_UNSERVED_SECONDS = LIMITS["start_grace"]
#: How late the daemon may learn that a queue is empty, in seconds.
_STATISTICS_SECONDS = 15.0
#: How old the counts may be by which the daemon acts, in seconds: the interval of its listing, and how late the broker
#: counts. A key may be renewed by them this late, and by this much too little.
_COUNTED_SECONDS = 5.0 + 7.5
_LATE_RENEWAL_SECONDS = 2 * _COUNTED_SECONDS
#: Seconds that a stop may be on its way to the engine. A key may be woken meanwhile.
_STOP_SECONDS = 0.02
#: Seconds that news may take to the daemon: until then it may do what it would no longer do.
_NEWS_SECONDS = 0.1
#: Seconds that a message may be on its way to the daemon: what was sent longer before a fault arrived before it.
_ON_THE_WAY_SECONDS = 0.05
#: Seconds that a key may be without a worker after one has died at a request, where its queue is bound all the time.
_MOST_PAUSE_SECONDS = 1.5
#: Faults in which the daemon cannot start a worker, or need not.
_HINDERS_STARTS = ("queue deleted", "queue unbound", "driver refuses", "driver blind")
#: Faults that lose events.
_LOSES_EVENTS = ("activity lost", "activity queue deleted", "activity exchange deleted", "activity revoked")


class DaemonChecks(Checks):
    """Invariants 2 (deadlines), 3, 4, 6, 7 and 8 of docs/explain/invariants.md."""

    def __init__(self, outcome: Outcome, verdict: Verdict) -> None:
        super().__init__(outcome, verdict)
        #: Of each (daemon's connection, request): times of confirms not yet spent on an ack.
        self._confirms: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._came_back: set[int] = set()
        #: Of each request: when an orphan of it was last sent to a daemon. When a wall clock was first wrong.
        self._seen_at: dict[str, float] = {}
        self._jumped_at = math.inf
        #: Connections that know of an alarm, and since when.
        self._blocked: dict[str, float] = {}
        self._lock: str | None = None
        self._lock_left: dict[str, float] = {}
        #: When a daemon that stood still last went on.
        self._went_on_at = -1.0
        #: Of each connection and queue: since when the broker holds up what the connection asked of the queue, and when
        #: it went on.
        self._held_since: dict[tuple[str, str], float] = {}
        self._held_until: dict[tuple[str, str], float] = {}
        #: Of each key without a worker: when its last one died at a request.
        self._died_at: dict[str, float] = {}
        #: When a message was last taken from a queue, and when one last left it otherwise.
        self._taken_at: dict[str, float] = {}
        self._left_at: dict[str, float] = {}
        self._group_started_at: dict[str, float] = {}
        #: When a queue was last bound.
        self._bound_at: dict[str, float] = {}
        #: Keys that a client has ever asked for, and when a worker last took a request of each.
        self._asked_for: set[str | bytes] = set()
        #: How often workers were sent each request; and how often each session of a daemon gave one back.
        self._sent_to_workers: Counter[str] = Counter()
        self._given_back: Counter[tuple[str, int]] = Counter()
        self._active_at: dict[str | bytes, float] = {}
        #: Sessions of daemons until now, each with a new budget, and keys whose queue a daemon has bound.
        self._budgets = 0
        self._woken: set[str] = set()
        #: Queues that the broker has lost for good, and from when until when it was killed and down.
        self._lost: set[str] = set()
        self._killed_at: float | None = None
        self._back_at: float | None = None
        self.handlers: Mapping[str, Callable[[Event], None]] = {
            "acting": self._acting,
            "session ended": self._session_ended,
            "group started": self._group_started,
            "group gone": self._group_gone,
            "group stopping": self._group_stopping,
            "error logged": self._error_logged,
            "simulation failed": self._error_logged,
            kinds.PUBLISHED: self._published,
            "fault begins": self._fault_begins,
            kinds.BLOCKED: self._heard_of_alarm,
            kinds.UNBLOCKED: self._heard_of_its_end,
            kinds.CONFIRMED: self._confirmed,
            kinds.RETURNED: self._returned,
            kinds.DELIVERED: self._delivered,
            kinds.REQUEUED: self._requeued,
            kinds.ACKED: self._acked,
            kinds.DEAD_LETTERED: self._left,
            kinds.DECLARED: self._declared,
            kinds.BOUND: self._bound,
            kinds.UNBOUND: self._unbound,
            kinds.DELETED: self._deleted,
            kinds.DISCONNECTED: self._disconnected,
            kinds.STALLED: self._stalled,
            kinds.WENT_ON: self._went_on,
            kinds.LOST_BY_BROKER: self._lost_by_broker,
            kinds.BROKER_STOPPED: self._broker_stopped,
            kinds.BROKER_STARTED: self._broker_started,
            "fault over": self._fault_over,
        }

    def _published(self, event: Event) -> None:
        message = event.message
        assert message is not None
        counted, name = message.headers.get(headers.X_DELIVERED, 0), name_of(message)
        if counted > self._sent_to_workers[name]:
            self._break(
                1, f"{event.actor}: workers had {name} {self._sent_to_workers[name]} times, and it counts {counted}"
            )
        if event.place == NAMES.request_exchange:
            if event.actor.startswith("daemon"):
                self._forwarded(event, message)
            else:
                self._asked_for.add(message.routing_key)
        elif event.place == NAMES.activity_exchange and message.headers.get(headers.X_EVENT) == events.REQUEST_RECEIVED:
            self._active_at[message.routing_key] = event.at

    def _forwarded(self, event: Event, message: Message) -> None:
        if not message.headers.get(headers.X_HOPS):
            self._break(8, f"{message} was forwarded without a count: it could go round for ever")
        # When it left counts: the broker reads it later, in an alarm much later, and then the daemon cannot help it.
        assert message.sent_at is not None
        deadline = message.headers.get(headers.X_DEADLINE)
        sent_ms = virtual_time.EPOCH_MS + 1000 * message.sent_at
        seen_at = self._seen_at.get(name_of(message), math.inf)
        if deadline is not None and sent_ms > deadline and seen_at < self._jumped_at - _ON_THE_WAY_SECONDS:
            self._break(2, f"{message} was forwarded {sent_ms - deadline:.1f} ms after its deadline")
        if message.sent_at > self._blocked.get(event.actor, math.inf):
            self._break(2, f"{message} was forwarded although the broker had said that it reads nothing")

    def _fault_begins(self, event: Event) -> None:
        if event.actor == "clock jumps":
            self._jumped_at = min(self._jumped_at, event.at)

    def _fault_over(self, event: Event) -> None:
        if event.actor == "daemon stands still":
            self._went_on_at = event.at

    def _heard_of_alarm(self, event: Event) -> None:
        self._blocked[event.actor] = event.at

    def _heard_of_its_end(self, event: Event) -> None:
        self._blocked.pop(event.actor, None)

    def _returned(self, event: Event) -> None:
        message = event.message
        assert message is not None
        if event.actor.startswith("daemon"):
            if message.exchange == "" and message.routing_key not in INVENTORY:
                self._confirms[event.actor, name_of(message)].append(event.at)
            self._came_back.add(message.id)

    def _confirmed(self, event: Event) -> None:
        message = event.message
        if message is not None and event.actor.startswith("daemon") and message.id not in self._came_back:
            self._confirms[event.actor, name_of(message)].append(event.at)

    def _acked(self, event: Event) -> None:
        # The daemon takes requests from their queues, too, where no worker can be started.
        takes = event.actor.startswith("daemon") and event.place.startswith(NAMES.request_queue_prefix)
        if not (takes or event.place in (NAMES.orphan_queue, NAMES.dead_letter_queue)) or event.message is None:
            return
        if event.message.headers.get(headers.X_LAST_DEATH_QUEUE) == NAMES.unanswered_queue:
            return  # the broker dropped it
        # The session publishes on its first connection. Those that consume have a name behind that one's.
        session = ".".join(event.actor.split(".")[:2])
        unspent = self._confirms[session, name_of(event.message)]
        sent_at = event.at if event.detail is None else event.detail
        # Two acknowledgements about one request may overtake each other: each spends the last confirm before it.
        before = [number for number, at in enumerate(unspent) if at <= sent_at]
        if before:
            del unspent[before[-1]]
        else:
            self._break(4, f"{event.actor} acknowledged {event.message} of {event.place} with nothing confirmed")

    def _declared(self, event: Event) -> None:
        if event.place == NAMES.leader_queue:
            self._lock = event.actor
        else:
            self._changed(event)

    def _changed(self, event: Event) -> None:
        if not event.actor.startswith("daemon") or event.actor == self._lock:
            return
        # The news waits for a daemon that stands still until it goes on.
        left = self._lock_left.get(event.actor)
        if left is None or self._asked_at(event) - max(left, self._went_on_at) > _NEWS_SECONDS:
            self._break(6, f"{event.actor}: {event.kind} {event.place!r} without the lock")

    def _stalled(self, event: Event) -> None:
        self._held_since[event.actor, event.place] = event.at

    def _went_on(self, event: Event) -> None:
        self._held_until[event.actor, event.place] = event.at

    def _asked_at(self, event: Event) -> float:
        """When a connection asked for what the broker has done now: an alarm or a lost queue may delay that."""
        at = event.actor, event.place
        if event.actor in self._blocked:
            return self._blocked[event.actor]
        return self._held_since[at] if self._held_until.get(at) == event.at else event.at

    def _bound(self, event: Event) -> None:
        self._changed(event)
        self._bound_at[event.place] = event.at
        if event.actor.startswith("daemon") and event.detail[1] not in self._asked_for:
            self._break(8, f"{event.actor} made a queue for key {event.detail[1]!r}, without a request for it")

        if event.actor.startswith("daemon"):
            self._woken.add(event.detail[1])
            # Its clients do not say who they are, so they share a budget.
            most = self._budgets * (self._scenario.new_keys + event.at / NEW_KEY_INTERVAL_SECONDS)
            if len(self._woken) > most:
                self._break(8, f"{event.actor} woke {len(self._woken)} keys, more than all budgets, {most:.1f}")

    def _acting(self, event: Event) -> None:
        self._budgets += 1

    def _unbound(self, event: Event) -> None:
        self._changed(event)
        self._died_at.pop(event.place.removeprefix(NAMES.request_queue_prefix), None)
        if not event.actor.startswith("daemon") or self._scenario.kind is Kind.STORM:
            return
        if event.place in self._lost:
            return
        if self._scenario.kind is Kind.EVENTS:
            self._check_used(event)
            return
        # An event that was sent a moment ago is still on its way to the daemon.
        idle = event.at - self._active_at.get(event.detail[1], -1000.0)
        if _NEWS_SECONDS < idle < self._scenario.pool.unbind_delay and not self._had("activity lost"):
            self._break(7, f"{event.place!r} was unbound {idle:.1f} s after its worker took a request")

    def _check_used(self, event: Event) -> None:
        """Check that a key was not unbound while it was used, although no event said so."""
        idle = event.at - self._taken_at.get(event.place, -1000.0)
        if _NEWS_SECONDS < idle < self._scenario.pool.unbind_delay - _LATE_RENEWAL_SECONDS:
            self._break(7, f"{event.place!r} was unbound {idle:.1f} s after a delivery")

    def _disconnected(self, event: Event) -> None:
        self._blocked.pop(event.actor, None)
        if event.actor == self._lock:
            self._lock = None

    def _deleted(self, event: Event) -> None:
        if event.place == NAMES.leader_queue:
            if self._lock is not None:
                self._lock_left[self._lock] = event.at
            self._lock = None
            return
        self._lost.discard(event.place)
        if not event.actor.startswith("daemon"):
            return
        self._changed(event)
        # A queue that the broker has lost holds nothing; to delete it is the only mend.
        if any(event.detail) and not event.detail.lost:
            self._break(3, f"{event.actor} deleted {event.place!r}: {event.detail}")

    def _delivered(self, event: Event) -> None:
        if event.place.startswith(NAMES.request_queue_prefix):
            self._taken_at[event.place] = event.at
            if event.message is not None and event.actor.startswith("worker"):
                self._sent_to_workers[name_of(event.message)] += 1
        elif event.place == NAMES.orphan_queue and event.message is not None:
            self._seen_at[name_of(event.message)] = event.at

    def _requeued(self, event: Event) -> None:
        # Each time counts towards the delivery limit, as if a worker had failed.
        if not (event.actor.startswith("daemon") and event.place.startswith(NAMES.request_queue_prefix)):
            return
        if event.message is None or event.detail == CHANNEL:
            return
        session = ".".join(event.actor.split(".")[:2])
        self._given_back[session, event.message.id] += 1
        if self._given_back[session, event.message.id] > 1:
            self._break(1, f"{event.actor} gave {event.message} back once more")

    def _left(self, event: Event) -> None:
        self._left_at[event.place] = event.at

    def _group_gone(self, event: Event) -> None:
        if event.detail is not None and event.detail.endswith(DIED_AT_WORK):
            self._died_at[event.place] = event.at

    def _group_started(self, event: Event) -> None:
        waited = event.at - self._died_at.pop(event.place, event.at)
        # Other keys may hold all starts for a while.
        alone = self._scenario.kind is Kind.BAD_KEYS and all(key.healthy for key in self._scenario.keys)
        if alone and waited > _MOST_PAUSE_SECONDS and not self._had(*_LOSES_EVENTS, *_HINDERS_STARTS):
            self._break(5, f"key {event.place!r} had no worker for {waited:.1f} s after one had died at a request")
        self._taken_at[NAMES.request_queue(event.place)] = self._group_started_at[event.place] = event.at

    def _group_stopping(self, event: Event) -> None:
        if event.detail is None:
            return
        ready, unacknowledged, bound, unserved = event.detail
        queue = NAMES.request_queue(event.place)
        if self._was_unserved(event, *unserved) or event.at - self._bound_at.get(queue, -1000.0) < _STOP_SECONDS:
            return
        since = event.at - self._taken_at.get(queue, 0.0)
        waited = ready or unacknowledged or event.at - self._left_at.get(queue, -1000.0) < _STATISTICS_SECONDS
        # So long a worker may hold a request: a group that took none meanwhile may count as stuck.
        if waited and since >= self._scenario.pool.consumer_timeout:
            return
        if bound or ready or unacknowledged:
            what = f"{ready} ready, {unacknowledged} unacknowledged, {'bound' if bound else 'not bound'}"
            self._break(7, f"{event.actor} of key {event.place!r} was stopped: {what}, last delivery {since:.1f} s ago")

    def _was_unserved(self, event: Event, began: float, ended: float) -> bool:
        """Say whether a group's queue had no consumer for long, as far as its daemon could know."""
        if ended - max(began, self._group_started_at[event.place]) < _UNSERVED_SECONDS:
            return False
        # An event says at once that a worker consumes again. Where events are lost, only the broker's counts do.
        return ended == event.at or (event.at - ended < _COUNTED_SECONDS and self._had(*_LOSES_EVENTS))

    def _session_ended(self, event: Event) -> None:
        expected, reasons = event.detail
        if not expected or not (self._scenario.kind is Kind.STORM or self._is_about_the_kill(event)):
            self._break(8, f"a session of {event.actor} ended: {'; '.join(reasons)}")

    def _lost_by_broker(self, event: Event) -> None:
        if event.message is None and event.detail == kinds.FOR_GOOD:
            self._lost.add(event.place)

    def _broker_stopped(self, event: Event) -> None:
        if event.detail == kinds.KILLED:
            self._killed_at, self._back_at = event.at, None

    def _broker_started(self, event: Event) -> None:
        self._back_at = event.at

    def _is_about_the_kill(self, event: Event) -> bool:
        """Say whether a session ended because the broker was killed, and is down or has just come back."""
        return self._killed_at is not None and (self._back_at is None or event.at < self._back_at + _NEWS_SECONDS)

    def _error_logged(self, event: Event) -> None:
        self._break(8, f"{event.actor}: {event.kind}: {event.detail}")

    def conclude(self) -> None:
        """Judge what is left, once the history is read."""
        outcome = self._outcome
        for text in outcome.complaints:
            self._break(8, text)
        if FOREIGN_QUEUE not in outcome.queues:
            self._break(6, "a queue of another pool is gone")
        for plan in self._scenario.keys:
            name = NAMES.request_queue(plan.key)
            if plan.start == scenario.TAKEN and name not in outcome.queues and not self._had("queue deleted"):
                self._break(6, f"{name!r} is gone, although it is foreign")
        if not outcome.at_rest and not self._without_ttl():
            kept = {name: names for name, names in outcome.left.items() if name not in INVENTORY}
            self._break(7, f"not at rest after {outcome.seconds:.0f} s: groups {outcome.groups}, queues {kept}")
