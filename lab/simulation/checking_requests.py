"""The checker of requests: how each one ended, and whether that is allowed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from osrdyne.intake import orphan_rules
from osrdyne_protocol import headers, statuses
from simulation import scenario
from simulation.findings import Checks, Verdict, name_of
from simulation.model import Event
from simulation.model import history as kinds
from simulation.scenario import BACK_SECONDS, MOST_RETURN_SECONDS, Kind, RequestPlan
from simulation.world import INVENTORY, NAMES, Outcome

#: Seconds that an orphan of a healthy key may take, from the broker to its queue, whatever other keys do.
MOST_ORPHAN_SECONDS = 2.0
#: Seconds that a request may wait for a key whose workers never start: for three starts, behind those of other keys.
MOST_START_FAILED_SECONDS = 45.0
#: Seconds that the first request of a healthy key may take beside the work itself, whatever other keys do.
MOST_ANSWER_SECONDS = 20.0

_BROKER_FAULTS = ("broker down", "queues lost", "confirms never", "confirms late", "alarm", "publishes refused")
#: Statuses that a request without a fault of its own may get, and the injected faults that explain each.
_ALLOWED_BY = {
    statuses.DELIVERY_LIMIT: ("worker cut", "worker half open", "worker killed", "worker revoked", *_BROKER_FAULTS),
    statuses.UNROUTABLE: ("policy removed", "daemon revoked", *_BROKER_FAULTS),
    statuses.MAXLEN: _BROKER_FAULTS,
}


@dataclass(slots=True)
class _Request:
    """The history of one request."""

    confirmed_at: float | None = None
    #: The client's session in which it was last published.
    session: int = 0
    returned: bool = False
    answers: list[tuple[float, str]] = field(default_factory=list)
    served: int = 0
    #: Something outside the system destroyed a copy: its operator, or the removal of a policy.
    destroyed: bool = False
    #: The same, of its dead letter: the daemon answers first, and may have no letter to keep then.
    letter_destroyed: bool = False
    #: A copy was in a queue that the broker lost.
    lost_by_broker: bool = False
    #: When an answer to it was first published, and when a worker first served it.
    answer_sent_at: float | None = None
    served_at: float | None = None
    #: When its client first wanted to send it, and when it first reached the broker.
    asked_at: float | None = None
    published_at: float | None = None
    poisoned: bool = False
    orphaned_at: float | None = None
    forwarded_at: float | None = None


class RequestChecks(Checks):
    """Invariants 1, 2 and 5 of docs/explain/invariants.md."""

    def __init__(self, outcome: Outcome, verdict: Verdict) -> None:
        super().__init__(outcome, verdict)
        self._requests: dict[str, _Request] = defaultdict(_Request)
        self._sessions: Counter[str] = Counter()
        #: When each client lost its session.
        self._losses: defaultdict[str, list[float]] = defaultdict(list)
        self._acting_at: float | None = None
        #: When the broker was killed, was back, and had a daemon again; queues that it has lost.
        self._killed_at: float | None = None
        self._back_at: float | None = None
        self._acting_again_at: float | None = None
        self._lost_queues: set[str] = set()
        self.handlers: Mapping[str, Callable[[Event], None]] = {
            "asked": self._asked,
            "request confirmed": self._request_confirmed,
            "request returned": self._request_returned,
            "answered": self._answered,
            "served": self._served,
            "client lost its session": self._session_lost,
            "acting": self._acting,
            kinds.PUBLISHED: self._published,
            kinds.ROUTED: self._routed,
            kinds.DROPPED: self._dropped,
            kinds.LOST: self._destroyed,
            kinds.LOST_BY_BROKER: self._lost_by_broker,
            kinds.BROKER_STOPPED: self._broker_stopped,
            kinds.BROKER_STARTED: self._broker_started,
        }

    def conclude(self) -> None:
        """Judge every request, once the history is read."""
        for plan in self._scenario.requests:
            self._judge(plan, self._requests[plan.name])

    def _acting(self, event: Event) -> None:
        if self._acting_at is None:
            self._acting_at = event.at
        if self._back_at is not None and self._acting_again_at is None:
            self._acting_again_at = event.at

    def _broker_stopped(self, event: Event) -> None:
        if event.detail == kinds.KILLED:
            self._killed_at, self._back_at, self._acting_again_at = event.at, None, None

    def _broker_started(self, event: Event) -> None:
        if self._killed_at is not None:
            self._back_at = event.at

    def _asked(self, event: Event) -> None:
        request = self._requests[event.place]
        request.session = event.detail
        if request.asked_at is None:
            request.asked_at = event.at
        self._sessions[event.actor] = max(self._sessions[event.actor], event.detail)

    def _session_lost(self, event: Event) -> None:
        self._losses[event.actor].append(event.at)

    def _request_confirmed(self, event: Event) -> None:
        request = self._requests[event.place]
        if request.confirmed_at is None:
            request.confirmed_at = event.at

    def _request_returned(self, event: Event) -> None:
        self._requests[event.place].returned = True

    def _answered(self, event: Event) -> None:
        if event.place not in self._scenario.by_name:
            self._verdict.unexpected.append(f"{event.actor} got an answer to {event.place!r}, which is not a request")
            return
        if not event.detail:
            self._break(2, f"the answer to {event.place} has no status")
        self._requests[event.place].answers.append((event.at, str(event.detail)))

    def _served(self, event: Event) -> None:
        request = self._requests[event.place]
        request.served += 1
        if request.served_at is None:
            request.served_at = event.at

    def _destroyed(self, event: Event) -> None:
        if event.message is not None and not event.actor.startswith("daemon"):
            request = self._requests[name_of(event.message)]
            request.destroyed = True
            request.letter_destroyed |= event.place == NAMES.dead_letter_queue

    def _lost_by_broker(self, event: Event) -> None:
        if event.message is None:
            self._lost_queues.add(event.place)
        else:
            self._requests[name_of(event.message)].lost_by_broker = True

    def _dropped(self, event: Event) -> None:
        if event.message is not None and self._had("policy removed"):
            self._requests[name_of(event.message)].destroyed = True

    def _published(self, event: Event) -> None:
        message = event.message
        assert message is not None
        request = self._requests[name_of(message)]
        if event.place == "" and message.routing_key not in INVENTORY:
            if request.answer_sent_at is None:
                request.answer_sent_at = event.at
        elif event.place == NAMES.request_exchange and request.published_at is None:
            request.published_at = event.at

    def _routed(self, event: Event) -> None:
        assert event.message is not None
        request = self._requests[name_of(event.message)]
        if event.place in INVENTORY:
            request.poisoned = True
        elif event.place == NAMES.orphan_queue:
            request.orphaned_at = request.orphaned_at or event.at
        elif event.place.startswith(NAMES.request_queue_prefix):
            request.forwarded_at = request.forwarded_at or event.at

    def _judge(self, plan: RequestPlan, request: _Request) -> None:
        if self._scenario.kind is Kind.LOST:
            self._judge_return(plan, request)
        if request.confirmed_at is None:
            return
        self._verdict.requests += 1
        name = plan.name
        if len(request.answers) > 1 or request.served > 1:
            self._verdict.duplicated.append(name)
            # A worker that dies may have done requests that it had in hand.
            nothing_failed = self._scenario.kind not in (Kind.STORM, Kind.LOST, Kind.SUSPECTS)
            nothing_failed = nothing_failed and not self._had("client cut", "queue deleted")
            nothing_failed = nothing_failed and not self._reply_redelivered(plan, request)
            # At its deadline a request may be answered while it is being forwarded.
            steady = self._is_healthy(plan) or self._start_of(plan) in scenario.NEVER_STARTS
            if nothing_failed and plan.do == scenario.ANSWER and steady and not plan.may_expire:
                self._break(1, f"{name} was served or answered twice, and nothing had failed")
        for _, status in request.answers:
            if status not in self._allowed(plan, request):
                self._verdict.unexpected.append(f"{name} ({plan.do}, key {plan.routing_key!r}) was answered {status}")
            kept = request.poisoned or request.letter_destroyed or self._queues_with(name)
            if status == statuses.DELIVERY_LIMIT and not kept:
                self._break(1, f"{name} was answered delivery_limit, and no copy was kept")
        if not request.answers:
            self._judge_unanswered(plan, request)
        self._judge_delay(plan, request)
        self._judge_start_failure(plan, request)

    def _reply_redelivered(self, plan: RequestPlan, request: _Request) -> bool:
        """Return whether a client got its only reply again: it had lost its session before it acknowledged the reply.

        It loses its session for a publish that it may not make, for example.
        """
        losses, times = self._losses[f"client {plan.client}"], [at for at, _ in request.answers]
        between = (any(first <= at <= second for at in losses) for first, second in pairwise(times))
        return request.served <= 1 and plan.reply == scenario.QUEUE and all(between)

    def _judge_unanswered(self, plan: RequestPlan, request: _Request) -> None:
        where = self._queues_with(plan.name)
        answerable = plan.reply == scenario.QUEUE or (
            plan.reply == scenario.DIRECT and request.session == self._sessions[f"client {plan.client}"]
        )
        if request.destroyed or request.returned or (where and self._without_ttl()):
            return
        if request.lost_by_broker and not where:
            self._verdict.lost_by_broker.append(plan.name)
            return
        sent = request.answer_sent_at is not None
        if answerable and not (plan.reply == scenario.DIRECT and sent and self._any_session_lost()):
            text = f"{plan.name} ({plan.do}, key {plan.routing_key!r}, reply {plan.reply})"
            if where or request.poisoned:
                self._verdict.unanswered.append(f"{text} is still in {where}")
            else:
                self._verdict.lost.append(text)
        elif not (where or request.poisoned or request.served or sent):
            self._verdict.lost.append(f"{plan.name} ({plan.do}, key {plan.routing_key!r}, reply {plan.reply})")

    def _queues_with(self, name: str) -> list[str]:
        """Return the pool's queues that hold a request at the end."""
        return [queue for queue, names in self._outcome.left.items() if name in names]

    def _any_session_lost(self) -> bool:
        return any(self._losses.values())

    def _is_healthy(self, plan: RequestPlan) -> bool:
        return plan.routing_key == self._scenario.keys[0].key

    def _allowed(self, plan: RequestPlan, request: _Request) -> set[str]:
        """Return the statuses with which a request may be answered."""
        allowed = self._allowed_without_faults(plan)
        if self._scenario.new_keys < scenario.MANY_NEW_KEYS:
            allowed = allowed | {statuses.THROTTLED}
        if self._scenario.kind is Kind.LOST:
            return self._allowed_of_lost(plan, request, allowed)
        if self._may_seem_not_to_start(plan):
            allowed = allowed | {statuses.START_FAILED}
        if self._scenario.kind is Kind.STORM:
            allowed = allowed | {statuses.EXPIRED, statuses.START_FAILED}
            for status, faults in _ALLOWED_BY.items():
                if self._had(*faults):
                    allowed = allowed | {status}
        return allowed

    def _start_of(self, plan: RequestPlan) -> str | None:
        return next((key.start for key in self._scenario.keys if key.key == plan.routing_key), None)

    def _may_seem_not_to_start(self, plan: RequestPlan) -> bool:
        """Return whether workers of a request's key may look as if they did not start.

        Either they do not start, or they end at a request and the event that says that they started is lost.
        """
        if self._start_of(plan) in (*scenario.NEVER_STARTS, scenario.DEAF):
            return True
        return self._had("activity lost") and not self._is_healthy(plan)

    def _judge_start_failure(self, plan: RequestPlan, request: _Request) -> None:
        """Judge how late a request for workers that never start was answered, where nothing else fails."""
        if self._scenario.kind is not Kind.BAD_KEYS or self._start_of(plan) not in scenario.NEVER_STARTS:
            return
        if request.destroyed or not plan.plain or self._had("client cut", "queue deleted", "queue unbound"):
            return
        # With its session a client loses the address of direct reply-to.
        if plan.reply == scenario.DIRECT and self._any_session_lost():
            return
        asked = max(request.confirmed_at or 0.0, self._acting_at or 0.0)
        ended = request.answers[0][0] if request.answers else self._outcome.seconds
        if ended - asked > MOST_START_FAILED_SECONDS:
            self._break(5, f"{plan.name} waited {ended - asked:.1f} s for workers that never start")

    def _allowed_without_faults(self, plan: RequestPlan) -> set[str]:
        if isinstance(plan.routing_key, bytes) or "\0" in plan.routing_key:
            return {statuses.INVALID_KEY}
        names = dict(plan.headers)
        if "CC" in names:
            return {statuses.INVALID_REQUEST}
        if names.get(headers.X_HOPS, 0) >= orphan_rules.MAX_HOPS:
            return {statuses.UNROUTABLE}
        allowed = {
            scenario.REJECT: {statuses.REJECTED},
            scenario.CRASH: {statuses.DELIVERY_LIMIT},
            scenario.HANG: {statuses.DELIVERY_LIMIT},
            scenario.REQUEUE: {statuses.DELIVERY_LIMIT},
        }.get(plan.do, {statuses.OK})
        if plan.may_expire or not self._is_healthy(plan):
            allowed = allowed | {statuses.EXPIRED}
        return allowed

    def _allowed_of_lost(self, plan: RequestPlan, request: _Request, allowed: set[str]) -> set[str]:
        """Return the statuses that are allowed where queues are lost: refusals only while the key's queue is lost."""
        back = self._back_at or 0.0
        waited = (request.asked_at or 0.0) < back + MOST_RETURN_SECONDS
        if self._is_lost(plan) and waited:
            return allowed | {statuses.EXPIRED, statuses.MAXLEN}
        return allowed - {statuses.EXPIRED}

    def _is_kept(self, plan: RequestPlan) -> bool:
        return any(key.kept and key.key == plan.routing_key for key in self._scenario.keys)

    def _is_lost(self, plan: RequestPlan) -> bool:
        key = plan.routing_key
        return isinstance(key, str) and "\0" not in key and NAMES.request_queue(key) in self._lost_queues

    def _judge_return(self, plan: RequestPlan, request: _Request) -> None:
        """Judge how late an answer came in a run in which the broker lost queues. A client asks on one channel."""
        if request.asked_at is None or request.lost_by_broker:
            return
        ends = [at for at in (request.answer_sent_at, request.served_at) if at is not None]
        ended = min(ends) if ends else self._outcome.seconds
        work = self._work_of(plan)
        took = ended - self._since(request.asked_at, ended, self._back_at) - work
        if not ends:
            self._verdict.unanswered.append(
                f"{plan.name} (key {plan.routing_key!r}), asked at {request.asked_at:.1f} s"
            )
        elif took > MOST_RETURN_SECONDS:
            self._break(5, f"{plan.name} (key {plan.routing_key!r}) was answered {took:.1f} s late")
        if request.published_at is None or self._is_lost(plan):
            return
        took = ended - self._since(request.published_at, ended, self._acting_again_at) - work
        if took > MOST_ANSWER_SECONDS:
            self._break(
                5, f"{plan.name} of key {plan.routing_key!r}, which was not lost, was answered {took:.1f} s late"
            )

    def _work_of(self, plan: RequestPlan) -> float:
        """Return the seconds of work in all requests of a key."""
        return sum(other.work for other in self._scenario.requests if other.routing_key == plan.routing_key)

    def _since(self, at: float, ended: float, back: float | None) -> float:
        """Return when a wait that began at `at` starts to count: once there are a broker and a daemon."""
        if self._killed_at is not None and back is not None and at < back and ended > self._killed_at:
            return back
        return max(at, self._acting_at or 0.0)

    def _judge_delay(self, plan: RequestPlan, request: _Request) -> None:
        if self._scenario.kind is Kind.STORM or not (self._is_healthy(plan) or self._is_kept(plan)) or not plan.plain:
            return
        if request.destroyed or self._had("client cut"):
            return
        acting = self._acting_at or 0.0
        if request.orphaned_at is not None:
            forwarded = request.forwarded_at or self._outcome.seconds
            took = forwarded - self._since(request.orphaned_at, forwarded, self._acting_again_at)
            if took > MOST_ORPHAN_SECONDS:
                self._break(5, f"{plan.name} of a healthy key was an orphan for {took:.1f} s")
        if request.answers and request.confirmed_at is not None and self._scenario.kind is not Kind.LOST:
            work = self._work_of(plan)
            stays = [fault.at + BACK_SECONDS for fault in self._scenario.faults if self._scenario.kind is Kind.STAYS]
            took = request.answers[0][0] - max(request.confirmed_at, acting, *stays) - work
            if took > MOST_ANSWER_SECONDS:
                self._break(5, f"{plan.name} of a healthy key was answered {took:.1f} s late")
