"""Only the first event of a burst goes on, and it speaks for all of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osrdyne.intake import bursts
from osrdyne.intake.bursts import Bursts


def test_the_first_event_of_a_burst_goes_on_with_the_bursts_length() -> None:
    filter_ = Bursts(2.0)
    assert filter_.observe("42", 0.0) == 2.0
    assert filter_.observe("42", 1.9) is None
    assert filter_.observe("42", 2.0) == 2.0


def test_keys_do_not_share_bursts() -> None:
    filter_ = Bursts(2.0)
    filter_.observe("42", 0.0)
    assert filter_.observe("7", 1.0) == 2.0


def test_bursts_that_are_over_are_forgotten() -> None:
    filter_ = Bursts(1.0)
    for number in range(20_000):
        filter_.observe(str(number), number * 0.01)
    assert len(filter_._open) <= bursts._TIDY_AT


def test_forgetting_does_not_reopen_a_burst() -> None:
    filter_ = Bursts(1.0)
    filter_.observe("42", 0.0)
    for number in range(bursts._TIDY_AT + 10):
        filter_.observe(f"other {number}", 0.5)
    assert filter_.observe("42", 0.9) is None


@given(st.lists(st.integers(0, 8).map(lambda quarters: quarters / 4), max_size=40))
def test_a_key_under_steady_use_lives_at_least_its_delay_after_its_last_event(pauses: list[float]) -> None:
    # Given the rule of the target: what goes on keeps the key until then, plus the extra lifetime, plus a delay
    delay, filter_, now, until = 10.0, Bursts(1.0), 0.0, 0.0
    for pause in pauses:
        now += pause
        extra = filter_.observe("42", now)
        if extra is not None:
            until = now + extra + delay
        # Then no event ends the key's life earlier than if each had been reported
        assert until >= now + delay
