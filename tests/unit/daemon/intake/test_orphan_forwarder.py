"""The orphan forwarder under virtual time: each orphan reaches its key or is answered, none is settled too early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from osrdyne.base.changes import ChangeReader
from osrdyne.broker.publisher import MessageRefused
from osrdyne.failures.error_replies import ErrorReplies
from osrdyne.intake import orphan_rules
from osrdyne.intake.hold_limits import HeldMessages
from osrdyne.intake.orphan_forwarder import OrphanForwarder
from osrdyne.intake.wake_rules import IDLE_SECONDS, WakeBudget
from osrdyne.metrics import Metrics
from osrdyne.reconcile import group_rules
from osrdyne.state.tracker import Status
from osrdyne.state.values import Attempt, Phase, QueueState, QueueTotals
from osrdyne_amqp import Message, Properties
from osrdyne_amqp.errors import BrokerTimeout, ConnectionLost, Nacked, Returned
from osrdyne_pool.settings import PoolLimits, PoolSettings
from osrdyne_protocol import events, headers, statuses
from tests.unit.stand_ins import (
    A_CALLER,
    NAMES,
    SettledDeliveries,
    StandInLifecycle,
    StandInPublisher,
    follower,
    state_of,
    until,
)

pytestmark = pytest.mark.looptime

INVENTORY = [("", queue) for queue in (NAMES.poison_queue, NAMES.unanswered_queue, NAMES.waiting_queue)]

ORPHAN_TTL = 60.0
#: The user that the daemon logged in as.
OWN = "core-daemon"


@pytest.fixture(autouse=True)
def wall_clock_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def wall_ms() -> int:
        return 1_700_000_000_000 + round(asyncio.get_running_loop().time() * 1000)

    monkeypatch.setattr(events, "wall_ms", wall_ms)


class SettledAfterConfirm(SettledDeliveries):
    """Checks that each delivery is acknowledged after its copy or its reply was confirmed."""

    def __init__(self, publisher: StandInPublisher) -> None:
        super().__init__()
        self._publisher = publisher

    def ack(self, tag: int) -> None:
        copies = [message.body == str(tag).encode() for message in self._publisher.confirmed]
        replies = [message.properties.correlation_id == f"id {tag}" for message in self._publisher.confirmed]
        assert any(copies + replies), "settled before anything was confirmed"
        super().ack(tag)


class Forwarder:
    """A forwarder on stand-ins. Bodies hold the delivery tag, so that a copy shows its origin."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        *,
        unbind_delay: float = 1000.0,
        per_key: int = 2,
        keys: str | None = None,
        groups: int = 100,
        new_keys: int = 100,
        worker_reasons: bool = True,
    ) -> None:
        #: Seconds that have passed without any timer of the process.
        self.stood = 0.0
        state = state_of(unbind_delay=unbind_delay)
        self.state = replace(state, clock=lambda: state.clock() + self.stood)
        self.publisher = StandInPublisher()
        self.channel = SettledAfterConfirm(self.publisher)
        self.lifecycle = StandInLifecycle()
        self.metrics = metrics = Metrics()
        error_replies = ErrorReplies(NAMES, self.publisher, metrics)
        self.forwarder = OrphanForwarder(
            state=self.state,
            deliveries=self.channel,
            publisher=self.publisher,
            error_replies=error_replies,
            lifecycle=self.lifecycle,
            metrics=metrics,
            tasks=tasks,
            prefetch=40,
            pool=PoolSettings("core", keys=keys, limits=PoolLimits(groups=groups), worker_reasons=worker_reasons),
            budget=WakeBudget(burst=new_keys, interval=10.0),
            user=OWN,
            holding=HeldMessages(per_key=per_key, total=20, total_bytes=1_000_000),
            orphan_ttl_ms=round(ORPHAN_TTL * 1000),
        )
        self.delivered = 0

    def orphan(self, key: str | bytes = "42", *, malformed: str | None = None, **properties: Any) -> int:
        self.delivered += 1
        tag = self.delivered
        properties = {"reply_to": A_CALLER, "correlation_id": f"id {tag}"} | properties
        body = str(tag).encode()
        message = Message(body, "core-req-xchg", key, Properties(**properties), tag, False, malformed)
        self.forwarder.on_message(message)
        return tag

    def again(self, key: str, properties: Properties) -> None:
        """Deliver what the forwarder published, as an orphan."""
        self.orphan(key, **vars(properties))

    def spend(self, *users: str | None) -> None:
        """Take what is in the buckets of these users."""
        for user in users:
            self.forwarder.budget.take(user or "", self.state.clock())

    def forget(self) -> None:
        """Want no key, as after a restart of the daemon."""
        self.state.tracker.make_room(1, self.state.clock(), idle=0.0, busy=lambda _: False)
        assert not self.state.tracker.wanted

    def bind(self, key: str = "42") -> None:
        self.state.queues[key] = QueueState(Phase.BOUND, asserted=self.state.tracker.generation)

    def answers(self) -> list[str]:
        return [message.properties.headers[headers.X_STATUS] for message in self.publisher.sent_to("", A_CALLER)]


