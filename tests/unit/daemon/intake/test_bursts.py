"""Only the first event of a burst renews its key, and it renews it for the whole burst."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osrdyne.intake import bursts
from osrdyne.intake.bursts import Bursts


def test_the_first_event_of_a_burst_gives_the_length_of_the_burst_and_others_give_none() -> None:
    events = Bursts(2.0)
    assert events.observe("42", 0.0) == 2.0
    assert events.observe("42", 1.9) is None
    assert events.observe("42", 2.0) == 2.0


def test_each_key_has_bursts_of_its_own() -> None:
    events = Bursts(2.0)
    events.observe("42", 0.0)
    assert events.observe("7", 1.0) == 2.0


def test_bursts_that_are_over_are_forgotten() -> None:
    events = Bursts(1.0)
    for number in range(20_000):
        events.observe(str(number), number * 0.01)
    assert len(events._open) <= bursts._TIDY_AT


def test_forgetting_does_not_reopen_a_burst() -> None:
    events = Bursts(1.0)
    events.observe("42", 0.0)
    for number in range(bursts._TIDY_AT + 10):
        events.observe(f"other {number}", 0.5)
    assert events.observe("42", 0.9) is None


@given(st.lists(st.integers(0, 8).map(lambda quarters: quarters / 4), max_size=40))
def test_a_key_under_steady_use_lives_at_least_its_delay_after_its_last_event(pauses: list[float]) -> None:
    # Given a key that lives until the delay and the extra lifetime after its last renewal are over
    delay, events, now, until = 10.0, Bursts(1.0), 0.0, 0.0
    for pause in pauses:
        now += pause
        extra = events.observe("42", now)
        if extra is not None:
            until = now + extra + delay
        # Then the key lives at least as long as if each event had renewed it
        assert until >= now + delay
