"""What `/status` shows of the shared state."""

from __future__ import annotations

import json
from typing import Any

import pytest

from osrdyne.drivers.base import Group, GroupState, How, WorkerEnd
from osrdyne.state.pool import PoolState
from osrdyne.state.values import Attempt, KeyActivity, Phase, QueueState, QueueTotals
from osrdyne.state.worker_ends import EndFact
from osrdyne.status import view as status_view
from osrdyne_pool.broker.lost import Evidence
from osrdyne_pool.settings import PoolSettings

BOUND = QueueState(Phase.BOUND, asserted=1)
#: How late counts may be, in seconds.
LATE = 7.5


@pytest.fixture
def state() -> PoolState:
    return PoolState.of(PoolSettings("core", unbind_delay=10.0, stop_delay=5.0), lambda: 100.0)


def view(state: PoolState, *, owns_workers: bool = True) -> dict[str, Any]:
    (only,) = status_view.keys_view(state, owns_workers=owns_workers, late=LATE, now=104.0)
    return only


def running(state: PoolState, of: GroupState = GroupState.RUNNING) -> None:
    state.groups["42"] = Group("42", of, 2, "")


def counted(state: PoolState, *, consumers: int, at: float) -> None:
    state.counts.totals["42"] = QueueTotals(ready=0, unacknowledged=0, consumers=consumers, bindings=0)
    state.counts.counted_at = at
    if consumers:
        state.counts.served_at["42"] = at


def test_a_key_with_everything_is_ready_and_shows_its_numbers(state: PoolState) -> None:
    state.require("42")
    state.queues["42"] = BOUND
    state.counts.totals["42"] = QueueTotals(ready=3, unacknowledged=1, consumers=2, bindings=0)
    state.activity["42"] = KeyActivity(last_event=99.0, consuming_at=99.0)
    running(state)
    assert view(state) == {
        "key": "42",
        "state": "ready",
        "ready": 3,
        "unacknowledged": 1,
        "consumers": 2,
        "workers": 2,
        "last_error": None,
        "unbinds_in": 6.0,
        "stops_in": None,
        "queue_remade_ago": None,
    }


def test_a_key_whose_queue_the_broker_lost_says_so_and_says_later_that_it_was_made_again(state: PoolState) -> None:
    state.require("42")
    state.queues["42"] = BOUND
    state.activity["42"] = KeyActivity(last_event=99.0, consuming_at=99.0)
    running(state)
    state.lost.evidence = Evidence.known(["42"], 99.0)
    assert view(state)["state"] == "failed"
    assert "lost" in str(view(state)["last_error"])
    state.lost.evidence = Evidence()
    state.lost.remade["42"] = 94.0
    assert (view(state)["state"], view(state)["last_error"], view(state)["queue_remade_ago"]) == ("ready", None, 10.0)


def test_a_key_without_a_sign_of_life_is_starting(state: PoolState) -> None:
    state.require("42")
    assert view(state)["state"] == "starting"
    state.queues["42"] = BOUND
    running(state)
    assert view(state)["state"] == "starting"


def test_a_group_that_was_started_again_is_starting_until_it_reports(state: PoolState) -> None:
    state.require("42")
    state.queues["42"] = BOUND
    running(state)
    state.activity["42"] = KeyActivity(last_event=50.0, consuming_at=50.0)
    state.groups.attempts["42"] = Attempt(started_at=60.0)
    assert view(state)["state"] == "starting"
    state.activity["42"] = KeyActivity(last_event=61.0, consuming_at=61.0)
    assert view(state)["state"] == "ready"


def test_a_group_taken_over_from_a_former_daemon_is_ready_when_it_consumes(state: PoolState) -> None:
    state.require("42")
    state.queues["42"] = BOUND
    running(state)
    counted(state, consumers=1, at=90.0)
    assert view(state)["state"] == "ready"


@pytest.mark.parametrize("owns_workers", [True, False])
def test_a_key_is_never_ready_without_a_consumer(state: PoolState, owns_workers: bool) -> None:
    def shown() -> object:
        return view(state, owns_workers=owns_workers)["state"]

    state.require("42")
    state.queues["42"] = BOUND
    if owns_workers:
        running(state)
    # Counts that show none are believed over an event that is older than what they are about, and not before
    state.activity["42"] = KeyActivity(last_event=50.0, consuming_at=50.0)
    counted(state, consumers=0, at=57.0)
    assert shown() == "ready"
    counted(state, consumers=0, at=58.0)
    assert shown() == "unserved"
    # What it reports of its last requests is not a sign of a consumer; the event of the next one is
    state.activity["42"].last_event = 60.0
    assert shown() == "unserved"
    state.activity["42"].consuming_at = 61.0
    assert shown() == "ready"
    # And a worker that says that it stops is believed at once
    state.activity["42"].stopping_at = 62.0
    counted(state, consumers=1, at=62.0)
    assert shown() == "unserved"
    # Unless counts show that another one of the group goes on
    counted(state, consumers=1, at=70.0)
    assert shown() == "ready"