@asynccontextmanager
async def forwarding_with(**options: Any) -> AsyncIterator[Forwarder]:
    async with asyncio.TaskGroup() as tasks:
        yield Forwarder(tasks, **options)
        for task in list(tasks._tasks):
            task.cancel()


def cannot_start(one: Forwarder, key: str = "42", *, due_in: float = 4.0) -> None:
    """Let three starts of a key have ended too early, and its queue be unbound until the next one."""
    now = one.state.clock()
    error = "worker exited with status 1\nafter 0.1 s"
    one.state.groups.attempts[key] = Attempt(3, now + due_in, error, failed_at=now, unstarted=3)
    one.state.queues.note(key, QueueState(Phase.UNBOUND))


async def test_an_orphan_whose_workers_cannot_be_started_is_answered_at_once_with_the_reason() -> None:
    async with forwarding_with() as one:
        one.state.require("42")
        cannot_start(one)
        tag = one.orphan("42")
        await until(lambda: one.channel.tags == [tag], within=0.1)
        (reply,) = one.publisher.sent_to("", A_CALLER)
        given = reply.properties.headers
        assert given[headers.X_STATUS] == statuses.START_FAILED
        assert given[headers.X_REASON] == (
            "workers of this key could not be started, 3 times in a row; the last time: "
            "worker exited with status 1 after 0.1 s"
        )
        assert 0 < given[headers.X_RETRY_AFTER] <= 4000
        assert ("dead-lettered", "42") in one.lifecycle.events
        assert one.lifecycle.reasons == [given[headers.X_REASON]]
        assert not one.publisher.sent_to(NAMES.request_exchange, "42")


async def test_a_key_whose_workers_cannot_be_started_stays_wanted_while_it_is_asked_for() -> None:
    async with forwarding_with(unbind_delay=3.0) as one:
        one.state.require("42")
        for _ in range(5):
            cannot_start(one)
            one.orphan("42")
            await asyncio.sleep(2.0)
            one.state.tracker.advance(one.state.clock())
            assert one.state.tracker.wanted["42"].status is Status.ACTIVE
        assert len(one.channel.tags) == 5


async def test_a_caller_may_be_spared_the_reason() -> None:
    async with forwarding_with(worker_reasons=False) as one:
        one.state.require("42")
        cannot_start(one)
        one.orphan("42")
        await until(lambda: one.channel.tags, within=0.1)
        (reply,) = one.publisher.sent_to("", A_CALLER)
        assert (
            reply.properties.headers[headers.X_REASON] == "workers of this key could not be started, 3 times in a row"
        )


async def test_a_request_without_a_caller_waits_for_the_next_try() -> None:
    async with forwarding_with() as one:
        one.state.require("42")
        cannot_start(one)
        one.orphan("42", reply_to=None)
        await asyncio.sleep(5.0)
        assert one.publisher.sent == []
        one.bind("42")
        await until(lambda: one.channel.tags, within=0.1)
        assert one.publisher.sent_to(NAMES.request_exchange, "42")


