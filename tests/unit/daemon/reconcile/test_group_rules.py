"""What is done next about one worker group, and what is remembered of its starts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne.drivers.base import Group, GroupState
from osrdyne.reconcile import group_rules
from osrdyne.reconcile.group_rules import NOTHING, GroupAction, GroupPlan, holds_start_slot, stuck_reason
from osrdyne.state.values import Attempt, Phase

RUNNING = Group("42", GroupState.RUNNING, 1, "current")
STOPPING = Group("42", GroupState.STOPPING, 1, "current")
OLD = Group("42", GroupState.RUNNING, 1, "former")


def decided(
    *,
    wanted: bool = True,
    phase: Phase = Phase.BOUND,
    group: Group | None = None,
    attempt: Attempt = Attempt(),  # noqa: B008 - frozen
    stuck: str | None = None,
) -> GroupPlan:
    return group_rules.plan(
        wanted=wanted, phase=phase, group=group, attempt=attempt, template="current", stuck=stuck, now=100.0
    )


@pytest.mark.parametrize("phase", [Phase.BOUND, Phase.UNBOUND])
def test_a_wanted_key_with_a_queue_gets_a_group(phase: Phase) -> None:
    assert decided(phase=phase).action is GroupAction.START


@pytest.mark.parametrize("phase", [Phase.UNKNOWN, Phase.DRAINED, Phase.GONE])
def test_no_group_is_started_for_a_queue_that_may_not_be_there(phase: Phase) -> None:
    assert decided(phase=phase) == NOTHING


@pytest.mark.parametrize("phase", Phase)
def test_a_group_is_stopped_only_when_its_queue_is_drained_gone_or_not_ours(phase: Phase) -> None:
    stops = decided(wanted=False, phase=phase, group=RUNNING).action is GroupAction.STOP
    assert stops == (phase in (Phase.DRAINED, Phase.FOREIGN, Phase.GONE))


def test_a_wanted_group_that_runs_is_left_alone_whatever_its_queue() -> None:
    for phase in Phase:
        assert decided(phase=phase, group=RUNNING) == NOTHING


def test_a_group_of_another_template_is_exchanged_and_started_once_gone() -> None:
    assert decided(group=OLD) == GroupPlan(GroupAction.EXCHANGE, "template changed")
    assert decided(group=STOPPING) == NOTHING
    assert decided(group=None).action is GroupAction.START


def test_a_stuck_group_is_stopped_with_its_reason() -> None:
    assert decided(group=RUNNING, stuck="took nothing") == GroupPlan(GroupAction.STOP, "took nothing", failed=True)


def test_a_stuck_group_does_not_wait_for_its_exchange() -> None:
    assert decided(group=OLD, stuck="took nothing") == GroupPlan(GroupAction.STOP, "took nothing", failed=True)


def test_a_group_that_is_not_wanted_is_not_exchanged() -> None:
    assert decided(wanted=False, phase=Phase.UNBOUND, group=OLD) == NOTHING


def test_an_exchange_has_its_turn_until_its_worker_shows_life_and_for_a_bounded_time() -> None:
    def has_turn(group: Group | None, *, alive: bool = False, now: float = 101.0) -> bool:
        attempt = Attempt(started_at=100.5, alive=alive)
        return group_rules.holds_exchange_slot(attempt, group, began=100.0, template="current", hold=10.0, now=now)

    assert has_turn(OLD, alive=True)
    assert has_turn(STOPPING, alive=True)
    assert has_turn(None, alive=True)
    assert has_turn(RUNNING)
    assert not has_turn(RUNNING, alive=True)
    assert not any(has_turn(group, now=110.0) for group in (OLD, STOPPING, None, RUNNING))


def test_a_stopping_group_is_not_stopped_again() -> None:
    assert decided(wanted=False, phase=Phase.GONE, group=STOPPING) == NOTHING
    assert decided(group=STOPPING, stuck="took nothing") == NOTHING


def test_a_failing_start_waits_longer_each_time_and_keeps_its_error() -> None:
    attempt, pauses = Attempt(), []
    for _ in range(8):
        attempt = group_rules.after_failure(attempt, "no such image", now=100.0)
        pauses.append(attempt.not_before - 100.0)
        assert decided(attempt=attempt) == GroupPlan(at=attempt.not_before)
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[4] <= pauses[-1] == 30.0
    assert attempt.error == "no such image"


def test_a_group_that_lived_before_it_crashed_starts_over_with_short_pauses() -> None:
    failing = Attempt(failures=6, started_at=0.0, alive=True)
    assert group_rules.after_failure(failing, "exit 1", now=100.0).failures == 1
    # A group that never showed life, or died soon, has failed at its start
    assert group_rules.after_failure(Attempt(failures=6, started_at=0.0), "exit 1", now=100.0).failures == 7
    soon = Attempt(failures=6, started_at=95.0, alive=True)
    assert group_rules.after_failure(soon, "exit 1", now=100.0).failures == 7


def test_a_sign_of_life_of_a_young_group_does_not_forgive_its_failures() -> None:
    attempt = group_rules.after_start(Attempt(failures=3, error="exit 1"), now=100.0)
    young = group_rules.after_sign_of_life(attempt, RUNNING, at=101.0, now=101.0)
    assert (young.alive, young.failures, young.error) == (True, 3, "exit 1")
    old = group_rules.after_sign_of_life(attempt, RUNNING, at=101.0, now=110.0)
    assert (old.alive, old.failures, old.error) == (True, 0, None)


def test_a_worker_that_its_engine_restarted_has_no_failures_ten_seconds_after_its_report() -> None:
    failed = group_rules.after_failure(Attempt(failures=3, started_at=0.0), "exit 1", now=100.0)
    # What it reported before it failed, and that its group is still there, proves nothing
    assert group_rules.after_sign_of_life(failed, RUNNING, at=99.0, now=200.0) == failed
    assert group_rules.after_sign_of_life(failed, None, at=160.0, now=200.0) == failed
    young = group_rules.after_sign_of_life(failed, RUNNING, at=160.0, now=160.0)
    assert (young.alive, young.failures, group_rules.makes_up_at(young)) == (True, 4, 170.0)
    # Nor does it while the engine waits to start it once more
    waits = replace(RUNNING, state=GroupState.STARTING, workers=0)
    assert group_rules.after_sign_of_life(young, waits, at=160.0, now=170.0).error == "exit 1"
    old = group_rules.after_sign_of_life(young, RUNNING, at=160.0, now=170.0)
    assert (old.failures, old.error, group_rules.makes_up_at(old)) == (0, None, None)


def test_a_start_is_in_flight_until_it_shows_life_or_its_hold_is_over() -> None:
    started = group_rules.after_start(Attempt(), now=100.0)
    assert holds_start_slot(started, RUNNING, hold=10.0, now=109.9)
    assert not holds_start_slot(started, RUNNING, hold=10.0, now=110.0)
    alive = group_rules.after_sign_of_life(started, RUNNING, at=101.0, now=101.0)
    assert not holds_start_slot(alive, RUNNING, hold=10.0, now=101.0)
    assert not holds_start_slot(started, None, hold=10.0, now=101.0)
    assert not holds_start_slot(started, STOPPING, hold=10.0, now=101.0)
    assert not holds_start_slot(Attempt(), RUNNING, hold=10.0, now=101.0)


@given(st.floats(0, 1e7), st.floats(0, 1e3))
def test_a_start_slot_is_free_when_the_timer_for_it_rings(started: float, hold: float) -> None:
    attempt = group_rules.after_start(Attempt(), now=started)
    assert not holds_start_slot(attempt, RUNNING, hold=hold, now=started + hold)


def test_the_grace_of_a_group_doubles_with_each_failure_up_to_its_patience() -> None:
    graces = [
        group_rules.consumer_grace(Attempt(failures=failures), start_grace=120.0, patience=1920.0)
        for failures in (0, 1, 2, 3, 4, 10**9)
    ]
    assert graces == [120.0, 240.0, 480.0, 960.0, 1920.0, 1920.0]


def reason(
    *,
    ready: float | None = None,
    held: float | None = None,
    taken: float | None = None,
    started: float | None = None,
) -> str | None:
    return stuck_reason(
        ready_since=ready,
        held_since=held,
        last_taken=taken,
        started_at=started,
        patience=50.0,
        counted_at=100.0,
        late=7.0,
    )


def test_a_group_is_stuck_when_nothing_was_taken_for_as_long_as_something_was_ready() -> None:
    assert reason(ready=50.0) is not None
    assert reason(ready=50.0, taken=20.0, started=30.0) is not None
    assert reason() is None
    assert reason(ready=51.0) is None
    assert reason(ready=0.0, taken=51.0) is None
    assert reason(ready=0.0, taken=0.0, started=51.0) is None


def test_a_group_is_stuck_when_its_workers_have_the_same_requests_for_too_long() -> None:
    assert (
        reason(held=43.0) == "stuck: its workers have answered no request for 50 s, longer than pool.consumer_timeout"
    )
    assert reason(held=0.0, taken=43.0, started=30.0) is not None
    assert reason(held=44.0) is None
    assert reason(held=0.0, taken=44.0) is None
    assert reason(held=0.0, started=44.0) is None


groups = st.none() | st.builds(
    Group,
    st.just("42"),
    st.sampled_from(GroupState),
    st.integers(0, 2),
    st.sampled_from(("current", "former")),
)


@given(st.booleans(), st.sampled_from(Phase), groups, st.floats(0, 200), st.booleans())
def test_a_plan_acts_or_names_a_time_when_something_is_wrong(
    wanted: bool, phase: Phase, group: Group | None, not_before: float, is_stuck: bool
) -> None:
    attempt = Attempt(failures=1, not_before=not_before)
    found = decided(
        wanted=wanted, phase=phase, group=group, attempt=attempt, stuck="took nothing" if is_stuck else None
    )
    assert found.at is None or (found.at == not_before > 100.0 and found.action is None)
    if found.action is GroupAction.START:
        assert wanted
        assert group is None
    if found.action in (GroupAction.STOP, GroupAction.EXCHANGE):
        assert group is not None
        assert group.state is not GroupState.STOPPING
    if found == NOTHING and group is not None and group.state is not GroupState.STOPPING:
        if wanted:
            assert group.template == "current"
            assert not is_stuck
        else:
            assert phase not in (Phase.DRAINED, Phase.GONE)
