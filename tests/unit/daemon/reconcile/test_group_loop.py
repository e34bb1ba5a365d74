"""The group loop under virtual time: groups follow the target, and no group's failure reaches another."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest

from osrdyne.base.changes import ChangeReader
from osrdyne.drivers.base import Change, Group, GroupState, How, WorkerEnd
from osrdyne.errors import DriverError, EngineAway
from osrdyne.metrics import Metrics
from osrdyne.reconcile import group_loop, group_rules
from osrdyne.reconcile.group_loop import GroupLoop
from osrdyne.settings.daemon import LimitSettings
from osrdyne.state.delivery_history import PastDelivery
from osrdyne.state.pool import PoolState
from osrdyne.state.values import KeyActivity, Phase, QueueState, QueueTotals
from tests.unit.stand_ins import StandInDriver, StandInLifecycle, refuse, running, state_of, until

pytestmark = pytest.mark.looptime

LIMITS = LimitSettings(starts_in_flight=2, start_hold=10.0, start_grace=40.0)
#: In seconds.
PATIENCE = 100.0
LATE = 7.5
LISTING_INTERVAL = 30.0


class Loop:
    """A group loop on a stand-in engine."""

    def __init__(self, limits: LimitSettings = LIMITS, *, listing_interval: float = LISTING_INTERVAL) -> None:
        self.state: PoolState = state_of(unbind_delay=10_000.0)
        self.driver = StandInDriver()
        self.lifecycle = StandInLifecycle()
        self.metrics = Metrics()
        self.limits = limits
        self.listing_interval = listing_interval
        self.loop = self.of_a_session()

    def of_a_session(self) -> GroupLoop:
        return GroupLoop(
            self.state,
            self.driver,
            self.lifecycle,
            self.metrics,
            self.limits,
            patience=PATIENCE,
            late=LATE,
            listing_interval=self.listing_interval,
        )

    def exits(self, how: str) -> float:
        return self.metrics.registry.get_sample_value("osrdyne_worker_exits_total", {"how": how}) or 0.0

    def want(self, *keys: str) -> None:
        """Make keys Active with a bound queue, as the queue loop does."""
        for key in keys:
            self.state.require(key)
            self.set_phase(key, Phase.BOUND)

    def set_phase(self, key: str, phase: Phase) -> None:
        self.state.queues[key] = QueueState(phase, asserted=1)
        self.state.queues.changes.add(key)

    def forget(self, key: str, phase: Phase) -> None:
        self.state.tracker.advance(1e9)
        self.state.tracker.changes.add(key)
        self.set_phase(key, phase)

    def alive(self, key: str) -> None:
        """Report an event of a worker, as the activity listener does."""
        self.state.activity[key] = KeyActivity(last_event=self.state.clock())
        self.state.activity.changes.add(key)

    def runs(self, *keys: str) -> Callable[[], bool]:
        return lambda: all(key in self.driver.groups for key in keys)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_key_with_a_queue_gets_a_group_at_once_not_at_a_listing() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        await asyncio.sleep(5.0)
        loop.state.require("42")
        await asyncio.sleep(1.0)
        assert not loop.driver.groups
        loop.set_phase("42", Phase.BOUND)
        await until(loop.runs("42"), within=0.1)
        assert loop.driver.starts("42") == 1
        assert ("group-started", "42") in loop.lifecycle.events


async def test_a_restart_of_the_daemon_starts_and_stops_nothing() -> None:
    loop = Loop()
    loop.driver.groups["42"] = Group("42", GroupState.RUNNING, 1, "current")
    loop.want("42")
    async with running(loop.loop.run()):
        await asyncio.sleep(200.0)
    assert {what for what, _ in loop.driver.calls} == {"list"}


async def test_a_group_is_stopped_when_its_queue_is_drained_and_not_before() -> None:
    loop = Loop()
    loop.want("42")
    async with running(loop.loop.run()):
        await until(loop.runs("42"))
        loop.forget("42", Phase.UNBOUND)
        await asyncio.sleep(100.0)
        assert ("stop", "42") not in loop.driver.calls
        loop.set_phase("42", Phase.DRAINED)
        await until(lambda: "42" not in loop.state.groups, within=5.0)
        assert loop.driver.calls.count(("stop", "42")) == 1
        await until(lambda: "42" not in loop.state.groups.attempts)


async def test_starts_in_flight_are_limited_and_a_sign_of_life_lets_the_next_go() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("a", "b", "c")
        await asyncio.sleep(5.0)
        assert sorted(loop.driver.groups) == ["a", "b"]
        loop.alive("a")
        await until(loop.runs("c"), within=0.1)


async def test_a_change_that_is_not_an_end_does_not_let_the_next_start_go() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("a", "b", "c")
        await asyncio.sleep(1.0)
        loop.driver.news.put_nowait(Change("a"))
        await asyncio.sleep(5.0)
        assert sorted(loop.driver.groups) == ["a", "b"]


async def test_a_start_that_shows_no_life_holds_up_others_for_a_bounded_time() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("a", "b", "c")
        await until(loop.runs("c"))
        assert now() == pytest.approx(LIMITS.start_hold, abs=0.2)


async def test_a_start_that_hangs_in_the_engine_holds_up_others_for_no_longer() -> None:
    loop = Loop()
    loop.driver.on = lambda what, key: asyncio.sleep(50.0) if key in ("a", "b") else None
    async with running(loop.loop.run()):
        loop.want("a", "b", "c")
        await until(loop.runs("c"))
        assert now() == pytest.approx(LIMITS.start_hold, abs=0.2)


async def test_many_cold_keys_are_all_started() -> None:
    loop = Loop(LimitSettings(starts_in_flight=8, start_hold=10.0))
    keys = [str(number) for number in range(200)]

    def life(what: str, key: str) -> None:
        if what == "start":
            asyncio.get_running_loop().call_later(0.5, loop.alive, key)

    loop.driver.on = life
    async with running(loop.loop.run()):
        loop.want(*keys)
        await until(loop.runs(*keys), within=200 / 8 * 0.6)
        assert all(loop.driver.starts(key) == 1 for key in keys)


async def test_a_crashing_group_is_started_again_after_growing_pauses_with_its_last_error() -> None:
    loop, starts = Loop(), list[float]()

    def crash_soon(what: str, key: str) -> None:
        if what == "start":
            starts.append(now())
            asyncio.get_running_loop().call_later(0.2, loop.driver.crash, key, "exit 3")

    loop.driver.on = crash_soon
    async with running(loop.loop.run()):
        loop.want("42")
        await until(lambda: len(starts) == 6)
        pauses = [later - earlier for earlier, later in itertools.pairwise(starts)]
        assert pauses == sorted(pauses)
        assert pauses[-1] > 4 * pauses[0]
        assert loop.state.groups.attempts["42"].error == "exit 3"


async def test_a_group_that_crashed_after_a_long_life_comes_back_soon() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        loop.alive("42")
        await asyncio.sleep(60.0)
        loop.driver.crash("42")
        await until(lambda: loop.driver.starts("42") == 2, within=1.0)


async def test_a_worker_that_its_engine_brings_back_makes_up_for_its_failure_once_it_has_lived() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        loop.alive("42")
        # Given an engine that restarts by itself, and a worker that fails now and then
        for _ in range(3):
            await asyncio.sleep(60.0)
            loop.driver.groups["42"] = replace(loop.driver.groups["42"], state=GroupState.STARTING, workers=0)
            loop.driver.news.put_nowait(Change("42", "exit 1"))
            await until(lambda: loop.state.groups["42"].state is GroupState.STARTING, within=1.0)
            await asyncio.sleep(5.0)
            # When it is back, of which the engine says nothing, and does nothing more
            loop.driver.groups["42"] = replace(loop.driver.groups["42"], state=GroupState.RUNNING, workers=1)
            loop.alive("42")
            await asyncio.sleep(9.0)
            assert (loop.state.groups.attempts["42"].error, loop.state.groups.attempts["42"].failures) == ("exit 1", 1)
            # Then its error is over soon, and failures do not add up
            await until(lambda: loop.state.groups.attempts["42"].error is None, within=2.0)
        assert loop.driver.starts("42") == 1


async def test_the_end_of_a_worker_is_kept_and_sent_with_what_is_known_of_it() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        await asyncio.sleep(1.0)
        end = WorkerEnd(How.EXIT, 1, "w", 1.0, ("no such file",), "see /log")
        loop.driver.crash("42", "worker exited with status 1\nafter 1.0 s", end)
        await until(lambda: loop.lifecycle.ends, within=0.5)

        (fact,) = loop.state.ends.of("42")
        assert (fact.end, fact.started, fact.held) == (end, False, 0)
        assert fact.reason == "worker exited with status 1 after 1.0 s"
        (sent,) = loop.lifecycle.ends
        assert (sent["event"], sent["outcome"], sent["x-reason"]) == ("worker-ended", "exit 1", fact.reason)
        # It outlives its key
        loop.forget("42", Phase.GONE)
        await until(lambda: "42" not in loop.state.groups.attempts)
        assert loop.state.ends.of("42") == (fact,)


async def test_a_worker_whose_events_come_after_its_end_counts_as_started_with_its_request() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        loop.driver.crash("42", "exit 1", WorkerEnd(How.EXIT, 1, "w", 0.1))
        await asyncio.sleep(0.1)
        loop.state.activity.note("42", "started", loop.state.clock(), "w")
        loop.state.activity.delivery_history.add("42", "r", PastDelivery("w", 0))
        await until(lambda: loop.state.ends.of("42"))
        (fact,) = loop.state.ends.of("42")
        assert (fact.started, fact.held) == (True, 1)


@pytest.mark.parametrize("how", ["exits", "refused"])
async def test_starts_that_end_before_started_refuse_requests_between_tries_until_one_works(how: str) -> None:
    loop = Loop()
    state = loop.state

    def refused() -> bool:
        return state.refused_until("42") is not None

    def fail(what: str, key: str) -> None:
        if what == "start" and how == "refused":
            raise DriverError("no image")
        if what == "start":
            end = WorkerEnd(How.EXIT, 1, "w", 0.1)
            asyncio.get_running_loop().call_later(0.1, loop.driver.crash, key, "exit 1", end)

    loop.driver.on = fail
    async with running(loop.loop.run()):
        loop.want("42")
        await until(lambda: loop.driver.starts("42") == 3, within=5.0)
        assert not refused() or how == "refused"
        await until(refused, within=1.0)
        # A try is under way
        await until(lambda: loop.driver.starts("42") == 4, within=5.0)
        assert not refused() or how == "refused"
        await until(refused, within=1.0)
        # And then one works
        loop.driver.on = lambda what, key: None
        await until(lambda: loop.driver.starts("42") == 5, within=10.0)
        state.activity.note("42", "started", state.clock(), "w")
        state.activity.changes.add("42")
        await until(lambda: state.groups.attempt("42").unstarted == 0, within=0.5)
        loop.driver.crash("42", "exit 1", WorkerEnd(How.EXIT, 1, "w", 5.0))
        await asyncio.sleep(0.4)
        assert not refused()


@pytest.mark.parametrize("where", ["itself", "cause"])
async def test_an_engine_that_is_away_for_some_starts_refuses_no_requests(where: str) -> None:
    loop = Loop()

    async def away() -> None:
        raise EngineAway("no answer")

    async def explained() -> None:
        try:
            await away()
        except DriverError as error:
            raise DriverError("cannot start") from error

    def ask(what: str, key: str) -> Awaitable[None] | None:
        return None if what != "start" else away() if where == "itself" else explained()

    loop.driver.on = ask
    async with running(loop.loop.run()):
        loop.want("42")
        await until(lambda: loop.driver.starts("42") == 5, within=20.0)
        groups = loop.state.groups
        assert (groups.attempt("42").unstarted, loop.state.refused_until("42")) == (0, None)
        assert loop.state.ends.of("42")[-1].event == "start-failed"
        assert loop.exits("no-start") == 0


async def test_requests_are_not_refused_while_the_engine_is_asked_for_a_start_that_it_lists_already() -> None:
    loop = Loop()

    def slow(what: str, key: str) -> Awaitable[None] | None:
        if what != "start":
            return None
        if loop.driver.starts("42") <= 3:
            raise DriverError("no image")
        loop.driver.groups["42"] = Group("42", GroupState.STARTING, 0, "current")
        loop.driver.news.put_nowait(Change("42"))
        return asyncio.sleep(5.0)

    loop.driver.on = slow
    async with running(loop.loop.run()):
        loop.want("42")
        groups = loop.state.groups
        await until(lambda: "42" in groups, within=20.0)
        assert groups.attempt("42").unstarted == 3
        for _ in range(6):
            assert loop.state.refused_until("42") is None
            await asyncio.sleep(1.0)


async def test_a_request_that_a_silent_worker_took_ends_the_refusal_and_wakes_the_loop_once() -> None:
    loop = Loop()
    groups, queues = loop.state.groups, loop.state.queues
    loop.driver.on = refuse(("start", "42"), error=DriverError("no image"))
    async with running(loop.loop.run()):
        loop.want("42")
        await until(lambda: groups.attempt("42").unstarted >= 3, within=20.0)
        with ChangeReader().following(groups.changes) as changed:
            queues.note("42", QueueState(Phase.UNBOUND, emptied=True, taken_at=loop.state.clock()))
            assert await changed.take(0.1) == ["42"]
        assert loop.state.refused_until("42") is None
        # What an earlier look found does not end the next row
        await until(lambda: groups.attempt("42").unstarted >= 3, within=60.0)
        queues.changes.add("42")
        await asyncio.sleep(0.1)
        assert groups.attempt("42").unstarted >= 3


async def test_a_silent_worker_that_consumes_ends_the_row_of_failed_starts_before_it_ends_itself() -> None:
    loop = Loop()
    groups = loop.state.groups
    loop.driver.on = refuse(("start", "42"), error=DriverError("no image"))
    async with running(loop.loop.run()):
        loop.want("42")
        await until(lambda: groups.attempt("42").unstarted >= 3, within=20.0)
        loop.driver.on = lambda what, key: None
        await until(loop.runs("42"))
        await asyncio.sleep(3 * LATE)
        # The group loop looks at no key because of its consumers
        loop.state.counts.served_at["42"] = now()
        await asyncio.sleep(1.0)
        loop.driver.crash("42", "exit 1", WorkerEnd(How.EXIT, 1, "w", 3 * LATE))
        await until(lambda: groups.attempt("42").error == "exit 1", within=0.2)
        assert loop.state.refused_until("42") is None
        await until(lambda: loop.state.ends.of("42")[-1].reason == "exit 1", within=1.0)
        assert groups.attempt("42").unstarted == 0


async def test_a_row_of_failed_starts_ends_with_its_session() -> None:
    loop = Loop()
    groups = loop.state.groups
    loop.driver.on = refuse(("start", "a"), ("start", "b"), error=DriverError("no image"))
    async with running(loop.loop.run()):
        loop.want("a", "b")
        await until(lambda: min(groups.attempt(key).unstarted for key in "ab") >= 3, within=20.0)
    loop.state.tracker.advance(1e9)
    loop.want("b")
    failures = groups.attempt("b").failures
    loop.driver.on = refuse(error=DriverError("no image"))
    async with running(loop.of_a_session().run()):
        await asyncio.sleep(0.1)
        assert "a" not in groups.attempts
        assert (groups.attempt("b").unstarted, groups.attempt("b").failures) == (0, failures)


async def test_a_key_with_a_worker_that_a_person_runs_is_not_refused() -> None:
    loop = Loop()
    loop.driver.on = refuse(("start", "42"), error=DriverError("no image"))
    async with running(loop.loop.run()):
        loop.want("42")
        await until(lambda: loop.state.refused_until("42") is not None, within=20.0)
        counted(loop, 1)
        assert loop.state.refused_until("42") is None
        counted(loop, 0)
        assert loop.state.refused_until("42") is not None


async def test_a_worker_that_its_engine_brings_back_ends_the_refusal_when_it_says_so() -> None:
    loop = Loop()
    state = loop.state
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        loop.driver.groups["42"] = replace(loop.driver.groups["42"], state=GroupState.STARTING, workers=0)
        for _ in range(3):
            await asyncio.sleep(1.0)
            loop.driver.news.put_nowait(Change("42", "exit 1", WorkerEnd(How.EXIT, 1, "w", 0.1)))
        await asyncio.sleep(1.0)
        assert state.refused_until("42") == math.inf
        with ChangeReader().following(state.groups.changes) as changed:
            state.activity.note("42", "started", state.clock(), "w")
            state.activity.changes.add("42")
            assert await changed.take(1.0) == ["42"]
        assert state.refused_until("42") is None


@pytest.mark.parametrize("seconds", [30.0, None])
async def test_a_worker_that_its_engine_restarts_and_that_dies_at_work_each_time_had_started(
    seconds: float | None,
) -> None:
    loop = Loop()

    def listed(state: GroupState) -> None:
        loop.driver.groups["42"] = replace(loop.driver.groups["42"], state=state)

    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        for _ in range(4):
            await asyncio.sleep(1.0)
            listed(GroupState.RUNNING)
            loop.driver.news.put_nowait(Change("42"))
            loop.state.activity.note("42", "started", now(), "pod")
            loop.state.activity.changes.add("42")
            await asyncio.sleep(30.0)
            listed(GroupState.STARTING)
            loop.driver.news.put_nowait(Change("42", "exit 1", WorkerEnd(How.EXIT, 1, "pod", seconds)))
            await asyncio.sleep(5.0)
            assert loop.state.ends.of("42")[-1].started is True
            assert loop.state.groups.attempt("42").unstarted == 0


async def test_a_worker_that_starts_and_dies_each_time_refuses_nothing() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        for number in range(6):
            await until(loop.runs("42"), within=60.0)
            loop.state.activity.note("42", "started", loop.state.clock(), f"w{number}")
            loop.state.activity.changes.add("42")
            await asyncio.sleep(0.1)
            loop.driver.crash("42", "exit 1", WorkerEnd(How.EXIT, 1, f"w{number}", 0.1))
            await asyncio.sleep(0.3)
            assert loop.state.groups.attempt("42").unstarted == 0
            assert loop.state.refused_until("42") is None


@pytest.mark.parametrize("at_work", [True, False])
async def test_a_worker_that_dies_at_work_is_started_again_without_a_pause_and_any_other_with_one(
    at_work: bool,
) -> None:
    loop, starts = Loop(), list[float]()
    activity = loop.state.activity

    def work_and_die(what: str, key: str) -> None:
        if what == "start":
            starts.append(now())
            asyncio.get_running_loop().call_later(0.1, begin, f"w{len(starts)}")

    def begin(worker: str) -> None:
        activity.note("42", "started", loop.state.clock(), worker)
        if at_work:
            activity.delivery_history.add("42", "r", PastDelivery(worker, 0))
        activity.changes.add("42")
        loop.driver.crash("42", "exit 1", WorkerEnd(How.EXIT, 1, worker, 0.1))

    loop.driver.on = work_and_die
    async with running(loop.loop.run()):
        loop.want("42")
        await until(lambda: len(starts) == 6)
        longest = max(later - earlier for earlier, later in itertools.pairwise(starts))
        assert (longest < 1.0) is at_work
        # And where it cannot be started after that, the pauses begin with the shortest
        loop.driver.on = refuse(("start", "42"), error=DriverError("no image"))
        await until(lambda: loop.driver.starts("42") == len(starts) + 2, within=2.0 if at_work else 100.0)


async def test_a_group_that_hangs_at_work_waits_before_it_is_started_again() -> None:
    loop = Loop()
    loop.want("42")
    async with running(loop.loop.run()):
        await until(loop.runs("42"))
        loop.state.activity.note("42", "started", loop.state.clock(), "w")
        loop.state.activity.delivery_history.add("42", "r", PastDelivery("w", 0))
        attempts = loop.state.groups.attempts
        loop.loop._stops["42"] = group_rules.GroupPlan(reason="stuck", failed=True)
        loop.loop._failed("42", "stuck")
        loop.driver.crash("42", None, WorkerEnd(How.STOPPED, worker_id="w"))
        await until(lambda: loop.state.ends.of("42"), within=1.0)
        assert attempts["42"].failures == 1


async def test_a_stop_is_an_end_with_its_reason() -> None:
    loop = Loop()
    loop.want("42")
    async with running(loop.loop.run()):
        await until(loop.runs("42"))
        loop.forget("42", Phase.DRAINED)
        await until(lambda: loop.state.ends.of("42"), within=5.0)
        (fact,) = loop.state.ends.of("42")
        assert (fact.end.how, fact.reason, fact.failed) == (How.STOPPED, "stopped: idle", False)


async def test_the_end_of_a_worker_that_was_stopped_because_it_hung_says_what_it_wrote_last() -> None:
    loop = Loop()
    loop.want("42")
    async with running(loop.loop.run()):
        await until(loop.runs("42"))
        loop.loop._stops["42"] = group_rules.GroupPlan(reason="stuck: no consumer", failed=True)
        loop.loop._failed("42", "stuck: no consumer")
        end = WorkerEnd(How.STOPPED, worker_id="w", output=("begins", "loads for ever"), log="w.log")
        loop.driver.crash("42", None, end)
        await until(lambda: loop.state.ends.of("42"), within=1.0)
        (fact,) = loop.state.ends.of("42")
        assert fact.reason == "stopped: stuck: no consumer; see w.log: loads for ever"
        assert fact.end.output == end.output
        assert loop.state.groups.attempt("42").error == "stuck: no consumer; see w.log: loads for ever"


async def test_the_end_of_a_worker_that_was_stopped_though_it_worked_leaves_out_what_it_wrote() -> None:
    loop = Loop()
    loop.want("42")
    async with running(loop.loop.run()):
        await until(loop.runs("42"))
        loop.loop._stops["42"] = group_rules.GroupPlan(reason="idle")
        loop.driver.crash("42", None, WorkerEnd(How.STOPPED, worker_id="w", output=("bye",), log="w.log"))
        await until(lambda: loop.state.ends.of("42"), within=1.0)
        (fact,) = loop.state.ends.of("42")
        assert (fact.reason, fact.end.output) == ("stopped: idle", ())


async def test_an_end_that_no_daemon_watched_is_a_cause_of_what_expires_and_no_failed_start() -> None:
    loop = Loop()
    loop.want("42")
    async with running(loop.loop.run()):
        await until(loop.runs("42"))
        loop.driver.crash("42", None, WorkerEnd(How.UNKNOWN, worker_id="w", seconds=0.0))
        await until(lambda: loop.state.ends.of("42"), within=1.0)
        assert loop.state.ends.why("42", since=0.0) == "ended while no daemon watched it"
        assert loop.state.groups.attempt("42").unstarted == 0
        assert loop.exits("unknown") == 1


async def test_ends_of_workers_are_counted_by_how_they_ended() -> None:
    loop = Loop()
    loop.want("42")
    async with running(loop.loop.run()):
        await until(loop.runs("42"))
        loop.driver.crash("42", "exit 1", WorkerEnd(How.EXIT, 1, "w", 0.1))
        loop.driver.on = refuse(("start", "42"), error=DriverError("the image is missing"))
        await until(lambda: loop.exits("no-start"))
    assert (loop.exits("exit"), loop.exits("signal")) == (1, 0)


async def test_a_refused_start_is_a_fact_too() -> None:
    loop = Loop()
    loop.driver.on = refuse(("start", "42"), error=DriverError("the image is missing"))
    async with running(loop.loop.run()):
        loop.want("42")
        await until(lambda: loop.lifecycle.ends, within=0.5)
        assert loop.lifecycle.ends[0] == {
            "event": "start-failed",
            "outcome": "no-start",
            "x-reason": "the image is missing",
            "x-started": 0,
            "x-held": 0,
        }


async def test_a_key_that_never_failed_is_started_before_those_that_keep_failing() -> None:
    loop = Loop(LimitSettings(starts_in_flight=1, start_hold=10.0))

    def crash_late(what: str, key: str) -> None:
        if what == "start" and key != "good":
            asyncio.get_running_loop().call_later(5.0, loop.driver.crash, key)

    loop.driver.on = crash_late
    async with running(loop.loop.run()):
        loop.want("bad 1", "bad 2", "bad 3")
        await asyncio.sleep(33.0)
        # Given one failing start in flight and others waiting
        before = [key for what, key in loop.driver.calls if what == "start"]
        loop.want("good")
        await until(loop.runs("good"), within=6.0)
        assert [key for what, key in loop.driver.calls if what == "start"] == [*before, "good"]


@pytest.mark.parametrize("error", [DriverError("no such image"), ZeroDivisionError("of the driver")])
async def test_an_engine_that_refuses_one_key_serves_the_others(error: Exception) -> None:
    loop = Loop()
    bad = [f"bad {number}" for number in range(10)]
    loop.driver.on = refuse(*(("start", key) for key in bad), error=error)
    async with running(loop.loop.run()):
        loop.want(*bad)
        await asyncio.sleep(20.0)
        loop.want("good")
        await until(loop.runs("good"), within=0.5)
        assert str(error) in (loop.state.groups.attempts["bad 0"].error or "")
        assert 3 < loop.driver.starts("bad 0") < 10


async def test_a_start_without_an_answer_is_given_up_and_tried_again() -> None:
    loop = Loop()
    loop.driver.on = lambda what, key: asyncio.sleep(1e6) if loop.driver.starts("42") == 1 and what == "start" else None
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"), within=group_loop._DRIVER_TIMEOUT_SECONDS + 2.0)
        assert loop.driver.starts("42") == 2


def unmoved(state: PoolState, *, held: bool = False) -> None:
    """Count messages that wait, or that workers have, and that are the same as before."""
    (state.counts.held_since if held else state.counts.ready_since).setdefault("42", state.clock())
    state.counts.counted_at = state.clock()
    state.counts.changes.add("42")


@pytest.mark.parametrize("held", [False, True], ids=["ready", "held"])
async def test_a_stuck_group_is_restarted_when_its_patience_is_over(held: bool) -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        loop.alive("42")
        while ("stop", "42") not in loop.driver.calls:
            await asyncio.sleep(5.0)
            unmoved(loop.state, held=held)
        assert PATIENCE <= now() < PATIENCE + 25.0
        await until(lambda: loop.driver.starts("42") == 2, within=5.0)


async def test_a_group_that_was_not_listed_since_its_start_is_listed_when_its_patience_is_over() -> None:
    loop = Loop(listing_interval=1e6)
    async with running(loop.loop.run()):
        loop.want("42")
        await until(lambda: loop.driver.starts("42") == 1)
        while ("stop", "42") not in loop.driver.calls:
            assert now() < PATIENCE + 20.0
            await asyncio.sleep(5.0)
            unmoved(loop.state)
        assert now() >= PATIENCE


async def test_a_group_that_takes_requests_is_not_stuck_however_many_wait() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        for _ in range(100):
            await asyncio.sleep(5.0)
            loop.state.activity["42"] = KeyActivity(last_event=now(), last_taken=now())
            unmoved(loop.state)
        assert ("stop", "42") not in loop.driver.calls


def counted(loop: Loop, consumers: int) -> None:
    """Count consumers, as the queue watcher does."""
    state = loop.state
    state.counts.totals["42"] = QueueTotals(ready=0, unacknowledged=0, consumers=consumers, bindings=1)
    state.counts.counted_at = now()
    state.counts.counted_since.setdefault("42", now())
    if consumers:
        state.counts.served_at["42"] = now()
    state.counts.changes.add("42")


async def counting(loop: Loop, consumers: int, *, seconds: float) -> None:
    for _ in range(int(seconds / 5.0)):
        counted(loop, consumers)
        await asyncio.sleep(5.0)


async def test_a_running_group_that_consumes_nothing_is_restarted_with_its_reason_and_back_off() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        loop.alive("42")
        await counting(loop, 1, seconds=200.0)
        assert ("stop", "42") not in loop.driver.calls
        # When its worker is lost, and its process stays
        await counting(loop, 0, seconds=LIMITS.start_grace)
        assert ("stop", "42") not in loop.driver.calls
        await counting(loop, 0, seconds=LATE + 20.0)
        # Then it is stopped and started again, and what was wrong is shown
        assert loop.driver.starts("42") == 2
        assert (loop.state.groups.attempts["42"].error or "").startswith("stuck: ")
        assert ("group-stopped", "42") in loop.lifecycle.events
        # And once it has worked for a while, nothing is wrong
        loop.alive("42")
        await counting(loop, 1, seconds=30.0)
        loop.alive("42")
        await until(lambda: loop.state.groups.attempts["42"].error is None, within=15.0)


async def test_a_group_that_never_consumes_is_restarted_with_growing_graces_so_slow_loads_succeed() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        starts: list[float] = []
        while len(starts) < 4:
            if loop.driver.starts("42") > len(starts):
                starts.append(now())
            counted(loop, 0)
            await asyncio.sleep(1.0)
        first, second, third = (after - before for before, after in itertools.pairwise(starts))
        assert LIMITS.start_grace < first < second < third
        assert second > 2 * LIMITS.start_grace
        assert third > PATIENCE


async def test_a_group_that_the_engine_says_is_still_starting_is_not_restarted() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        loop.driver.groups["42"] = replace(loop.driver.groups["42"], state=GroupState.STARTING)
        listings = loop.driver.listings
        await counting(loop, 0, seconds=300.0)
        assert ("stop", "42") not in loop.driver.calls
        # Nor is the engine asked each time
        assert loop.driver.listings < listings + 15


async def test_a_group_whose_worker_reports_that_it_lives_while_it_loads_is_not_restarted() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        for _ in range(30):
            await counting(loop, 0, seconds=20.0)
            loop.alive("42")
        assert ("stop", "42") not in loop.driver.calls


async def test_a_worker_that_said_that_it_stops_is_not_kept_by_what_it_still_reports() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        loop.alive("42")
        await counting(loop, 1, seconds=20.0)
        stopping = now()
        while ("stop", "42") not in loop.driver.calls:
            loop.state.activity["42"] = KeyActivity(last_event=now(), stopping_at=stopping)
            await counting(loop, 0, seconds=5.0)
        assert now() < stopping + LIMITS.start_grace + LATE + 11.0
        assert "said that it stops" in (loop.state.groups.attempts["42"].error or "")


async def test_a_group_is_not_restarted_while_nothing_counts_its_consumers() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        for _ in range(30):
            await counting(loop, 0, seconds=30.0)
            # Given a management API that is away again and again
            loop.state.counts.counted_since.clear()
        assert ("stop", "42") not in loop.driver.calls


async def test_a_changed_template_rolls_each_group_once() -> None:
    loop = Loop()
    loop.driver.groups["42"] = Group("42", GroupState.RUNNING, 1, "former")
    loop.want("42")
    async with running(loop.loop.run()):
        await until(lambda: loop.driver.starts("42") == 1, within=5.0)
        await asyncio.sleep(100.0)
        assert loop.driver.groups["42"].template == "current"
        assert loop.driver.calls.count(("stop", "42")) == loop.driver.starts("42") == 1


class Exchange(Loop):
    """A pool whose groups all have a former template."""

    def __init__(self, *keys: str) -> None:
        super().__init__()
        for key in keys:
            self.driver.groups[key] = Group(key, GroupState.RUNNING, 1, "former")
        self.want(*keys)

    def out(self) -> list[str]:
        """The keys that nothing serves: their group stops, or is gone."""
        groups = self.driver.groups
        return [key for key in self.state.groups if key not in groups or groups[key].state is GroupState.STOPPING]

    def new(self) -> list[str]:
        """The keys whose group has the new template."""
        return [key for key, group in self.driver.groups.items() if group.template == "current"]


async def test_a_changed_template_reaches_a_few_groups_at_a_time_and_others_go_on() -> None:
    loop = Exchange("a", "b", "c", "d", "e")

    def exchanged(count: int) -> bool:
        return len(loop.new()) == count

    async with running(loop.loop.run()):
        for served in ((), ("a", "b"), ("a", "b", "c", "d")):
            # Workers that were exchanged show no life yet: no other one is stopped
            await until(partial(exchanged, min(len(served) + 2, 5)))
            began = now()
            await asyncio.sleep(1.0)
            assert sorted(loop.driver.groups) == ["a", "b", "c", "d", "e"]
            assert loop.state.groups.outdated == 5 - len(loop.new())
            for key in loop.new():
                loop.alive(key)
            assert now() < began + LIMITS.start_hold
        assert [loop.driver.calls.count(("stop", key)) for key in "abcde"] == [1] * 5


async def test_a_key_without_workers_starts_before_others_are_exchanged() -> None:
    loop = Exchange("a", "b", "c")
    async with running(loop.loop.run()):
        await until(lambda: len(loop.new()) == 2)
        loop.want("called")
        await asyncio.sleep(1.0)
        loop.alive("a")
        await until(loop.runs("called"), within=0.1)
        assert ("stop", "c") not in loop.driver.calls
        loop.alive("b")
        await until(lambda: ("stop", "c") in loop.driver.calls, within=0.1)


@pytest.mark.parametrize("hangs", ["stop", "start", "nothing"])
async def test_exchanges_that_hang_or_show_no_life_hold_up_others_for_a_bounded_time(hangs: str) -> None:
    loop = Exchange("a", "b", "c")
    loop.driver.on = lambda what, key: asyncio.sleep(50.0) if what == hangs and key in ("a", "b") else None
    async with running(loop.loop.run()):
        await until(lambda: ("stop", "c") in loop.driver.calls)
        assert LIMITS.start_hold - 0.2 < now() < LIMITS.start_hold + 2.0


async def test_a_template_whose_workers_fail_at_once_does_not_reach_all_keys_at_once() -> None:
    loop = Exchange("a", "b", "c", "d")
    loop.driver.on = refuse(("start", "a"), ("start", "b"), error=DriverError("the image is missing"))
    async with running(loop.loop.run()):
        await asyncio.sleep(LIMITS.start_hold - 1.0)
        assert {key for what, key in loop.driver.calls if what == "stop"} == {"a", "b"}


async def test_an_exchange_that_the_engine_refuses_is_tried_again() -> None:
    loop = Exchange("a")
    loop.driver.on = refuse(("stop", "a"), error=DriverError("the engine is away"))
    async with running(loop.loop.run()):
        await until(lambda: loop.driver.calls.count(("stop", "a")) == 2)
        loop.driver.on = lambda what, key: None
        await until(lambda: loop.new() == ["a"])


async def test_a_listing_older_than_a_start_does_not_take_the_group_away() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        await asyncio.sleep(1.0)
        # Given a slow listing that was read before the start
        loop.driver.on = lambda what, key: asyncio.sleep(5.0) if what == "list" else None
        listings = loop.driver.listings
        loop.driver.news.put_nowait(Change("other"))
        await until(lambda: loop.driver.listings > listings)
        loop.want("42")
        await until(loop.runs("42"))
        await asyncio.sleep(6.0)
        assert "42" in loop.state.groups
        assert loop.driver.starts("42") == 1


async def test_a_group_that_vanishes_without_a_change_is_found_by_the_periodic_listing() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        del loop.driver.groups["42"]
        await until(lambda: loop.driver.starts("42") == 2, within=LISTING_INTERVAL + 1.0)


async def test_a_group_that_ends_before_its_start_is_answered_comes_back_without_a_listing() -> None:
    loop = Loop()

    async def slow(key: str) -> None:
        # The engine reports the end of the group before it answers the start
        loop.driver.news.put_nowait(Change(key, "exit 1"))
        await asyncio.sleep(1.0)
        loop.driver.calls.append(("answered", key))
        asyncio.get_running_loop().call_soon(loop.driver.groups.pop, key, None)

    loop.driver.on = lambda what, key: slow(key) if what == "start" and loop.driver.starts(key) == 1 else None
    async with running(loop.loop.run()):
        loop.want("42")
        await until(lambda: loop.driver.starts("42") == 2, within=5.0)


async def test_an_engine_that_cannot_be_listed_is_asked_again() -> None:
    loop = Loop()
    loop.driver.on = refuse(("list", ""), error=DriverError("away"))
    loop.want("42")
    async with running(loop.loop.run()):
        await asyncio.sleep(10.0)
        assert not loop.driver.groups
        loop.driver.on = lambda what, key: None
        await until(loop.runs("42"), within=31.0)


async def test_an_engine_that_reports_no_changes_is_logged_once_a_minute_at_most(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, away = Loop(), asyncio.Event()
    away.set()

    async def changes() -> AsyncIterator[Change]:
        while not away.is_set():
            yield await loop.driver.news.get()
            await asyncio.sleep(0.1)
        raise DriverError("away")

    monkeypatch.setattr(loop.driver, "changes", changes)

    def said() -> int:
        return sum("the engine's changes cannot be used" in record.message for record in caplog.records)

    async with running(loop.loop.run()):
        await asyncio.sleep(300.0)
        # It can be listed meanwhile, which does not end the outage of its changes
        assert said() == 1
        assert not any("can be used again" in record.message for record in caplog.records)
        away.clear()
        await asyncio.sleep(60.0)
        loop.want("42")
        await until(loop.runs("42"), within=5.0)
        before = said()
        away.set()
        loop.driver.news.put_nowait(Change("42"))
        await asyncio.sleep(300.0)
        assert said() > before


async def test_a_loop_that_ends_while_the_engine_is_away_leaves_no_reader_behind() -> None:
    loop = Loop()
    loop.driver.on = refuse(("list", ""), error=DriverError("away"))
    async with running(loop.loop.run()):
        await asyncio.sleep(1.0)
    state = loop.state
    for changes in (state.tracker.changes, state.queues.changes, state.activity.changes, state.counts.changes):
        assert not changes.readers


async def test_a_key_no_longer_wanted_while_it_waits_for_its_start_is_not_started() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("a", "b", "c")
        await asyncio.sleep(1.0)
        loop.forget("c", Phase.GONE)
        await asyncio.sleep(30.0)
        assert loop.driver.starts("c") == 0


async def test_a_group_is_not_stuck_for_a_time_in_which_its_queue_was_not_counted() -> None:
    loop = Loop()
    async with running(loop.loop.run()):
        loop.want("42")
        await until(loop.runs("42"))
        loop.alive("42")
        unmoved(loop.state)
        # As after the daemon stood still: what the group took meanwhile is not known yet.
        await asyncio.sleep(10 * PATIENCE)
        loop.state.activity.changes.add("42")
        await asyncio.sleep(1.0)
        assert ("stop", "42") not in loop.driver.calls
        unmoved(loop.state)
        await until(lambda: ("stop", "42") in loop.driver.calls, within=1.0)