async def test_requests_without_a_caller_that_are_too_many_to_hold_wait_in_their_queue() -> None:
    async with forwarding_with(per_key=2) as one:
        one.state.require("42")
        cannot_start(one, due_in=30.0)
        groups = one.state.groups
        with ChangeReader().following(groups.changes) as changed:
            for _ in range(2):
                one.orphan("42", reply_to=None)
            await asyncio.sleep(0.1)
            assert one.state.refused_until("42") is not None
            one.orphan("42", reply_to=None)
            # Then the queue loop binds its queue
            assert await changed.take(0.1) == ["42"]
            assert one.state.refused_until("42") is None
        one.bind("42")
        await until(lambda: len(one.channel.tags) == 3, within=1.0)
        assert len(one.publisher.sent_to(NAMES.request_exchange, "42")) == 2
        # When the next start fails, those with a caller are answered again
        groups.attempts["42"] = group_rules.after_failure(groups.attempt("42"), "exit 1", now=one.state.clock())
        one.orphan("42")
        await until(lambda: one.answers() == [statuses.START_FAILED], within=0.1)


async def test_orphans_that_are_held_are_answered_once_it_shows_that_no_worker_starts() -> None:
    async with forwarding_with() as one:
        one.orphan("42")
        one.orphan("other")
        await asyncio.sleep(1.0)
        assert one.publisher.sent == []
        cannot_start(one)
        await until(lambda: one.channel.tags == [1], within=0.1)
        (reply,) = one.publisher.sent_to("", A_CALLER)
        assert reply.properties.headers[headers.X_STATUS] == statuses.START_FAILED


async def test_an_orphan_that_comes_when_the_next_try_is_due_waits_for_it() -> None:
    async with forwarding_with() as one:
        one.state.require("42")
        cannot_start(one, due_in=0.0)
        one.orphan("42")
        await asyncio.sleep(5.0)
        assert one.publisher.sent == []


async def test_an_orphan_waits_for_its_queue_is_forwarded_and_then_settled() -> None:
    async with forwarding_with() as one:
        tag = one.orphan()
        await asyncio.sleep(5.0)
        assert one.channel.tags == []
        assert "42" in one.state.tracker.wanted
        one.bind()
        await until(lambda: one.channel.tags == [tag], within=0.1)
        (sent,) = one.publisher.sent_to(NAMES.request_exchange, "42")
        assert sent.properties.correlation_id == "id 1"


async def test_a_queue_bound_before_the_orphan_came_is_not_believed() -> None:
    async with forwarding_with() as one:
        one.state.require("42")
        one.bind()
        one.orphan()
        await asyncio.sleep(5.0)
        assert one.publisher.sent == []


async def test_an_orphan_is_not_settled_before_its_forward_is_confirmed() -> None:
    async with forwarding_with() as one:
        one.publisher.delay = 7.0
        one.orphan()
        await asyncio.sleep(0.1)
        one.bind()
        await asyncio.sleep(6.5)
        assert one.channel.tags == []
        await until(lambda: one.channel.tags == [1], within=1.0)


async def test_a_key_whose_queue_is_not_ready_delays_no_other() -> None:
    async with forwarding_with() as one:
        for _ in range(10):
            one.orphan("bad")
        good = one.orphan("good")
        await asyncio.sleep(0)
        one.bind("good")
        await until(lambda: good in one.channel.tags, within=0.1)


async def test_beyond_its_share_an_orphan_goes_back_to_the_tail_under_its_own_key() -> None:
    async with forwarding_with(per_key=2) as one:
        tags = [one.orphan("bad", user_id="guest") for _ in range(3)]
        await until(lambda: one.channel.tags == tags[2:], within=2.0)
        (back,) = one.publisher.sent_to(NAMES.orphan_exchange, "bad")
        assert back.body == b"3"
        assert back.properties.headers[headers.X_FIRST_SEEN]
        assert back.properties.user_id == OWN
        assert one.publisher.sent_to("", NAMES.orphan_queue) == []


async def test_an_orphan_whose_queue_is_never_bound_is_answered_expired_with_the_reason() -> None:
    async with forwarding_with() as one:
        one.orphan()
        one.state.queues["42"] = QueueState(Phase.UNKNOWN, failures=3, error="no permission")
        await until(lambda: one.channel.tags == [1], within=ORPHAN_TTL + 1.0)
        assert asyncio.get_running_loop().time() >= ORPHAN_TTL
        assert one.answers() == [statuses.EXPIRED]
        (reply,) = one.publisher.sent_to("", A_CALLER)
        assert reply.properties.correlation_id == "id 1"
        assert "no permission" in reply.properties.headers[headers.X_REASON]