def test_a_worker_that_reports_nothing_is_ready_when_counts_newer_than_its_start_show_it(state: PoolState) -> None:
    state.require("42")
    state.queues["42"] = BOUND
    running(state)
    state.groups.attempts["42"] = Attempt(started_at=60.0)
    counted(state, consumers=1, at=65.0)
    assert view(state)["state"] == "starting"
    counted(state, consumers=1, at=70.0)
    assert view(state)["state"] == "ready"
    counted(state, consumers=0, at=75.0)
    assert view(state)["state"] == "unserved"


def test_a_group_whose_engine_starts_it_again_is_starting(state: PoolState) -> None:
    state.require("42")
    state.queues["42"] = BOUND
    running(state, GroupState.STARTING)
    state.activity["42"] = KeyActivity(last_event=50.0, consuming_at=50.0)
    counted(state, consumers=0, at=75.0)
    assert view(state)["state"] == "starting"


def test_an_unbound_key_is_idle_and_shows_when_it_stops(state: PoolState) -> None:
    state.require("42")
    state.tracker.advance(110.0)
    state.queues["42"] = QueueState(Phase.UNBOUND)
    found = status_view.keys_view(state, owns_workers=True, late=LATE, now=112.0)[0]
    assert (found["state"], found["unbinds_in"], found["stops_in"]) == ("idle", None, 3.0)


def test_what_is_no_longer_wanted_is_draining_then_stopping(state: PoolState) -> None:
    state.queues["42"] = QueueState(Phase.DRAINED)
    running(state)
    assert view(state)["state"] == "draining"
    running(state, GroupState.STOPPING)
    assert view(state)["state"] == "stopping"


def test_a_failure_of_queue_or_group_is_shown_with_its_reason(state: PoolState) -> None:
    state.require("42")
    state.queues["42"] = BOUND
    state.groups.attempts["42"] = Attempt(failures=2, error="no such image")
    assert (view(state)["state"], view(state)["last_error"]) == ("failed", "no such image")
    state.queues["42"] = QueueState(Phase.UNKNOWN, error="no permission")
    assert (view(state)["state"], view(state)["last_error"]) == ("failed", "no permission")


def test_a_driver_without_workers_shows_no_number_and_needs_no_group(state: PoolState) -> None:
    state.require("42")
    state.queues["42"] = BOUND
    state.activity["42"] = KeyActivity(last_event=99.0, consuming_at=99.0)
    found = view(state, owns_workers=False)
    assert (found["workers"], found["state"]) == (None, "ready")


def test_keys_of_target_queues_and_groups_are_shown_once_and_in_order(state: PoolState) -> None:
    state.require("b")
    state.queues["a"] = BOUND
    state.queues["b"] = BOUND
    state.groups["c"] = Group("c", GroupState.RUNNING, 1, "")
    assert [entry["key"] for entry in status_view.keys_view(state, owns_workers=True, late=LATE, now=0.0)] == [
        "a",
        "b",
        "c",
    ]


def test_the_document_is_json_with_any_key(state: PoolState) -> None:
    for key in ("", "é", "a\nb", '"'):
        state.require(key)
    document = status_view.document(
        state,
        instance="dev",
        phase="leading",
        detail=None,
        driver="noop",
        daemon_id="d",
        owns_workers=False,
        late=7.5,
    )
    assert json.loads(json.dumps(document)) == document
    assert (document["pool"], document["state"], document["driver"]) == ("core", "leading", "noop")
    assert "owns_workers" not in document


def test_keys_are_counted_by_state_also_where_there_are_none(state: PoolState) -> None:
    state.require("a")
    state.require("b")
    state.queues["b"] = QueueState(Phase.UNKNOWN, error="no")
    shown = status_view.document(state, instance="i", phase="leading", detail=None, owns_workers=True, late=7.5)
    counted = status_view.keys_by_state(shown)
    assert counted == dict.fromkeys(status_view.STATES, 0) | {"starting": 1, "failed": 1}


