"""When requests of a key are refused, because its workers cannot be started."""

from __future__ import annotations

import math

import pytest

from osrdyne.drivers.base import Group, GroupState
from osrdyne.reconcile import group_rules
from osrdyne.state.start_failures import refused_until, taken_by_workers
from osrdyne.state.values import Attempt

#: Three starts failed, and the next is due at 10.
FAILED = Attempt(failures=3, not_before=10.0, error="exit 1", failed_at=6.0, unstarted=3)
STARTED = Attempt(failures=3, not_before=10.0, started_at=10.0, unstarted=3)


@pytest.mark.parametrize(
    ("attempt", "group", "now", "until"),
    [
        (FAILED, None, 7.0, 10.0),
        (FAILED, None, 10.0, None),
        (Attempt(failures=3, not_before=10.0, unstarted=2), None, 7.0, None),
        # An engine that tries again by itself
        (FAILED, GroupState.STARTING, 20.0, math.inf),
        (FAILED, GroupState.RUNNING, 7.0, None),
        (FAILED, GroupState.STOPPING, 7.0, None),
        # The daemon's own try
        (STARTED, GroupState.STARTING, 11.0, None),
    ],
)
def test_requests_are_refused_while_no_try_is_under_way(
    attempt: Attempt, group: GroupState | None, now: float, until: float | None
) -> None:
    listed = None if group is None else Group("42", group, 1, "")
    assert refused_until(attempt, listed, most=3, now=now) == until
    assert refused_until(attempt, listed, most=0, now=now) is None
    assert refused_until(attempt, listed, most=3, now=now, served=True) is None


def test_only_starts_in_a_row_that_are_known_to_have_ended_too_early_count() -> None:
    attempt = Attempt()
    for started in (False, False, None, False):
        failed = group_rules.after_failure(attempt, "exit 1", now=5.0)
        attempt = group_rules.after_end(failed, started=started, held=None, now=5.2)
    assert attempt.unstarted == 3
    assert group_rules.after_started(attempt, at=5.0).unstarted == 3, "it was said before"
    assert group_rules.after_started(attempt, at=5.1).unstarted == 0
    assert group_rules.after_end(attempt, started=True, held=None, now=5.2).unstarted == 0


@pytest.mark.parametrize("started", [True, False, None])
@pytest.mark.parametrize("held", [3, 0, None])
def test_only_a_worker_that_started_and_died_with_requests_in_hand_is_started_without_a_pause(
    started: bool | None, held: int | None
) -> None:
    failed = Attempt(failures=4, not_before=9.0, error="exit 1", failed_at=5.0)
    after = group_rules.after_end(failed, started=started, held=held, now=5.2)
    at_work = started is True and held == 3
    assert (after.failures, after.not_before) == ((0, 5.2) if at_work else (4, 9.0))
    assert after.error == "exit 1"


@pytest.mark.parametrize(
    ("count", "unstarted", "looked", "taken"),
    [
        # Each start of the row took it
        (3, 3, 0, 3),
        (5, 3, 0, 5),
        # Sessions that ended within a look
        (0, 3, 0, 0),
        (1, 3, 0, 0),
        (2, 3, 0, 0),
        (1, 1, 0, 0),
        # The daemon has looked since: no session has ended
        (1, 4, 3, 1),
        (1, 5, 3, 0),
        (0, 4, 3, 0),
        # A row that began after the last look
        (1, 2, 3, 0),
        (3, 3, 3, 3),
        (1, 3, 3, 0),
    ],
)
def test_a_count_shows_workers_only_where_each_start_since_the_last_look_may_have_added_to_it(
    count: int, unstarted: int, looked: int, taken: int
) -> None:
    assert taken_by_workers(count, unstarted=unstarted, looked=looked) == taken
