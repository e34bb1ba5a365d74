"""Credit of a subscription: bounded for a slow server, never used up for good, and counted when it is used up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne_bus.credit import CreditWindow


def receive(window: CreditWindow, number: int) -> list[bool]:
    return [window.arrived() for _ in range(number)]


def acknowledge(window: CreditWindow, number: int) -> list[int]:
    return [window.acknowledged() for _ in range(number)]


def test_a_link_begins_with_all_of_its_credit() -> None:
    window = CreditWindow(100)

    assert window.credit == 0
    assert window.opened() == 100
    assert window.credit == 100


def test_a_server_that_keeps_up_gets_credit_for_half_of_the_window_at_a_time() -> None:
    window = CreditWindow(100)
    window.opened()

    granted = [window.acknowledged() for _ in range(200) if not window.arrived()]

    assert [credit for credit in granted if credit] == [50, 50, 50, 50]
    assert granted.index(50) == 49
    assert window.stalls == 0


def test_a_server_that_lets_messages_lie_holds_no_more_than_the_window() -> None:
    window = CreditWindow(100)
    window.opened()

    assert receive(window, 100) == [*([False] * 99), True]
    assert acknowledge(window, 49) == [0] * 49
    assert window.acknowledged() == 50
    assert (window.credit, window.unacknowledged) == (50, 50)


@given(st.integers(1, 30), st.lists(st.integers(0, 40) | st.just(-1)))
def test_credit_and_messages_stay_within_the_window_whatever_peer_and_server_do(size: int, steps: list[int]) -> None:
    window = CreditWindow(size)
    granted, sent = window.opened(), 0
    for step in steps:
        if step < 0:
            granted += sum(acknowledge(window, 1)) if window.unacknowledged else 0
        else:
            sent += len(receive(window, min(step, granted - sent)))
        # What the peer counts is what we count
        assert window.credit == granted - sent
        assert window.credit + window.unacknowledged <= size
    # And a server that acknowledges everything gets more, always
    granted += sum(acknowledge(window, window.unacknowledged))
    assert granted > sent


def test_each_time_that_a_peer_has_used_up_its_credit_counts_as_a_stall() -> None:
    window = CreditWindow(2)
    window.opened()

    assert receive(window, 2) == [False, True]
    acknowledge(window, 2)
    assert receive(window, 2) == [False, True]
    assert window.stalls == 2


def test_a_link_that_is_attached_again_begins_again_and_its_stalls_are_kept() -> None:
    window = CreditWindow(3)
    window.opened()
    receive(window, 3)

    assert window.opened() == 3
    assert (window.credit, window.unacknowledged, window.stalls) == (3, 0, 1)
    # What a server acknowledges of the earlier link grants nothing that is not there
    assert acknowledge(window, 2) == [0, 0]


@pytest.mark.parametrize("size", [0, -1])
def test_a_window_without_messages_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="give it 1 or more"):
        CreditWindow(size)
