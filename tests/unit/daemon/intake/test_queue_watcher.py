"""The queue watcher, and what a session takes over from the one before."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from osrdyne.base.changes import ChangeReader
from osrdyne.broker.management_api import RequestQueue
from osrdyne.errors import ManagementError
from osrdyne.intake.queue_watcher import QueueWatcher
from osrdyne.session import DaemonSession
from osrdyne.state.pool import PoolState
from osrdyne.state.tracker import Status
from osrdyne.state.values import Phase, QueueTotals
from osrdyne_pool.broker.lost import Evidence
from osrdyne_protocol.names import PoolNames
from tests.unit.stand_ins import BrokerQueue, StandInBroker, StandInManagement, follower, refuse, running, state_of

pytestmark = pytest.mark.looptime


def alarm_of(state: PoolState) -> object:
    return state.counts.alarm


def uncounted_of(state: PoolState) -> object:
    return state.counts.uncounted


def watcher(state: Any, management: Any, blocked: str | None = None) -> QueueWatcher:
    return QueueWatcher(state, management, lambda: blocked, interval=5.0, lateness=7.5)


async def test_ready_messages_are_noted_with_the_time_since_when_there_are_some() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(ready=3), "7": BrokerQueue()}), state_of()
    management = StandInManagement(broker)
    async with running(watcher(state, management).run()):
        await asyncio.sleep(12.0)
        assert state.counts.ready_since == {"42": pytest.approx(0.0, abs=0.1)}
        assert state.counts.totals["42"] == QueueTotals(ready=3, unacknowledged=0, consumers=0, bindings=0)
        broker.queues["42"].ready = 0
        await asyncio.sleep(5.0)
        assert state.counts.ready_since == {}
        del broker.queues["42"]
        await asyncio.sleep(5.0)
        assert "42" not in state.counts.totals


async def test_requests_that_workers_have_are_noted_with_the_time_since_when_they_have_them() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(unacknowledged=1, delivered=8, consumers=1)}), state_of()
    with ChangeReader().following(state.counts.changes) as changed:
        async with running(watcher(state, StandInManagement(broker)).run()):
            await asyncio.sleep(12.0)
            assert state.counts.held_since == {"42": pytest.approx(0.0, abs=0.1)}
        assert await changed.take(0.0) == ["42"]
    async with running(watcher(state, StandInManagement(broker)).run()):
        await asyncio.sleep(7.0)
        # Another request, and one fewer, begin the time again
        for change in ({"delivered": 9}, {"unacknowledged": 3, "delivered": 11}, {"unacknowledged": 2}):
            since = state.counts.held_since["42"]
            vars(broker.queues["42"]).update(change)
            await asyncio.sleep(5.0)
            assert state.counts.held_since["42"] > since
        broker.queues["42"].unacknowledged = 0
        await asyncio.sleep(5.0)
        assert state.counts.held_since == {}


async def test_without_a_count_of_deliveries_nothing_shows_that_workers_have_the_same_requests() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(unacknowledged=1)}), state_of()
    async with running(watcher(state, StandInManagement(broker)).run()):
        await asyncio.sleep(7.0)
        since = state.counts.held_since["42"]
        await asyncio.sleep(5.0)
        assert state.counts.held_since["42"] > since


async def test_the_daemon_that_takes_requests_back_is_not_counted_as_a_worker() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(consumers=1)}), state_of()
    async with running(watcher(state, StandInManagement(broker)).run()):
        state.queues.consumed_until["42"] = math.inf
        await asyncio.sleep(6.0)
        assert (state.counts.totals["42"].consumers, state.counts.served_at) == (0, {})
        # And for as long as the broker's counts are late
        state.queues.consumed_until["42"] = state.clock()
        await asyncio.sleep(5.0)
        assert (state.counts.totals["42"].consumers, state.counts.served_at) == (0, {})
        await asyncio.sleep(5.0)
        assert state.counts.totals["42"].consumers == 1
        assert "42" in state.counts.served_at


async def test_while_nothing_can_be_seen_nothing_counts_as_waiting() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(ready=3)}), state_of()
    management = StandInManagement(broker)
    async with running(watcher(state, management).run()):
        await asyncio.sleep(12.0)
        broker.on = refuse(("list", ""), error=ManagementError("away"))
        await asyncio.sleep(5.0)
        assert state.counts.ready_since == {}
        broker.on = lambda what, key: None
        await asyncio.sleep(5.0)
        assert state.counts.ready_since == {"42": pytest.approx(20.0, abs=0.2)}


async def test_why_nothing_can_be_seen_is_noted_until_it_can() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(ready=3)}), state_of()
    async with running(watcher(state, StandInManagement(broker)).run()):
        await asyncio.sleep(6.0)
        assert uncounted_of(state) is None
        broker.on = refuse(("list", ""), error=ManagementError("away"))
        await asyncio.sleep(5.0)
        assert uncounted_of(state) == "away"
        broker.on = lambda what, key: None
        await asyncio.sleep(5.0)
        assert uncounted_of(state) is None


async def test_an_outage_of_the_management_api_ends_although_a_session_ended_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, state = StandInBroker(), state_of()
    management = StandInManagement(broker)
    for answers in (False, True):
        broker.on = (lambda what, key: None) if answers else refuse(("list", ""), error=ManagementError("away"))
        async with running(watcher(state, management).run()):
            await asyncio.sleep(5.0)
    assert [record.message for record in caplog.records] == [
        "the management API cannot be used; trying again",
        "the management API can be used again",
    ]


async def test_the_time_of_the_last_consumer_is_noted_and_groups_without_a_consumer_are_looked_at() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(consumers=1), "7": BrokerQueue()}), state_of()
    management = StandInManagement(broker)
    changed = follower(state.counts.changes)
    async with running(watcher(state, management).run()):
        await asyncio.sleep(12.0)
        assert state.counts.served_at == {"42": pytest.approx(10.0, abs=0.2)}
        assert set(await changed.take(None)) == {"7"}
        broker.queues["42"].consumers = 0
        await asyncio.sleep(10.0)
        assert state.counts.served_at == {"42": pytest.approx(10.0, abs=0.2)}
        assert set(await changed.take(None)) == {"7", "42"}
        assert state.counts.counted_since == {"42": pytest.approx(0.0, abs=0.1), "7": pytest.approx(0.0, abs=0.1)}
        # While nothing can be seen, nothing counts as unserved
        broker.on = refuse(("list", ""), error=ManagementError("away"))
        await asyncio.sleep(5.0)
        assert state.counts.counted_since == {}
        broker.on = lambda what, key: None
        await asyncio.sleep(5.0)
        assert state.counts.counted_since["42"] == pytest.approx(30.0, abs=0.3)
        del broker.queues["42"]
        await asyncio.sleep(5.0)
        assert state.counts.served_at == {}
        # A queue that is made again is a new one
        broker.queues["42"] = BrokerQueue()
        await asyncio.sleep(5.0)
        assert state.counts.counted_since["42"] == pytest.approx(40.0, abs=0.3)
        assert state.counts.counted_since["7"] == pytest.approx(30.0, abs=0.3)


async def test_the_time_of_counts_is_when_they_were_asked_for_and_stays_with_them() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(ready=3)}), state_of()
    management = StandInManagement(broker)
    async with running(watcher(state, management).run()):
        assert state.counts.counted_at is None
        await asyncio.sleep(1.0)
        assert state.counts.counted_at == pytest.approx(0.0)
        await asyncio.sleep(5.0)
        assert state.counts.counted_at == pytest.approx(5.0, abs=0.2)
        asked = state.counts.counted_at
        broker.on = refuse(("list", ""), error=ManagementError("away"))
        await asyncio.sleep(10.0)
        assert (state.counts.counted_at, state.counts.totals["42"].ready) == (asked, 3)
    # Between two sessions the counts are shown on; the next one has its own
    assert state.counts.counted_at == asked
    async with running(watcher(state, management).run()):
        await asyncio.sleep(0)
        assert state.counts.counted_at is None


async def test_the_pools_own_queues_are_counted_and_forgotten_when_they_cannot_be_seen() -> None:
    broker, state = StandInBroker(), state_of()
    management = StandInManagement(broker, static={"core-orphan": 3})
    async with running(watcher(state, management).run()):
        assert state.counts.depths == {}
        await asyncio.sleep(6.0)
        assert state.counts.depths == {"core-orphan": 3}
        broker.on = refuse(("list", ""), error=ManagementError("away"))
        await asyncio.sleep(5.0)
        assert state.counts.depths == {}
        broker.on = lambda what, key: None
        await asyncio.sleep(5.0)
        assert state.counts.depths == {"core-orphan": 3}
    assert state.counts.depths == {}


async def test_other_consumers_are_named_once_they_are_there_for_longer_than_counts_are_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state, management = state_of(), StandInManagement(StandInBroker())
    ours, old = {"10.0.0.1:1 -> broker": "daemon"}, {"10.0.0.1:2 -> broker": "daemon"}
    other = {"10.0.0.9:1 -> broker": "admin"}
    async with running(watcher(state, management).run()):
        # Given an old connection of the daemon's, which the broker still shows for a moment
        management.consumed_by = {"core-orphan": ours | old}
        await asyncio.sleep(6.0)
        management.consumed_by = {"core-orphan": ours}
        await asyncio.sleep(10.0)
        assert caplog.text == ""
        # When another program consumes the dead letters
        management.consumed_by = {"core-orphan": ours, "core-dl": ours | other}
        await asyncio.sleep(20.0)
        assert list(state.counts.listeners) == ["core-dl"]
        assert "admin from 10.0.0.9:1" in state.counts.listeners["core-dl"]
        management.consumed_by = {}
        await asyncio.sleep(6.0)
        assert state.counts.listeners == {}
    assert [record.message for record in caplog.records] == [
        "a queue of the daemon has other consumers",
        "a queue of the daemon has no other consumers any more",
    ]


async def test_an_alarm_is_reported_in_one_line_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state, management = (
        state_of(),
        StandInManagement(StandInBroker({"42": BrokerQueue(ready=1, unacknowledged=1, delivered=1)})),
    )
    async with running(watcher(state, management).run()):
        await asyncio.sleep(11.0)
        assert "42" in state.counts.held_since
        management.alarmed = "memory"
        await asyncio.sleep(20.0)
        assert alarm_of(state) == "memory"
        # A worker whose reply is held back is not stuck
        assert (state.counts.ready_since, state.counts.held_since) == ({}, {})
        management.alarmed = None
        await asyncio.sleep(20.0)
        assert alarm_of(state) is None
        assert "42" in state.counts.ready_since
    assert [record.message for record in caplog.records] == [
        "broker alarm: it takes no publishes, and all wait",
        "broker alarm is over",
    ]


async def test_an_alarm_that_the_connection_reports_needs_no_management_api() -> None:
    broker, state = StandInBroker(), state_of()
    broker.on = refuse(("list", ""), error=ManagementError("away"))
    async with running(watcher(state, StandInManagement(broker), "low on memory").run()):
        await asyncio.sleep(6.0)
        assert state.counts.alarm == "low on memory"
    assert state.counts.alarm is None


async def test_a_foreign_queue_does_not_count_for_a_key_of_the_pool() -> None:
    class Management(StandInManagement):
        async def request_queues(self, names: PoolNames) -> list[RequestQueue]:
            foreign = RequestQueue("core-req-other", None, QueueTotals(9, 9, 9, 0))
            return [RequestQueue("core-req-42", "42", QueueTotals(0, 0, 1, 0)), foreign]

    state = state_of()
    async with running(watcher(state, Management(StandInBroker())).run()):
        await asyncio.sleep(6.0)
        assert state.counts.totals == {"42": QueueTotals(0, 0, 1, 0)}
        assert state.counts.ready_since == {}


async def adopt(state: PoolState, management: StandInManagement) -> None:
    nothing: Any = None
    await DaemonSession(nothing, state, nothing, nothing, management, nothing, nothing)._adopt()


async def test_a_new_session_forgets_no_key_and_stops_none_for_the_time_of_an_outage() -> None:
    # Given a key that was active when the broker went away, for longer than both delays
    broker, state = StandInBroker({"42": BrokerQueue(bound=True), "new": BrokerQueue()}), state_of()
    state.require("42")
    await asyncio.sleep(1000.0)
    # When a session begins
    await adopt(state, StandInManagement(broker))
    # Then both keys live for a whole delay from now
    assert state.tracker.advance(state.clock() + 99.0) == []
    assert sorted(state.tracker.wanted) == ["42", "new"]
    assert state.queues.phase("42") is Phase.UNKNOWN


async def test_a_key_that_another_daemon_ended_meanwhile_is_not_taken_up_again() -> None:
    state = state_of()
    state.require("old")
    await asyncio.sleep(1000.0)
    await adopt(state, StandInManagement(StandInBroker()))
    assert not state.tracker.wanted


async def test_a_queue_in_the_pools_namespace_that_is_not_ours_is_left_alone() -> None:
    class Management(StandInManagement):
        async def request_queues(self, names: PoolNames) -> list[RequestQueue]:
            return [
                RequestQueue("core-req-foreign", None, None),
                RequestQueue("core-req-7", "7", None),
            ]

    state = state_of()
    await adopt(state, Management(StandInBroker()))
    assert list(state.tracker.wanted) == ["7"]
    assert list(state.queues) == ["7"]


async def test_counts_from_before_an_outage_no_longer_count_but_show_what_the_broker_lost() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(ready=3)}), state_of()
    async with running(watcher(state, StandInManagement(broker)).run()):
        await asyncio.sleep(1.0)
        assert (state.counts.totals["42"].ready, "42" in state.counts.ready_since) == (3, True)
    # Given a management API that cannot be asked after the outage
    broker.on = refuse(("list", ""), error=ManagementError("away"))
    for _ in range(2):  # the second session after it has seen nothing either
        async with running(watcher(state, StandInManagement(broker)).run()):
            await asyncio.sleep(1.0)
            assert (state.counts.totals, state.counts.ready_since) == ({}, {})
            assert state.lost.former_totals["42"].ready == 3


async def test_a_queue_that_looks_lost_is_proven_by_two_looks_and_forgotten_when_it_answers() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(), "7": BrokerQueue()}), state_of()
    management = StandInManagement(broker)
    broker.queues["42"].lost = True
    changes = follower(state.lost.changes)
    async with running(watcher(state, management).run()):
        assert await changes.take(1.0) == ["42"]
        assert state.lost.evidence.suspects == {"42"}
        assert state.lost.evidence.lost == set()
        await asyncio.sleep(5.1)
        assert state.lost.evidence.lost == {"42"}
        broker.queues["42"].lost = False
        await asyncio.sleep(6.0)
        assert state.lost.evidence.suspects == set()
        assert await changes.take(1.0) == ["42"]
    # A queue that shows how many messages it holds is not asked about.
    assert "members" not in broker.steps("7")


async def test_a_queue_without_counts_that_has_or_had_a_leader_is_not_lost() -> None:
    class Management(StandInManagement):
        async def request_queues(self, names: PoolNames) -> list[RequestQueue]:
            return [RequestQueue("core-req-42", "42", None)]

    broker, state = StandInBroker({"42": BrokerQueue()}), state_of()
    async with running(watcher(state, Management(broker)).run()):
        await asyncio.sleep(30.0)
        assert state.lost.evidence.suspects == set()
    assert "members" in broker.steps("42")


async def test_a_queue_that_did_not_confirm_a_forward_is_asked_about_once() -> None:
    broker, state = StandInBroker({"42": BrokerQueue()}), state_of()
    state.lost.unconfirmed.update({"42", "without a queue"})
    management = StandInManagement(broker)
    async with running(watcher(state, management).run()):
        await asyncio.sleep(30.0)
    assert broker.steps("42") == ["members"]


async def test_a_queue_that_cannot_be_asked_is_as_lost_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    broker, state = StandInBroker({"42": BrokerQueue(lost=True), "7": BrokerQueue(lost=True)}), state_of()
    management = StandInManagement(broker)
    broker.on = refuse(("members", "42"), error=ManagementError("the broker starts it"))
    async with running(watcher(state, management).run()):
        await asyncio.sleep(6.0)
        assert state.lost.evidence.lost == {"7"}
        broker.on = refuse(("members", "7"), error=ManagementError("away"))
        await asyncio.sleep(5.0)
        assert state.lost.evidence.suspects == {"42", "7"}
        assert state.lost.evidence.lost == {"7"}
    assert caplog.records == []


async def test_what_the_queue_loop_took_during_a_look_is_not_lost_for_what_was_seen_before() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(lost=True)}), state_of()
    management = StandInManagement(broker)

    def taken(what: str, key: str) -> None:
        if what == "members" and state.clock() > 4.0:
            state.lost.evidence = Evidence()

    broker.on = taken
    async with running(watcher(state, management).run()):
        await asyncio.sleep(6.0)
        assert state.lost.evidence.lost == set()


async def test_an_api_that_hangs_over_lost_queues_does_not_keep_the_rest_from_being_seen() -> None:
    class Management(StandInManagement):
        async def members(self, queue: str) -> Any:
            await asyncio.sleep(10.0)
            raise ManagementError("timed out")

    queues = {f"silent-{number}": BrokerQueue(lost=True) for number in range(100)}
    broker, state = StandInBroker({**queues, "42": BrokerQueue(ready=1)}), state_of()
    async with running(watcher(state, Management(broker)).run()):
        await asyncio.sleep(12.0)
        assert state.counts.totals.keys() == {"42"}


def active(state: Any, key: str) -> float:
    """Return until when a key is active."""
    wanted = state.tracker.wanted[key]
    assert wanted.status is Status.ACTIVE
    return float(wanted.until)


async def test_a_key_whose_queue_delivers_is_renewed_where_no_event_says_so() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(), "7": BrokerQueue()}), state_of()
    management = StandInManagement(broker)
    state.require("42")
    state.require("7")
    before = active(state, "42")
    async with running(watcher(state, management).run()):
        for _ in range(12):
            await asyncio.sleep(5.0)
            broker.queues["42"].delivered += 1
        assert before + 30.0 < active(state, "42") < before + 60.0
        assert active(state, "7") == before


async def test_a_key_with_a_request_in_hand_is_renewed_where_no_event_says_so() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(unacknowledged=1)}), state_of()
    management = StandInManagement(broker)
    state.require("42")
    before = active(state, "42")
    async with running(watcher(state, management).run()):
        await asyncio.sleep(61.0)
        assert before + 45.0 < active(state, "42") < before + 61.0


async def test_where_events_arrive_counts_renew_no_key_for_longer() -> None:
    broker, state = StandInBroker({"42": BrokerQueue()}), state_of()
    management = StandInManagement(broker)
    state.require("42")
    before = active(state, "42")
    async with running(watcher(state, management).run()):
        for _ in range(6):
            await asyncio.sleep(5.0)
            broker.queues["42"].delivered += 1
            state.require("42")
            before = active(state, "42")
        await asyncio.sleep(30.0)
        assert active(state, "42") == before


async def test_counts_do_not_wake_a_key_that_is_on_its_way_out() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(unacknowledged=1), "7": BrokerQueue()}), state_of()
    management = StandInManagement(broker)
    state.require("42")
    state.tracker.advance(state.clock() + 1e6)
    assert "42" not in state.tracker.wanted
    async with running(watcher(state, management).run()):
        await asyncio.sleep(30.0)
        assert "42" not in state.tracker.wanted


async def test_a_queue_that_delivers_is_not_stuck_although_some_of_its_messages_wait() -> None:
    broker, state = StandInBroker({"42": BrokerQueue(ready=3), "7": BrokerQueue(ready=3)}), state_of()
    management = StandInManagement(broker)
    async with running(watcher(state, management).run()):
        for _ in range(6):
            await asyncio.sleep(5.0)
            broker.queues["42"].delivered += 1
        assert state.counts.ready_since == {"42": pytest.approx(30.0, abs=5.1), "7": pytest.approx(0.0, abs=0.1)}