def test_the_pools_own_queues_and_the_brokers_alarm_are_shown_and_what_is_not_known_is_null(state: PoolState) -> None:
    def shown() -> dict[str, object]:
        return status_view.document(state, instance="i", phase="leading", detail=None, owns_workers=True, late=7.5)

    unknown = dict.fromkeys(("core-orphan", "core-dl", "core-poison", "core-unanswered", "core-waiting", "core-parked"))
    assert (shown()["alarm"], shown()["queues"], shown()["warnings"]) == (None, unknown, [])
    state.counts.alarm, state.counts.depths = "memory", {"core-orphan": 3, "core-poison": 0, "core-parked": 0}
    assert (shown()["alarm"], shown()["queues"]) == ("memory", unknown | state.counts.depths)
    assert shown()["warnings"] == []


def test_what_is_parked_is_warned_of(state: PoolState) -> None:
    state.counts.depths = {"core-parked": 2}
    (warning,) = status_view.document(state, instance="i", phase="leading", detail=None, owns_workers=True, late=7.5)[
        "warnings"
    ]
    assert warning.startswith("core-parked holds 2 message(s)")


def test_what_waits_for_room_and_what_was_dropped_is_warned_of(state: PoolState) -> None:
    state.counts.depths, state.tally.dropped = {"core-waiting": 3}, 7
    shown = status_view.document(state, instance="i", phase="leading", detail=None, owns_workers=True, late=7.5)
    waiting, dropped = shown["warnings"]
    assert waiting == "core-waiting holds 3 request(s) for which core-poison has no room"
    assert dropped.startswith("7 request(s) without a caller were dropped from core-unanswered")
    assert shown["dropped"] == 7


def test_other_consumers_are_warned_of_and_listed(state: PoolState) -> None:
    state.counts.depths, state.counts.listeners = {"core-parked": 1}, {"core-orphan": "is consumed by 2 connections"}
    shown = status_view.document(state, instance="i", phase="leading", detail=None, owns_workers=True, late=7.5)
    assert shown["warnings"][1:] == ["core-orphan is consumed by 2 connections"]
    assert shown["queues_with_other_consumers"] == ["core-orphan"]


def test_groups_that_wait_to_be_exchanged_are_counted(state: PoolState) -> None:
    state.groups.outdated = 3
    shown = status_view.document(state, instance="i", phase="leading", detail=None, owns_workers=True, late=7.5)
    assert shown["warnings"] == ["3 group(s) go on with the former template until their turn to be exchanged"]


def test_a_daemon_that_stands_by_shows_no_key(state: PoolState) -> None:
    state.require("42")
    for phase, keys in (("standby", 0), ("waiting", 1)):
        shown = status_view.document(state, instance="i", phase=phase, detail=None, owns_workers=True, late=7.5)
        assert len(shown["keys"]) == keys


def test_the_document_has_the_greatest_age_of_its_counts(state: PoolState) -> None:
    def age() -> object:
        shown = status_view.document(state, instance="i", phase="leading", detail=None, owns_workers=True, late=7.5)
        return shown["counts_age"]

    assert age() is None
    # Asked for 4 s ago, of a broker that may be 7.5 s late
    state.counts.counted_at = 96.0
    assert age() == 11.5


def test_a_daemon_that_leads_is_not_ready_in_an_alarm_and_one_that_stands_by_is(state: PoolState) -> None:
    assert status_view.not_ready(state, "leading", None) is None
    state.counts.alarm = "disk"
    reason = status_view.not_ready(state, "leading", None)
    assert reason == "leading: the broker takes no messages in its alarm (disk)"
    assert status_view.not_ready(state, "standby", None) is None
    state.counts.alarm = None
    assert status_view.not_ready(state, "leading", None) is None


def test_ends_of_workers_are_shown_whether_or_not_their_key_has_anything(state: PoolState) -> None:
    end = WorkerEnd(How.SIGNAL, 9, "w", 2.0, ("killed",), "/log")
    state.ends.note(EndFact("42", end, "worker was killed", True, 2, at=90.0))

    def ends(phase: str) -> Any:
        found = status_view.document(
            state, instance="prod", phase=phase, detail=None, late=LATE, driver="noop", owns_workers=True
        )
        return json.loads(json.dumps(found["ends"]))

    assert ends("standby") == []
    assert ends("leading") == [
        {
            "key": "42",
            "event": "worker-ended",
            "how": "signal 9",
            "reason": "worker was killed",
            "worker": "w",
            "ran_seconds": 2.0,
            "started": True,
            "held": 2,
            "output": ["killed"],
            "log": "/log",
            "ago": 10.0,
        }
    ]
