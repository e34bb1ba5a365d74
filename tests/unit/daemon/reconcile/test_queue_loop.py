"""The queue loop under virtual time: what is wanted is bound, what is not goes away, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from prometheus_client import generate_latest

from osrdyne.broker.channel_pool import ChannelPool
from osrdyne.drivers.base import Group, GroupState
from osrdyne.errors import ManagementError
from osrdyne.lifetime.clock import pass_time
from osrdyne.metrics import Metrics
from osrdyne.reconcile.queue_loop import QueueLoop
from osrdyne.state.pool import PoolState
from osrdyne.state.tracker import Status
from osrdyne.state.values import Attempt, Phase, QueueState, QueueTotals
from osrdyne_amqp import Channel
from osrdyne_amqp.errors import BrokerError, Locked, PreconditionFailed
from osrdyne_pool.broker.lost import Evidence
from tests.unit.stand_ins import (
    NAMES,
    BrokerQueue,
    StandInBroker,
    StandInConnection,
    StandInLifecycle,
    StandInManagement,
    refuse,
    running,
    state_of,
    until,
)

pytestmark = pytest.mark.looptime

WAY_OUT = ["unbind", "look", "sample", "look", "sample", "sample", "look", "delete"]


class Loop:
    """A queue loop and a target clock on stand-ins."""

    def __init__(self, *, size: int = 8, most: int = 100, **delays: float) -> None:
        self.state: PoolState = state_of(**delays)
        self.broker = StandInBroker()
        self.management = StandInManagement(self.broker)
        self.lifecycle = StandInLifecycle()
        pool = ChannelPool(StandInConnection(self.broker), size)
        self.metrics = Metrics()
        loop = QueueLoop(
            self.state,
            pool,
            self.management,
            self.lifecycle,
            self.metrics,
            statistics_interval=7.5,
            recheck=30.0,
            most=most,
            take_back=self.take_back,
        )
        self.coroutines = (loop.run(), pass_time(self.state))

    async def take_back(self, key: str, channel: Channel) -> bool:
        """Empty a queue, as if its requests were orphans again."""
        await self.broker.called("take back", NAMES.request_queue(key))
        assert not self.broker.queues[key].bound
        self.broker.queues[key].ready = 0
        return False

    def bound(self, *keys: str) -> bool:
        return all(key in self.broker.queues and self.broker.queues[key].bound for key in keys)

    def lose(self, key: str) -> None:
        """Let the broker lose a queue, and the watcher prove it."""
        self.broker.queues[key].lost = True
        self.state.lost.evidence = Evidence.known([key], self.state.clock())
        self.state.lost.changes.add(key)

    def abandoned(self, key: str, **holding: Any) -> BrokerQueue:
        """Put a queue there that is not wanted."""
        queue = self.broker.queues[key] = BrokerQueue(bound=True, **holding)
        self.state.queues[key] = QueueState(Phase.UNKNOWN)
        return queue


async def test_a_key_whose_workers_cannot_be_started_is_unbound_emptied_and_bound_for_the_next_try() -> None:
    loop = Loop()
    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(lambda: loop.bound("42"))
        loop.broker.queues["42"].ready = 5
        fails_until(loop, 4.0, starts=2)
        await asyncio.sleep(1.0)
        assert loop.bound("42")
        fails_until(loop, 4.0, starts=3)
        await until(lambda: not loop.bound("42"), within=0.1)
        await until(lambda: loop.broker.queues["42"].ready == 0, within=0.1)
        assert loop.broker.steps("42") == ["declare", "bind", "unbind", "take back"]
        await asyncio.sleep(3.7)
        assert not loop.bound("42")
        await until(lambda: loop.bound("42"), within=0.5)
        assert "unbound" not in [event for event, _ in loop.lifecycle.events], "the key was not idle"


async def test_a_queue_is_bound_again_at_once_when_many_requests_come_that_cannot_be_refused() -> None:
    loop = Loop()
    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(lambda: loop.bound("42"))
        for _ in range(2):
            fails_until(loop, 30.0, starts=3)
            await until(lambda: not loop.bound("42"), within=0.1)
            await asyncio.sleep(1.0)
            loop.state.require("42", found_unbound=True)
            loop.state.groups.let_wait("42")
            await until(lambda: loop.bound("42"), within=0.1)
            await asyncio.sleep(5.0)
            assert loop.bound("42")


@pytest.mark.parametrize("what", ["take back", "unbind"])
async def test_what_cannot_be_taken_back_is_tried_again_after_growing_pauses(what: str) -> None:
    loop, tries = Loop(), list[float]()

    def fail(step: str, key: str) -> None:
        if step == what:
            tries.append(asyncio.get_running_loop().time())
            raise BrokerError("no")

    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(lambda: loop.bound("42"))
        loop.broker.on = fail
        fails_until(loop, 60.0, starts=3)
        await until(lambda: len(tries) == 6, within=60.0)
        pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
        assert pauses[-1] > 4 * pauses[0]
        assert loop.broker.steps("42").count("bind") == 1
        # And when the next try is due, it is bound again
        loop.broker.on = refuse(error=BrokerError("no"))
        await until(lambda: not loop.state.refused_until("42"), within=60.0)
        await until(lambda: loop.bound("42") and loop.broker.steps("42").count("bind") == 2, within=30.0)


async def test_what_cannot_be_taken_back_is_tried_again() -> None:
    loop = Loop()
    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(lambda: loop.bound("42"))
        loop.broker.on = refuse(("take back", "42"), error=BrokerError("no"))
        fails_until(loop, 30.0, starts=3)
        await until(lambda: loop.broker.steps("42").count("take back") == 2)
        loop.broker.on = refuse(error=BrokerError("no"))
        loop.broker.queues["42"].ready = 1
        await until(lambda: loop.broker.queues["42"].ready == 0, within=5.0)


def fails_until(loop: Loop, seconds: float, *, starts: int) -> None:
    """Let so many starts of a key have ended too early, and the next one be due after these seconds."""
    groups = loop.state.groups
    groups.attempts["42"] = Attempt(failures=starts, not_before=loop.state.clock() + seconds, unstarted=starts)
    groups.changes.add("42")


async def test_a_required_key_is_bound_at_once_and_reported() -> None:
    loop = Loop()
    async with running(*loop.coroutines):
        generation = loop.state.require("42")
        applied = await loop.state.queues.wait("42", lambda queue: queue.phase is Phase.BOUND)
        assert applied.asserted >= generation
        assert loop.bound("42")
        assert asyncio.get_running_loop().time() < 0.1
        assert loop.lifecycle.events == [("queue-ready", "42")]


async def test_an_orphan_that_comes_during_an_assertion_gets_an_assertion_of_its_own() -> None:
    loop, later = Loop(), list[int]()

    def orphan(what: str, key: str) -> None:
        if what == "bind" and not later:
            later.append(loop.state.require("42", found_unbound=True))

    loop.broker.on = orphan
    async with running(*loop.coroutines):
        loop.state.require("42")
        await loop.state.queues.wait("42", lambda queue: queue.asserted >= later[0] if later else False)
        assert loop.broker.steps("42") == ["declare", "bind"] * 2


async def test_a_binding_that_routes_nothing_is_created_again() -> None:
    loop = Loop()
    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(lambda: loop.bound("42"))
        loop.state.queues.unrouted.add("42")
        loop.state.require("42", found_unbound=True)
        await until(lambda: len(loop.broker.steps("42")) == 5)
        loop.state.require("42", found_unbound=True)
        await until(lambda: len(loop.broker.steps("42")) == 7)

    assert loop.broker.steps("42") == ["declare", "bind", "declare", "unbind", "bind", "declare", "bind"]
    assert loop.bound("42")


async def test_a_key_without_activity_is_unbound_rests_and_is_deleted() -> None:
    loop = Loop(unbind_delay=100.0, stop_delay=50.0)
    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(
            lambda: not loop.bound("42") and "42" in loop.broker.queues and asyncio.get_running_loop().time() > 1
        )
        assert asyncio.get_running_loop().time() == pytest.approx(100.0, abs=0.1)
        await until(lambda: "look" in loop.broker.steps("42"))
        assert asyncio.get_running_loop().time() == pytest.approx(150.0, abs=0.1)
        await until(lambda: "42" not in loop.broker.queues)
        assert asyncio.get_running_loop().time() >= 150.0 + 3 * 7.5
        assert loop.broker.steps("42") == ["declare", "bind", *WAY_OUT]
        await until(lambda: loop.state.queues.get("42") is None)


@pytest.mark.parametrize("holding", [{"ready": 1}, {"unacknowledged": 1}])
async def test_messages_found_in_an_unwanted_queue_make_its_key_active_again(holding: dict[str, int]) -> None:
    loop = Loop()
    loop.abandoned("42", **holding)
    async with running(*loop.coroutines):
        await until(lambda: "42" in loop.state.tracker.wanted, within=20.0)
        await until(lambda: loop.bound("42"), within=1.0)
        assert "delete" not in loop.broker.steps("42")


async def test_a_message_that_the_statistics_show_late_keeps_its_queue() -> None:
    loop = Loop()
    queue = loop.abandoned("42")
    loop.management.lag = 7.0
    async with running(*loop.coroutines):
        # Given a message that was taken just before the last look of a drained queue, by a consumer that then left
        await until(lambda: loop.state.queues.phase("42") is Phase.DRAINED)
        loop.management.watch("42", queue)
        queue.unacknowledged = 1
        loop.management.watch("42", queue)
        await until(lambda: "42" in loop.state.tracker.wanted, within=60.0)
        assert "delete" not in loop.broker.steps("42")


async def test_a_drained_queue_is_not_deleted_while_its_group_is_there() -> None:
    loop = Loop()
    loop.abandoned("42")
    loop.state.groups["42"] = Group("42", GroupState.STOPPING, 1, "")
    async with running(*loop.coroutines):
        await until(lambda: loop.state.queues.phase("42") is Phase.DRAINED)
        await asyncio.sleep(1000.0)
        assert loop.broker.steps("42") == WAY_OUT[:3]
        del loop.state.groups["42"]
        loop.state.groups.changes.add("42")
        await until(lambda: "42" not in loop.broker.queues, within=20.0)


async def test_a_queue_that_another_program_consumes_stays() -> None:
    loop = Loop()
    queue = loop.abandoned("42", consumers=1)
    async with running(*loop.coroutines):
        await asyncio.sleep(1000.0)
        assert "delete" not in loop.broker.steps("42")
        # And a request for it does not wait for the next look
        started = asyncio.get_running_loop().time()
        loop.state.require("42", found_unbound=True)
        await until(lambda: loop.bound("42"))
        assert asyncio.get_running_loop().time() - started < 1.0
        assert queue.bound


async def test_a_queue_that_another_program_bound_stays() -> None:
    loop = Loop()
    loop.abandoned("42")
    loop.management.bindings = 1
    async with running(*loop.coroutines):
        await asyncio.sleep(1000.0)
        assert "delete" not in loop.broker.steps("42")
        found = loop.state.queues.get("42")
        assert found is not None
        assert "bound" in (found.error or "")


async def test_a_queue_whose_dead_letters_have_not_arrived_stays_until_they_have() -> None:
    loop = Loop()
    loop.abandoned("42")
    loop.management.dead_lettering = 1
    async with running(*loop.coroutines):
        await asyncio.sleep(1000.0)
        assert "delete" not in loop.broker.steps("42")
        assert "42" not in loop.state.tracker.wanted
        loop.management.dead_lettering = 0
        await until(lambda: "delete" in loop.broker.steps("42"), within=100.0)


@pytest.mark.parametrize("moment", range(len(WAY_OUT) - 1))
async def test_no_queue_is_deleted_when_its_key_is_required_on_the_way_out(moment: int) -> None:
    # When the key is required at any of the waits before the deletion itself is sent
    loop, seen = Loop(), list[str]()
    loop.abandoned("42")

    def required(what: str, key: str) -> None:
        seen.append(what)
        if len(seen) == moment + 1:
            loop.state.require("42", found_unbound=True)

    loop.broker.on = required
    async with running(*loop.coroutines):
        await until(lambda: len(seen) > moment)
        await until(lambda: loop.bound("42") and seen[-1] == "bind", within=10.0)
        await asyncio.sleep(50.0)
        assert seen == [*WAY_OUT[: moment + 1], *seen[moment + 1 :]]
        assert "delete" not in seen
        assert loop.bound("42")


async def test_a_key_required_while_its_queue_is_being_deleted_gets_a_new_one() -> None:
    loop = Loop()
    loop.abandoned("42")

    def required(what: str, key: str) -> None:
        if what == "delete":
            loop.state.require("42", found_unbound=True)

    loop.broker.on = required
    async with running(*loop.coroutines):
        await until(lambda: "delete" in loop.broker.steps("42"))
        await until(lambda: loop.bound("42"), within=1.0)


async def test_a_failing_key_is_tried_again_with_its_reason_and_delays_no_other() -> None:
    loop = Loop(size=2)
    bad = [f"bad {number}" for number in range(20)]
    loop.broker.on = refuse(*(("declare", key) for key in bad), error=PreconditionFailed("other arguments"))
    async with running(*loop.coroutines):
        for key in (*bad, "good"):
            loop.state.require(key)
        await until(lambda: loop.bound("good"), within=0.5)
        failed = loop.state.queues.get("bad 0")
        assert failed is not None
        assert "other arguments" in str(failed.error)
        assert "core-req-bad 0 is not osrdyne's" in str(failed.error)
        await asyncio.sleep(90.0)
        assert 3 < loop.broker.steps("bad 0").count("declare") < 12
        loop.broker.on = lambda what, key: None
        loop.state.require("bad 0")
        await until(lambda: loop.bound("bad 0"), within=31.0)


async def test_a_call_without_an_answer_does_not_stand_before_another_keys_call() -> None:
    loop = Loop(size=1)
    loop.broker.hanging.add(("declare", "bad"))
    async with running(*loop.coroutines):
        loop.state.require("bad")
        await asyncio.sleep(0.1)
        loop.state.require("good")
        # The only channel is given back after the call's timeout of 10 s; it must not be the hung one.
        await until(lambda: loop.bound("good"), within=10.5)


async def test_an_unexpected_error_about_one_key_ends_nothing() -> None:
    loop = Loop()
    loop.broker.on = refuse(("declare", "bad"), error=ZeroDivisionError("of ours"))
    async with running(*loop.coroutines):
        loop.state.require("bad")
        loop.state.require("good")
        await until(lambda: loop.bound("good"), within=0.5)
        failed = loop.state.queues.get("bad")
        assert failed is not None
        assert "ZeroDivisionError" in (failed.error or "")


async def test_while_the_management_api_is_away_nothing_is_deleted() -> None:
    loop = Loop()
    loop.abandoned("42")
    loop.broker.on = refuse(("sample", "42"), error=ManagementError("away"))
    async with running(*loop.coroutines):
        await asyncio.sleep(500.0)
        assert "delete" not in loop.broker.steps("42")
        # And the queue is unbound, and reported so, only once
        assert loop.broker.steps("42").count("unbind") == 1
        assert loop.lifecycle.events == [("unbound", "42")]
        loop.broker.on = lambda what, key: None
        await until(lambda: "42" not in loop.broker.queues, within=100.0)


@pytest.mark.parametrize("refusal", [PreconditionFailed("other arguments"), Locked("exclusive")])
async def test_a_foreign_queue_with_our_name_is_never_changed(refusal: BrokerError) -> None:
    loop = Loop(unbind_delay=100.0, stop_delay=50.0)
    loop.broker.queues["42"] = BrokerQueue()
    loop.broker.on = refuse(("declare", "42"), error=refusal)
    async with running(*loop.coroutines):
        loop.state.require("42")
        await asyncio.sleep(1000.0)
        assert set(loop.broker.steps("42")) == {"declare"}
        assert loop.state.queues.get("42") is None
        # And once it is gone, the key has its own
        loop.broker.on = lambda what, key: None
        loop.state.require("42")
        await until(lambda: loop.bound("42"), within=1.0)


async def test_a_queue_that_another_program_made_in_place_of_ours_is_not_deleted() -> None:
    loop = Loop()
    loop.abandoned("42")
    loop.management.ours = False
    async with running(*loop.coroutines):
        await asyncio.sleep(1000.0)
        assert "delete" not in loop.broker.steps("42")
        assert loop.state.queues.get("42") is None


async def test_every_queue_of_a_former_session_is_asserted_again() -> None:
    loop = Loop()
    loop.state.require("42")
    loop.state.queues["42"] = QueueState(Phase.UNKNOWN)
    async with running(*loop.coroutines):
        await until(lambda: loop.bound("42"), within=0.5)


async def test_a_loop_that_ends_leaves_no_reader_behind() -> None:
    loop = Loop()
    async with running(*loop.coroutines):
        await asyncio.sleep(1.0)
    assert not loop.state.tracker.changes.readers
    assert not loop.state.groups.changes.readers


async def test_a_queue_that_the_broker_lost_is_created_again_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    loop.state.lost.former_totals["42"] = QueueTotals(ready=3, unacknowledged=1, consumers=1, bindings=0)
    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(lambda: loop.bound("42"))
        loop.lose("42")
        await until(lambda: loop.broker.steps("42")[-1] == "bind" and len(loop.broker.steps("42")) > 2)
    assert loop.broker.steps("42")[2:] == ["unbind", "members", "look", "delete", "declare", "bind"]
    assert not loop.broker.queues["42"].lost
    assert loop.lifecycle.events == [("queue-ready", "42"), ("queue-lost", "42"), ("queue-ready", "42")]
    assert "42" in loop.state.lost.remade
    text = generate_latest(loop.metrics.registry).decode()
    assert "osrdyne_queues_lost_by_broker_total 1.0" in text
    assert "osrdyne_messages_lost_by_broker_total 4.0" in text
    # On a busy machine, asyncio says that a step was slow
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING" and record.name != "asyncio"]
    assert (warning.message, vars(warning)["messages_when_last_seen"]) == (
        "the broker had lost this queue; it is created again",
        4,
    )


async def test_a_lost_queue_that_is_not_wanted_is_deleted_and_not_created_again() -> None:
    loop = Loop()
    async with running(*loop.coroutines):
        loop.abandoned("42")
        loop.lose("42")
        await until(lambda: "42" not in loop.broker.queues)
        await asyncio.sleep(100.0)
    assert "declare" not in loop.broker.steps("42")
    assert loop.state.lost.remade == {}


async def test_a_lost_queue_of_an_unwanted_key_is_created_again_while_its_group_runs() -> None:
    loop = Loop()
    async with running(*loop.coroutines):
        loop.abandoned("42")
        loop.state.groups["42"] = Group("42", GroupState.RUNNING, 1, "")
        loop.lose("42")
        await until(lambda: loop.bound("42") and not loop.broker.queues["42"].lost)


@pytest.mark.parametrize(
    "holding", [{"lost": False}, {"lost": True, "ready": 1}, {"lost": True, "consumers": 1}], ids=str
)
async def test_a_queue_that_looked_lost_and_answers_again_is_not_deleted(holding: dict[str, Any]) -> None:
    loop = Loop()
    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(lambda: loop.bound("42"))
        loop.lose("42")
        for name, value in holding.items():
            setattr(loop.broker.queues["42"], name, value)
        await until(lambda: "look" in loop.broker.steps("42"))
        loop.state.lost.evidence = Evidence()  # as the watcher sees it next
        await until(lambda: loop.bound("42"))
    assert "delete" not in loop.broker.steps("42")


async def test_while_it_cannot_be_asked_whether_a_queue_is_lost_it_is_not_deleted() -> None:
    loop = Loop()
    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(lambda: loop.bound("42"))
        loop.broker.on = refuse(("members", "42"), error=ManagementError("away"))
        loop.lose("42")
        await until(lambda: loop.broker.steps("42")[-2:] == ["declare", "bind"])
        assert "delete" not in loop.broker.steps("42")
        loop.broker.on = lambda what, key: None
        loop.lose("42")
        await until(lambda: "delete" in loop.broker.steps("42"))


async def test_a_lost_queue_of_one_key_delays_no_other() -> None:
    loop = Loop()
    loop.broker.hanging.add(("delete", "42"))
    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(lambda: loop.bound("42"))
        loop.lose("42")
        await until(lambda: "delete" in loop.broker.steps("42"))
        began = asyncio.get_running_loop().time()
        loop.state.require("7")
        await until(lambda: loop.bound("7"))
        assert asyncio.get_running_loop().time() - began < 0.1


async def test_a_queue_of_which_the_broker_just_says_that_there_is_none_is_not_deleted() -> None:
    # Seen of queues that are well, for a moment while a node starts.
    class Management(StandInManagement):
        async def members(self, queue: str) -> None:
            await self.broker.called("members", queue)

    loop = Loop()
    loop.management.__class__ = Management
    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(lambda: loop.bound("42"))
        loop.lose("42")
        await until(
            lambda: loop.broker.steps("42")[-2:] == ["declare", "bind"] and "members" in loop.broker.steps("42")
        )
    assert "delete" not in loop.broker.steps("42")


async def test_a_step_that_waited_for_a_channel_is_not_taken_when_its_key_is_wanted_again_meanwhile() -> None:
    loop = Loop(size=1, unbind_delay=20.0, stop_delay=500.0)
    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(lambda: loop.bound("42"))
        # The only channel is taken when the key is to be unbound.
        await asyncio.sleep(15.0)
        loop.broker.hanging.add(("declare", "bad"))
        loop.state.require("bad")
        await asyncio.sleep(7.0)
        assert loop.state.tracker.wanted["42"].status is Status.UNBOUND
        loop.state.require("42")
        await asyncio.sleep(10.0)
        assert "unbind" not in loop.broker.steps("42")
        assert loop.bound("42")


async def test_there_are_never_more_queues_than_allowed_and_a_waiting_key_gets_the_next_place() -> None:
    loop = Loop(most=2, unbind_delay=30.0, stop_delay=5.0)
    async with running(*loop.coroutines):
        for key in ("a", "b", "c", "d"):
            loop.state.require(key)
        for key in ("b", "c"):
            loop.state.tracker.keep(key, loop.state.clock() + 1000.0)
        await until(lambda: loop.bound("a", "b"), within=1.0)
        await asyncio.sleep(20.0)
        assert set(loop.broker.queues) == {"a", "b"}
        await until(lambda: loop.bound("b", "c"), within=120.0)
        assert set(loop.broker.queues) == {"b", "c"}


async def test_a_queue_that_the_broker_refuses_for_its_limit_is_not_a_foreign_queue() -> None:
    loop = Loop()
    said = "PRECONDITION_FAILED - cannot declare queue 'core-req-42': queue limit in vhost 'v' (60) is reached"
    loop.broker.on = refuse(("declare", "42"), error=PreconditionFailed(said, code=406))
    async with running(*loop.coroutines):
        loop.state.require("42")
        await until(lambda: "42" in loop.state.queues and loop.state.queues["42"].failures > 1, within=60.0)
        assert loop.state.queues["42"].phase is Phase.UNKNOWN
        assert "queue limit" in str(loop.state.queues["42"].error)
