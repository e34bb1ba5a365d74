"""Whether a key's queue has a consumer, by what workers report and by counts that are late."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from osrdyne.state.signs import Signs

LATE, GRACE = 7.5, 120.0
#: A group that was started at 100, and whose queue is counted without an interruption.
STARTED = Signs(started_at=100.0, consumers=0, counted_at=1000.0, counted_since=0.0)


def reason(signs: Signs, *, grace: float = GRACE, running_since: float = 0.0) -> str | None:
    return signs.unserved_reason(grace=grace, late=LATE, running_since=running_since)


def test_a_group_is_unserved_when_counts_of_its_whole_grace_show_no_consumer() -> None:
    assert (reason(STARTED) or "").startswith("stuck: it runs, and nothing has consumed")
    # Counts may be late: those of a moment ago may be about the time before
    assert reason(replace(STARTED, counted_at=100.0 + GRACE + LATE - 0.1)) is None
    assert reason(replace(STARTED, counted_at=100.0 + GRACE + LATE)) is not None
    # The grace counts from whatever was last: start, consumer, event, or the first count of this daemon
    assert reason(replace(STARTED, started_at=900.0)) is None
    assert reason(replace(STARTED, served_at=900.0)) is None
    assert reason(replace(STARTED, last_event=900.0)) is None
    assert reason(replace(STARTED, counted_since=900.0)) is None
    # An engine may take long from accepting a start to running the group
    assert reason(STARTED, running_since=900.0) is None
    # A queue with a consumer is served, and of one that is not counted nothing is known
    assert reason(replace(STARTED, consumers=1)) is None
    assert reason(replace(STARTED, consumers=None)) is None
    assert reason(replace(STARTED, counted_at=None)) is None
    assert reason(replace(STARTED, counted_since=None)) is None


def test_what_a_worker_reports_after_it_said_that_it_stops_does_not_prolong_its_grace() -> None:
    stopping = replace(STARTED, stopping_at=500.0, last_event=999.0)
    assert "said that it stops" in (reason(stopping) or "")
    # But it is the word of a worker of this group only if it came after its start
    assert reason(replace(stopping, stopping_at=99.0)) is None


def test_a_group_taken_over_from_a_former_daemon_counts_from_the_first_counts() -> None:
    assert reason(Signs(consumers=0, counted_at=1000.0, counted_since=900.0)) is None
    assert reason(Signs(consumers=0, counted_at=1000.0, counted_since=800.0)) is not None


signs = st.builds(
    Signs,
    *(st.none() | st.floats(0, 1000) for _ in range(4)),
    consumers=st.none() | st.integers(0, 2),
    counted_at=st.none() | st.floats(0, 1000),
    counted_since=st.none() | st.floats(0, 1000),
    served_at=st.none() | st.floats(0, 1000),
)


@given(signs)
def test_a_group_that_is_restarted_as_unserved_is_not_shown_as_ready(found: Signs) -> None:
    if reason(found, grace=10.0) is not None:
        assert not found.is_served(late=LATE)


@given(signs)
def test_what_was_before_the_start_does_not_count(found: Signs) -> None:
    started = replace(found, started_at=2000.0)
    assert not started.is_served(late=LATE)
    assert not started.was_served(late=LATE)
    assert reason(started) is None


@given(signs)
def test_a_served_group_was_served_or_is_counted_so(found: Signs) -> None:
    if found.is_served(late=LATE):
        assert found.was_served(late=LATE) or found.consumers