async def test_a_clients_deadline_ends_the_wait() -> None:
    async with forwarding_with() as one:
        one.orphan(expiration="3000")
        await until(lambda: one.answers() == [statuses.EXPIRED], within=3.5)


async def test_a_waiting_orphan_keeps_its_key_wanted() -> None:
    async with forwarding_with(unbind_delay=2.0) as one:
        one.orphan()
        for _ in range(60):
            await asyncio.sleep(0.5)
            assert one.state.tracker.advance(one.state.clock()) == []
        one.bind()
        await until(lambda: one.channel.tags == [1], within=0.1)


async def test_a_refused_forward_is_tried_again() -> None:
    async with forwarding_with() as one:
        one.publisher.answers = [Nacked(), Nacked(), None]
        one.orphan()
        await asyncio.sleep(0)
        async with keeping_bound(one):
            await until(lambda: one.channel.tags == [1], within=5.0)
        assert len(one.publisher.sent_to(NAMES.request_exchange, "42")) == 3
        assert one.answers() == []


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Nacked(), statuses.MAXLEN),
        (Returned("no alternate exchange"), statuses.UNROUTABLE),
        (BrokerTimeout("no confirm"), statuses.UNROUTABLE),
    ],
)
async def test_a_forward_that_is_never_accepted_is_answered_with_why(outcome: Exception, status: str) -> None:
    async with forwarding_with() as one:
        one.publisher.refusing[NAMES.request_exchange, "42"] = outcome
        one.orphan()
        async with keeping_bound(one):
            await until(lambda: one.channel.tags == [1], within=ORPHAN_TTL)
        assert one.answers() == [status]


async def test_a_message_that_the_broker_cannot_take_is_answered_at_once() -> None:
    async with forwarding_with() as one:
        one.publisher.refusing[NAMES.request_exchange, "42"] = MessageRefused("headers too large")
        one.orphan()
        async with keeping_bound(one):
            await until(lambda: one.channel.tags == [1], within=1.0)
        assert one.answers() == [statuses.INVALID_REQUEST]


async def test_what_cannot_be_forwarded_is_answered_without_requiring_any_key() -> None:
    async with forwarding_with() as one:
        one.orphan("a\0b")
        one.orphan("42", headers={"CC": ["7"]})
        await until(lambda: sorted(one.channel.tags) == [1, 2], within=0.1)
        assert one.answers() == [statuses.INVALID_KEY, statuses.INVALID_REQUEST]
        assert not one.state.tracker.wanted


async def test_what_has_no_caller_is_kept_instead_of_answered() -> None:
    async with forwarding_with() as one:
        one.orphan("a\0b", reply_to=None)
        await until(lambda: one.channel.tags == [1], within=0.1)
        (kept,) = one.publisher.sent_to("", NAMES.unanswered_queue)
        assert kept.body == b"1"


async def test_what_can_be_neither_answered_nor_kept_goes_back_to_the_tail() -> None:
    async with forwarding_with() as one:
        one.publisher.refusing |= dict.fromkeys(INVENTORY, Nacked())
        one.orphan("a\0b", reply_to=None)
        await until(lambda: one.channel.tags == [1], within=2.0)
        assert len(one.publisher.sent_to(NAMES.orphan_exchange, "a\0b")) == 1


async def test_a_reply_queue_that_refuses_the_answer_ends_nothing() -> None:
    async with forwarding_with() as one:
        one.publisher.refusing["", A_CALLER] = Nacked()
        one.orphan("a\0b")
        await until(lambda: one.channel.tags == [1], within=30.0)
        assert len(one.publisher.sent_to("", NAMES.unanswered_queue)) == 1


