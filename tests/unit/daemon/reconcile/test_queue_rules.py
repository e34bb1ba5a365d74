"""What is done next about one request queue: above all, that nothing is deleted without the full evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne.reconcile import queue_rules
from osrdyne.reconcile.queue_rules import NOTHING, Finding, MessagesFound, QueuePlan, QueueStep, plan
from osrdyne.state.tracker import KeyTarget, Status
from osrdyne.state.values import Phase, QueueState, QueueTotals

INTERVAL = 7.5
ACTIVE = KeyTarget(Status.ACTIVE, 3, 1000.0)
UNBOUND = KeyTarget(Status.UNBOUND, 4, 1000.0)


def kept(found: Finding) -> QueueState:
    """What is known of a queue in which no messages were found."""
    assert isinstance(found, QueueState)
    return found


def looked(queue: QueueState, *, ready: int = 0, consumers: int = 0, now: float = 100.0) -> Finding:
    return queue_rules.after_look(queue, ready=ready, consumers=consumers, recheck=30.0, now=now)


def sampled(
    queue: QueueState,
    *,
    ready: int = 0,
    unacknowledged: int = 0,
    consumers: int = 0,
    bindings: int = 0,
    dead_lettering: int = 0,
    now: float = 100.0,
) -> Finding:
    totals = QueueTotals(ready, unacknowledged, consumers, bindings, dead_lettering=dead_lettering)
    return queue_rules.after_sample(queue, totals, recheck=30.0, now=now)


def next_step(wanted: KeyTarget | None, queue: QueueState, *, group_gone: bool = True, now: float = 100.0) -> QueuePlan:
    return plan(wanted, queue, group_gone=group_gone, interval=INTERVAL, now=now)


@pytest.mark.parametrize(
    "queue",
    [
        *(QueueState(phase, asserted=3) for phase in Phase if phase is not Phase.BOUND),
        QueueState(Phase.BOUND, asserted=2),
        QueueState(Phase.DRAINED, looked_at=1.0, sampled_at=10.0),
    ],
)
def test_a_wanted_queue_that_was_not_asserted_since_is_declared_and_bound(queue: QueueState) -> None:
    assert next_step(ACTIVE, queue) == QueuePlan(QueueStep.ASSERT)


def test_a_wanted_queue_asserted_since_is_left_alone() -> None:
    assert next_step(ACTIVE, QueueState(Phase.BOUND, asserted=3)) == NOTHING


@pytest.mark.parametrize("wanted", [UNBOUND, None])
@pytest.mark.parametrize("phase", [Phase.UNKNOWN, Phase.BOUND])
def test_what_is_no_longer_active_is_unbound_first(wanted: KeyTarget | None, phase: Phase) -> None:
    assert next_step(wanted, QueueState(phase, asserted=3)) == QueuePlan(QueueStep.UNBIND)


def test_an_unbound_queue_rests_for_the_stop_delay() -> None:
    assert next_step(UNBOUND, QueueState(Phase.UNBOUND)) == NOTHING


def test_a_queue_that_does_not_exist_needs_nothing_unless_it_is_wanted() -> None:
    assert next_step(UNBOUND, QueueState(Phase.GONE)) == NOTHING
    assert next_step(None, QueueState(Phase.GONE)) == NOTHING


def test_a_drained_queue_waits_until_its_group_is_gone() -> None:
    assert next_step(None, QueueState(Phase.DRAINED), group_gone=False) == NOTHING
    assert next_step(None, QueueState(Phase.DRAINED)) == QueuePlan(QueueStep.LOOK)


def test_samples_are_one_statistics_interval_after_what_they_confirm() -> None:
    looked = QueueState(Phase.DRAINED, looked_at=100.0)
    assert next_step(None, looked, now=107.4) == QueuePlan(at=107.5)
    assert next_step(None, looked, now=107.5) == QueuePlan(QueueStep.SAMPLE)
    sampled = replace(looked, sampled_at=107.5)
    assert next_step(None, sampled, now=114.9) == QueuePlan(at=115.0)
    assert next_step(None, sampled, now=115.0) == QueuePlan(QueueStep.DELETE)


def test_a_failed_action_is_tried_again_after_a_growing_pause() -> None:
    queue, pauses = QueueState(Phase.BOUND, asserted=3), []
    for _ in range(3):
        queue = queue_rules.after_failure(queue, QueueStep.UNBIND, "no permission", now=100.0)
        pauses.append(queue.not_before - 100.0)
        assert (queue.phase, queue.asserted, queue.error) == (Phase.UNKNOWN, -1, "no permission")
        for wanted in (ACTIVE, UNBOUND, None):
            assert next_step(wanted, queue) == QueuePlan(at=queue.not_before)
    assert pauses == sorted(set(pauses))


def test_a_failure_throws_the_evidence_away_but_not_that_the_group_may_stop() -> None:
    queue = queue_rules.after_failure(
        QueueState(Phase.DRAINED, looked_at=1.0, sampled_at=9.0), QueueStep.DELETE, "x", now=100.0
    )
    assert queue.phase is Phase.DRAINED
    assert (queue.looked_at, queue.sampled_at) == (None, None)


@pytest.mark.parametrize("step", [QueueStep.LOOK, QueueStep.SAMPLE])
def test_a_look_that_failed_changed_nothing_and_is_taken_again(step: QueueStep) -> None:
    queue = queue_rules.after_failure(QueueState(Phase.UNBOUND, looked_at=1.0), step, "away", now=100.0)
    assert next_step(None, queue) == QueuePlan(at=queue.not_before)
    assert next_step(None, queue, now=queue.not_before) == QueuePlan(QueueStep.LOOK)


def test_a_queue_that_others_consume_stays_and_is_looked_at_again_later() -> None:
    queue = kept(looked(QueueState(Phase.DRAINED), consumers=1))
    assert not queue_rules.is_quiet_look(queue)
    assert next_step(None, queue) == QueuePlan(at=130.0)
    assert next_step(None, queue, now=130.0) == QueuePlan(QueueStep.LOOK)


def test_a_request_for_a_queue_that_others_consume_does_not_wait_for_the_next_look() -> None:
    for found in (looked(QueueState(Phase.DRAINED), consumers=1), sampled(QueueState(Phase.DRAINED), bindings=1)):
        assert next_step(ACTIVE, kept(found)) == QueuePlan(QueueStep.ASSERT)


@pytest.mark.parametrize("messages", [{}, {"ready": 1}, {"unacknowledged": 1}])
def test_a_queue_that_another_program_bound_begins_again_and_says_why(messages: dict[str, int]) -> None:
    bound = kept(sampled(QueueState(Phase.DRAINED, looked_at=1.0, sampled_at=9.0), bindings=1, **messages))
    assert (bound.phase, bound.looked_at, bound.sampled_at) == (Phase.UNKNOWN, None, None)
    assert "bound" in (bound.error or "")
    assert next_step(None, bound) == QueuePlan(at=130.0)


@pytest.mark.parametrize("phase", [Phase.UNBOUND, Phase.DRAINED])
def test_a_queue_whose_dead_letters_have_not_arrived_stays_and_says_why(phase: Phase) -> None:
    found = kept(sampled(QueueState(phase, looked_at=1.0, sampled_at=9.0), dead_lettering=1))
    assert (found.phase, found.looked_at, found.sampled_at) == (Phase.DRAINED, None, None)
    assert "dead letters" in (found.error or "")
    assert next_step(None, found) == QueuePlan(at=130.0)


def test_a_bound_queue_whose_dead_letters_have_not_arrived_begins_again_with_the_unbind() -> None:
    found = kept(sampled(QueueState(Phase.DRAINED, looked_at=1.0, sampled_at=9.0), dead_lettering=1, bindings=1))
    assert (found.phase, found.recheck_at) == (Phase.UNKNOWN, 130.0)
    assert "dead letters" in (found.error or "")


@pytest.mark.parametrize(
    "found",
    [
        looked(QueueState(Phase.UNBOUND, looked_at=1.0), ready=1),
        looked(QueueState(Phase.DRAINED), ready=1, consumers=1),
        sampled(QueueState(Phase.UNBOUND, looked_at=1.0), ready=1),
        sampled(QueueState(Phase.DRAINED, looked_at=1.0, sampled_at=9.0), unacknowledged=1, dead_lettering=1),
    ],
)
def test_messages_found_make_the_key_active_again_and_leave_no_evidence(found: Finding) -> None:
    assert found == MessagesFound(QueueState(Phase.UNKNOWN))
    assert not queue_rules.is_quiet_look(found)
    assert not queue_rules.is_quiet_sample(found)


def test_the_first_quiet_sample_lets_the_group_stop_and_needs_all_evidence_again() -> None:
    drained = kept(sampled(QueueState(Phase.UNBOUND, looked_at=92.0)))
    assert drained == QueueState(Phase.DRAINED)
    assert not queue_rules.is_quiet_sample(drained)


def test_only_a_drained_queue_without_anything_gives_a_quiet_look_and_a_quiet_sample() -> None:
    drained = QueueState(Phase.DRAINED, looked_at=1.0, sampled_at=9.0)
    assert queue_rules.is_quiet_look(looked(drained))
    assert queue_rules.is_quiet_sample(sampled(drained))
    assert not queue_rules.is_quiet_look(looked(QueueState(Phase.UNBOUND)))
    for totals in ({"bindings": 1}, {"dead_lettering": 1}):
        assert not queue_rules.is_quiet_sample(sampled(drained, **totals))
    assert not queue_rules.is_quiet_look(QueueState(Phase.GONE))
    assert not queue_rules.is_quiet_sample(QueueState(Phase.GONE))


queues = st.builds(
    QueueState,
    phase=st.sampled_from(Phase),
    asserted=st.integers(-1, 4),
    looked_at=st.none() | st.floats(0, 120),
    sampled_at=st.none() | st.floats(0, 120),
    recheck_at=st.floats(0, 120),
    failures=st.integers(0, 3),
    not_before=st.floats(0, 120),
)


@given(st.sampled_from((ACTIVE, UNBOUND, None)), queues, st.booleans())
def test_a_plan_makes_progress_or_names_a_time_or_waits_for_a_named_event(
    wanted: KeyTarget | None, queue: QueueState, group_gone: bool
) -> None:
    found = next_step(wanted, queue, group_gone=group_gone)
    assert found.step is None or found.at is None
    assert found.at is None or found.at > 100.0
    if found == NOTHING:
        assert (
            (wanted is ACTIVE and queue.phase is Phase.BOUND and queue.asserted >= 3)
            or (wanted is not ACTIVE and queue.phase in (Phase.FOREIGN, Phase.GONE))
            or (wanted is UNBOUND and queue.phase in (Phase.UNBOUND, Phase.DRAINED))
            or (queue.phase is Phase.DRAINED and not group_gone)
        )


@dataclass
class Evidence:
    """What was really done and seen since the queue was last bound: kept apart from what the plan remembers."""

    unbound: bool = False
    quiet_looks: list[tuple[float, bool]] = field(default_factory=list)
    quiet_samples: list[float] = field(default_factory=list)

    def is_full(self, now: float) -> bool:
        """Say whether, of a gone group, a look and two samples in the right distances are there."""
        return self.unbound and any(
            gone and any(first >= look + INTERVAL and now >= first + INTERVAL for first in self.quiet_samples)
            for look, gone in self.quiet_looks
        )


environment = st.lists(
    st.tuples(
        st.sampled_from((ACTIVE, UNBOUND, None, None, None, None)),
        st.booleans(),
        st.sampled_from((0.0, 1.0, 7.5, 30.0)),
        st.sampled_from((0, 0, 0, 0, 1)),
        st.sampled_from((0, 0, 0, 1)),
        st.sampled_from((False, False, False, False, True)),
    ),
    min_size=5,
    max_size=60,
)


@given(environment)
def test_a_queue_is_never_deleted_before_all_evidence_was_gathered(
    world: list[tuple[KeyTarget | None, bool, float, int, int, bool]],
) -> None:
    queue, evidence, now = QueueState(Phase.BOUND, asserted=0), Evidence(), 0.0
    for wanted, gone, pause, messages, consumers, fails in world:
        now += pause
        step = plan(wanted, queue, group_gone=gone, interval=INTERVAL, now=now).step
        if step is QueueStep.DELETE:
            assert wanted is None
            assert evidence.is_full(now)
            return
        queue = _applied(step, queue, evidence, now, (messages, consumers, fails, gone))


def test_the_path_to_deletion_exists() -> None:
    queue, evidence, now, steps = QueueState(Phase.BOUND), Evidence(), 0.0, list[QueueStep]()
    while not steps or steps[-1] is not QueueStep.DELETE:
        found = plan(None, queue, group_gone=True, interval=INTERVAL, now=now)
        now = found.at if found.at is not None else now
        if found.step is not None:
            steps.append(found.step)
            queue = _applied(found.step, queue, evidence, now, (0, 0, False, True))
    assert steps == [
        QueueStep.UNBIND,
        QueueStep.LOOK,
        QueueStep.SAMPLE,
        QueueStep.LOOK,
        QueueStep.SAMPLE,
        QueueStep.DELETE,
    ]


def _applied(
    step: QueueStep | None, queue: QueueState, evidence: Evidence, now: float, seen: tuple[int, int, bool, bool]
) -> QueueState:
    """Do what the queue loop does with a step, in a world that answers `seen`."""
    messages, consumers, fails, gone = seen
    if step is None:
        return queue
    if fails:
        return queue_rules.after_failure(queue, step, "refused", now=now)
    found: Finding
    match step:
        case QueueStep.ASSERT:
            evidence.__init__()  # type: ignore[misc]
            return QueueState(Phase.BOUND, asserted=4)
        case QueueStep.UNBIND:
            evidence.unbound = True
            return QueueState(Phase.UNBOUND)
        case QueueStep.LOOK:
            found = looked(queue, ready=messages, consumers=consumers, now=now)
            if messages == consumers == 0:
                evidence.quiet_looks.append((now, gone))
        case _:
            found = sampled(queue, now=now, unacknowledged=messages, consumers=consumers)
            if messages == 0:
                evidence.quiet_samples.append(now)
    return found.queue if isinstance(found, MessagesFound) else found


@pytest.mark.parametrize("wanted", [None, ACTIVE, UNBOUND])
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in (Phase.GONE, Phase.FOREIGN)])
def test_a_queue_that_the_broker_lost_is_discarded_whether_it_is_wanted_or_not(
    wanted: KeyTarget | None, phase: Phase
) -> None:
    found = plan(wanted, QueueState(phase, asserted=3), group_gone=False, interval=INTERVAL, now=100.0, lost=True)
    assert found == QueuePlan(QueueStep.DISCARD)


def test_a_foreign_queue_is_never_discarded() -> None:
    found = plan(None, QueueState(Phase.FOREIGN), group_gone=True, interval=INTERVAL, now=100.0, lost=True)
    assert found == NOTHING


def test_a_discard_that_failed_waits_before_it_is_tried_again() -> None:
    failed = queue_rules.after_failure(QueueState(Phase.BOUND), QueueStep.DISCARD, "no answer", now=100.0)
    found = plan(ACTIVE, failed, group_gone=True, interval=INTERVAL, now=100.0, lost=True)
    assert found == QueuePlan(at=failed.not_before)


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize(
    ("queue", "until", "step", "at"),
    [
        (QueueState(Phase.BOUND, asserted=3), 9.0, QueueStep.REFUSE, None),
        (QueueState(Phase.UNBOUND), 9.0, QueueStep.REFUSE, None),
        (QueueState(Phase.UNBOUND, emptied=True), 9.0, None, 9.0),
        (QueueState(Phase.UNBOUND, emptied=True), math.inf, None, None),
        (QueueState(Phase.BOUND, asserted=3, not_before=7.0), 9.0, None, 7.0),
    ],
)
def test_a_queue_is_emptied_once_where_workers_cannot_be_started(
    status: Status, queue: QueueState, until: float, step: QueueStep | None, at: float | None
) -> None:
    found = plan(KeyTarget(status, 3, 100.0), queue, group_gone=True, interval=7.5, now=5.0, refused_until=until)
    assert (found.step, found.at) == (step, at)


@pytest.mark.parametrize("phase", [Phase.UNKNOWN, Phase.FOREIGN, Phase.GONE])
def test_nothing_is_taken_from_a_queue_that_may_be_foreign(phase: Phase) -> None:
    found = plan(ACTIVE, QueueState(phase), group_gone=True, interval=7.5, now=5.0, refused_until=9.0)
    assert found.step is QueueStep.ASSERT


def test_an_emptied_queue_is_bound_when_the_next_try_is_due() -> None:
    found = plan(ACTIVE, QueueState(Phase.UNBOUND, emptied=True), group_gone=True, interval=7.5, now=9.0)
    assert found.step is QueueStep.ASSERT
