from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osrdyne_amqp.channels.acknowledgements import Acknowledgements


def delivered(count: int) -> Acknowledgements:
    acknowledgements = Acknowledgements()
    for tag in range(1, count + 1):
        acknowledgements.delivered(tag)
    return acknowledgements


def test_all_up_to_the_newest_are_settled_by_one() -> None:
    acknowledgements = delivered(3)
    assert [acknowledgements.add(tag) for tag in (2, 1, 3)] == [True, False, False]
    assert acknowledgements.take() == [(3, True)]


def test_those_behind_a_delivery_that_is_not_settled_are_settled_one_by_one() -> None:
    acknowledgements = delivered(6)
    for tag in (1, 2, 6, 4):
        acknowledgements.add(tag)
    assert acknowledgements.take() == [(2, True), (4, False), (6, False)]


def test_one_that_was_refused_does_not_separate_the_others() -> None:
    acknowledgements = delivered(3)
    acknowledgements.refused(2)
    acknowledgements.add(1)
    acknowledgements.add(3)
    assert acknowledgements.take() == [(3, True)]


def test_an_acknowledgement_of_all_older_ones_settles_them_and_no_newer() -> None:
    acknowledgements = delivered(4)
    assert acknowledgements.add(3, multiple=True)
    assert acknowledgements.take() == [(3, True)]
    assert not acknowledgements.add(3, multiple=True)


def test_the_tag_0_stands_for_all_that_are_not_settled() -> None:
    acknowledgements = delivered(4)
    acknowledgements.add(4)
    acknowledgements.add(0, multiple=True)
    assert acknowledgements.take() == [(4, True)]


def test_one_that_is_acknowledged_twice_is_sent_twice_so_that_the_broker_can_complain() -> None:
    acknowledgements = delivered(3)
    for tag in (1, 2, 2):
        acknowledgements.add(tag)
    assert acknowledgements.take() == [(2, True), (2, False)]


def test_an_unknown_delivery_is_acknowledged_alone_so_that_the_broker_can_complain() -> None:
    acknowledgements = delivered(2)
    for tag in (1, 2, 9):
        acknowledgements.add(tag)
    assert acknowledgements.take() == [(2, True), (9, False)]


@given(st.lists(st.tuples(st.sampled_from(["deliver", "ack", "refuse", "take"]), st.integers(0, 20))))
def test_exactly_what_was_acknowledged_is_settled(steps: list[tuple[str, int]]) -> None:
    acknowledgements = Acknowledgements()
    last = 0
    in_hand: list[int] = []
    at_broker: set[int] = set()
    acknowledged: set[int] = set()
    for step, which in [*steps, ("take", 0)]:
        if step == "deliver":
            last += 1
            acknowledgements.delivered(last)
            in_hand.append(last)
            at_broker.add(last)
        elif step == "take":
            for tag, multiple in acknowledgements.take():
                settled = {unsettled for unsettled in at_broker if unsettled == tag or (multiple and unsettled < tag)}
                assert tag in settled
                assert settled <= acknowledged
                at_broker -= settled
            assert not at_broker & acknowledged
        elif in_hand:
            tag = in_hand.pop(which % len(in_hand))
            if step == "ack":
                acknowledgements.add(tag)
                acknowledged.add(tag)
            else:
                acknowledgements.refused(tag)
                at_broker.remove(tag)