async def test_a_request_that_came_back_waits_longer_each_time() -> None:
    moments = list[float]()
    for hops in (1, 4, 7):
        async with forwarding_with() as one:
            began = asyncio.get_running_loop().time()
            one.orphan(headers={headers.X_HOPS: hops})
            async with keeping_bound(one):
                await until(lambda now=one: now.channel.tags == [1], within=10.0)  # type: ignore[misc]
            moments.append(asyncio.get_running_loop().time() - began)
    assert moments == sorted(moments)
    assert moments[0] < 0.3 < moments[1] < 3.0 < moments[2]


@pytest.mark.parametrize("hops", [0, 1, 3, 4, 11])
async def test_a_request_that_came_back_often_asks_for_a_new_binding(hops: int) -> None:
    async with forwarding_with() as one:
        one.orphan(headers={headers.X_HOPS: hops})
        async with keeping_bound(one):
            await until(lambda: one.channel.tags == [1], within=10.0)
        assert one.state.queues.unrouted == ({"42"} if hops >= 4 else set())


async def test_a_bug_with_one_message_ends_that_message_and_not_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    async with forwarding_with() as one:
        monkeypatch.setattr(orphan_rules, "decide", fail)
        one.orphan()
        await until(lambda: one.channel.tags == [1], within=1.0)
        assert one.answers() == [statuses.INVALID_REQUEST]


async def test_a_lost_connection_ends_the_session_and_settles_nothing() -> None:
    tags = list[int]()

    async def session() -> None:
        async with forwarding_with() as one:
            one.channel.tags = tags
            one.publisher.refusing[NAMES.request_exchange, "42"] = ConnectionLost()
            one.orphan()
            async with keeping_bound(one):
                await asyncio.sleep(1.0)

    with pytest.raises(ExceptionGroup) as caught:
        await session()
    assert caught.group_contains(ConnectionLost)
    assert tags == []


@asynccontextmanager
async def keeping_bound(one: Forwarder, key: str = "42") -> AsyncIterator[None]:
    """Assert the key's queue whenever that is asked for, as the queue loop does."""
    reader = follower(one.state.tracker.changes)

    async def follow() -> None:
        while True:
            one.bind(key)
            await reader.take(1.0)

    task = asyncio.ensure_future(follow())
    try:
        yield
    finally:
        task.cancel()


@pytest.mark.parametrize(
    ("key", "properties", "recorded"),
    [
        ("42", {"headers": {headers.CC: ["other"]}}, [(events.DEAD_LETTERED, "42")]),
        (b"\xff", {}, []),
    ],
    ids=["refused at once", "no key"],
)
async def test_an_orphan_that_is_answered_ends_in_the_events_unless_its_key_is_none(
    key: str | bytes, properties: dict[str, Any], recorded: list[tuple[str, str]]
) -> None:
    async with forwarding_with() as one:
        tag = one.orphan(key, **properties)
        await until(lambda: one.channel.tags == [tag], within=0.1)
        assert one.lifecycle.events == recorded


async def test_an_orphan_whose_time_ran_out_ends_in_the_events() -> None:
    async with forwarding_with() as one:
        tag = one.orphan()
        await until(lambda: one.channel.tags == [tag], within=ORPHAN_TTL + 1)
        assert one.lifecycle.events == [(events.ORPHAN_SEEN, "42"), (events.DEAD_LETTERED, "42")]


async def test_an_orphan_that_cannot_be_put_back_is_answered_and_ends_in_the_events() -> None:
    async with forwarding_with(per_key=1) as one:
        one.publisher.refusing[NAMES.orphan_exchange, "bad"] = MessageRefused("headers too large")
        held, beyond = one.orphan("bad"), one.orphan("bad")
        await until(lambda: one.channel.tags == [beyond], within=5.0)
        assert held not in one.channel.tags
        assert one.answers() == [statuses.INVALID_REQUEST]
        assert one.lifecycle.events == [(events.ORPHAN_SEEN, "bad"), (events.DEAD_LETTERED, "bad")]


async def test_a_forward_whose_deadline_passes_before_it_can_leave_is_answered_and_not_sent() -> None:
    async with forwarding_with() as one:
        one.publisher.wait = 1.0
        one.orphan(expiration="2000")
        await asyncio.sleep(0.1)
        one.bind()
        await asyncio.sleep(0.5)
        one.stood = 10.0
        await until(lambda: one.answers() == [statuses.EXPIRED], within=2.0)
        assert one.publisher.sent_to(NAMES.request_exchange, "42") == []


@pytest.mark.parametrize("step", [3600.0, -3600.0])
async def test_a_step_of_the_wall_clock_changes_no_time_of_an_orphan_that_is_held(
    step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with forwarding_with() as one:
        one.orphan(expiration="10000")
        await asyncio.sleep(4.0)
        before = events.wall_ms
        monkeypatch.setattr(events, "wall_ms", lambda: before() + round(1000 * step))
        one.bind()
        await until(lambda: one.channel.tags == [1], within=0.1)
        (sent,) = one.publisher.sent_to(NAMES.request_exchange, "42")
        assert sent.properties.expiration == "6000"


async def test_an_orphan_that_was_held_goes_back_with_the_time_at_which_it_was_first_seen() -> None:
    async with forwarding_with() as one:
        # Neither its caller nor the poison inventory can take it.
        one.publisher.refusing |= dict.fromkeys(INVENTORY, Nacked("full"))
        seen = events.wall_ms()
        one.orphan(expiration="2000", reply_to=None)
        await until(lambda: one.publisher.sent_to(NAMES.orphan_exchange, "42"), within=3.0)
        (back, *_) = one.publisher.sent_to(NAMES.orphan_exchange, "42")
        given = back.properties.headers
        assert (given[headers.X_FIRST_SEEN], given[headers.X_DEADLINE]) == (seen, seen + 2000)
        assert back.properties.expiration == "2000"


async def test_an_orphan_whose_headers_cannot_be_read_never_comes_back_as_one_that_has_none() -> None:
    async with forwarding_with() as one:
        one.publisher.refusing |= dict.fromkeys(INVENTORY, Nacked("full"))
        tag = one.orphan("long", malformed="too long", reply_to=None)
        await until(lambda: one.channel.tags == [tag], within=5.0)
        assert one.publisher.sent_to(NAMES.orphan_exchange, "long") == []
        (sent,) = one.publisher.sent_to(NAMES.dead_letter_exchange, "long")
        assert sent.body == str(tag).encode()


async def test_a_key_outside_of_the_pools_keys_is_answered_at_once_and_never_wanted() -> None:
    async with forwarding_with(keys="[A-Z]{3}") as one:
        one.orphan("lax")
        await until(lambda: one.channel.tags == [1], within=0.05)
        assert one.answers() == [statuses.REJECTED]
        assert not one.state.tracker.wanted
        one.orphan("LAX")
        await until(lambda: "LAX" in one.state.tracker.wanted, within=0.05)
        assert one.state.tally.refused == {"keys": 1}


async def test_a_user_without_budget_hears_at_once_when_to_try_again_and_others_are_let_in() -> None:
    async with forwarding_with(new_keys=2) as one:
        for number in range(3):
            one.orphan(f"spray-{number}", user_id="sprayer")
        await until(lambda: one.answers() == [statuses.THROTTLED], within=0.05)
        (sent,) = one.publisher.sent_to("", A_CALLER)
        assert sent.properties.headers[headers.X_RETRY_AFTER] == 10_000
        one.orphan("honest", user_id="other")
        # A key that is awake costs nothing.
        one.orphan("spray-0", user_id="sprayer")
        await asyncio.sleep(0.05)
        assert set(one.state.tracker.wanted) == {"spray-0", "spray-1", "honest"}
        assert len(one.answers()) == 1
        assert one.lifecycle.events.count(("dead-lettered", "spray-2")) == 1
        assert one.state.tally.refused == {"budget": 1}
        await asyncio.sleep(10.0)
        one.orphan("spray-2", user_id="sprayer")
        await until(lambda: "spray-2" in one.state.tracker.wanted, within=0.05)


async def test_a_refused_request_without_a_caller_is_kept() -> None:
    async with forwarding_with(new_keys=1) as one:
        one.orphan("a", reply_to=None)
        one.orphan("b", reply_to=None)
        await until(lambda: one.channel.tags == [2], within=0.05)
        (kept,) = one.publisher.sent_to("", NAMES.unanswered_queue)
        assert kept.properties.headers[headers.X_POISON_REASON] == statuses.THROTTLED


async def test_idle_keys_give_way_before_a_new_one_is_refused() -> None:
    async with forwarding_with(groups=2) as one:
        for key in ("a", "b"):
            one.bind(key)
            one.orphan(key)
            await asyncio.sleep(0.01)
            one.bind(key)
            await asyncio.sleep(0.01)
        one.orphan("c")
        await until(lambda: one.answers() == [statuses.THROTTLED], within=0.05)
        assert set(one.state.tracker.wanted) == {"a", "b"}
        assert one.state.tally.refused == {"groups": 1}
        await asyncio.sleep(IDLE_SECONDS)
        one.state.require("b")
        one.orphan("c")
        await asyncio.sleep(0.05)
        assert set(one.state.tracker.wanted) == {"b", "c"}
        assert len(one.answers()) == 1


async def test_a_key_whose_request_waits_for_its_queue_never_gives_way() -> None:
    async with forwarding_with(groups=1) as one:
        one.orphan("a")
        await asyncio.sleep(IDLE_SECONDS + 1.0)
        one.orphan("b")
        await until(lambda: one.answers() == [statuses.THROTTLED], within=0.05)
        assert set(one.state.tracker.wanted) == {"a"}


async def test_a_key_whose_forwarded_request_waits_for_its_workers_never_gives_way() -> None:
    async with forwarding_with(groups=1) as one:
        one.bind("a")
        one.orphan("a")
        await asyncio.sleep(0.01)
        one.bind("a")
        one.state.counts.totals["a"] = QueueTotals(ready=1, unacknowledged=0, consumers=0, bindings=1)
        await asyncio.sleep(IDLE_SECONDS + 1.0)
        one.orphan("b")
        await until(lambda: one.answers() == [statuses.THROTTLED], within=0.05)
        assert set(one.state.tracker.wanted) == {"a"}


async def test_a_request_that_finds_no_room_costs_its_user_no_new_key() -> None:
    async with forwarding_with(groups=1, new_keys=2) as one:
        one.orphan("a", user_id="u")
        for _ in range(5):
            one.orphan("b", user_id="u")
        await until(lambda: len(one.answers()) == 5, within=0.05)
        assert one.state.tally.refused == {"groups": 5}


async def test_a_request_that_came_back_after_its_forward_costs_its_user_no_second_key() -> None:
    async with forwarding_with(new_keys=1) as one:
        one.orphan("a", user_id="u")
        async with keeping_bound(one, "a"):
            await until(lambda: one.channel.tags == [1], within=1.0)
        one.spend(None, OWN)
        (sent,) = one.publisher.sent_to(NAMES.request_exchange, "a")
        one.forget()
        one.again("a", sent.properties)
        async with keeping_bound(one, "a"):
            await until(lambda: len(one.publisher.sent_to(NAMES.request_exchange, "a")) == 2, within=1.0)
        assert one.answers() == []
        one.orphan("b", user_id="u")
        await until(lambda: one.answers() == [statuses.THROTTLED], within=0.05)


async def test_a_request_that_was_let_in_and_put_back_costs_its_user_no_second_key() -> None:
    async with forwarding_with(new_keys=1, per_key=1) as one:
        for _ in range(2):
            one.orphan("a", user_id="u")
        one.spend(None, OWN)
        await until(lambda: len(one.publisher.sent_to(NAMES.orphan_exchange, "a")) == 1, within=2.0)
        (back,) = one.publisher.sent_to(NAMES.orphan_exchange, "a")
        one.forget()
        one.again("a", back.properties)
        await asyncio.sleep(0.05)
        assert "a" in one.state.tracker.wanted
        assert one.answers() == []


async def test_a_request_that_was_let_in_and_held_and_put_back_costs_its_user_no_second_key() -> None:
    async with forwarding_with(new_keys=1) as one:
        one.publisher.refusing |= dict.fromkeys(INVENTORY, Nacked())
        one.orphan("a", user_id="u", reply_to=None, expiration="1000")
        await until(lambda: len(one.publisher.sent_to(NAMES.orphan_exchange, "a")) == 1, within=3.0)
        (back,) = one.publisher.sent_to(NAMES.orphan_exchange, "a")
        assert back.properties.headers[headers.X_LET_IN] is True


async def test_a_refused_request_that_was_put_back_is_judged_by_the_budget_of_its_own_user() -> None:
    async with forwarding_with(new_keys=1) as one:
        one.publisher.refusing |= dict.fromkeys(INVENTORY, Nacked())
        one.orphan("a", user_id="u")
        one.orphan("b", user_id="u", reply_to=None)
        await until(lambda: len(one.publisher.sent_to(NAMES.orphan_exchange, "b")) == 1, within=2.0)
        (back,) = one.publisher.sent_to(NAMES.orphan_exchange, "b")
        one.publisher.refusing.clear()
        one.again("b", back.properties)
        await until(lambda: len(one.publisher.sent_to("", NAMES.unanswered_queue)) == 2, within=0.05)
        assert "b" not in one.state.tracker.wanted
        # The bucket of requests that name no user is as full as before.
        one.orphan("c")
        await until(lambda: "c" in one.state.tracker.wanted, within=0.05)


@pytest.mark.parametrize("user", ["u", None])
async def test_what_a_client_writes_into_the_daemons_headers_does_not_change_whose_budget_counts(
    user: str | None,
) -> None:
    forged = {headers.X_USER: "another", headers.X_LET_IN: True, headers.X_HOPS: 1}
    async with forwarding_with(new_keys=1) as one:
        for key in "ab":
            one.orphan(key, user_id=user, headers=forged)
        await until(lambda: one.answers() == [statuses.THROTTLED], within=0.05)
        one.orphan("c", user_id="another")
        await until(lambda: "c" in one.state.tracker.wanted, within=0.05)


async def test_the_event_of_an_orphan_names_the_user_that_the_broker_checked_and_none_that_is_not() -> None:
    async with forwarding_with() as one:
        one.orphan("a", user_id="u", headers={headers.X_USER: "another"})
        one.orphan("b", user_id=OWN, headers={headers.X_USER: "first", headers.X_HOPS: 1})
        one.orphan("c", headers={headers.X_USER: "another"})
        await until(
            lambda: len([event for event, _ in one.lifecycle.events if event == "orphan-seen"]) == 3, within=0.5
        )
        assert [sent[headers.X_USER] for sent in one.lifecycle.ends if headers.X_USER in sent] == ["u", "first"]


async def test_who_asks_for_many_keys_does_not_crowd_out_other_events_and_every_refusal_counts() -> None:
    async with forwarding_with(new_keys=1) as one:
        for number in range(10):
            one.orphan(f"spray-{number}")
        await until(lambda: len(one.channel.tags) == 9, within=0.05)
        assert sum(event == "dead-lettered" for event, _ in one.lifecycle.events) == 1
        assert one.state.tally.refused == {"budget": 9}


async def test_who_calls_a_key_that_cannot_be_started_does_not_crowd_out_other_events() -> None:
    async with forwarding_with() as one:
        one.state.require("42")
        cannot_start(one)
        for _ in range(500):
            one.orphan("42")
        await until(lambda: len(one.channel.tags) == 500, within=0.05)
        assert one.lifecycle.events.count(("dead-lettered", "42")) == 1
        assert one.answers() == [statuses.START_FAILED] * 500


async def test_only_the_request_that_wakes_a_key_begins_its_cold_start() -> None:
    async with forwarding_with() as one:
        one.orphan()
        await asyncio.sleep(5.0)
        woken = dict(one.state.tally.woken)
        one.orphan()
        await asyncio.sleep(1.0)
        assert one.state.tally.woken == woken == {"42": pytest.approx(one.state.clock() - 6.0, abs=0.1)}


async def test_an_orphan_that_is_answered_counts_as_a_request_with_its_status() -> None:
    async with forwarding_with(keys="[0-9]") as one:
        one.orphan("no such key")
        await until(one.answers)
        await asyncio.sleep(1.0)
        assert one.metrics.registry.get_sample_value("osrdyne_requests_total", {"outcome": "rejected"}) == 1
