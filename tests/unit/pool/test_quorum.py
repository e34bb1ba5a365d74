"""What the members of a quorum queue say, and when it proves that the broker lost the queue."""

from __future__ import annotations

from typing import Any

import pytest

from osrdyne_pool.broker.quorum import Member, never_led, read


def answered(
    state: str = "follower", term: int | str | None = 0, last_index: int | str | None = 0, node: str = "rabbit@one"
) -> dict[str, Any]:
    """One member, in the words of the status API."""
    return {
        "Node Name": node,
        "Raft State": state,
        "Membership": "voter",
        "Last Log Index": last_index,
        "Last Written": last_index,
        "Last Applied": last_index,
        "Commit Index": last_index,
        "Snapshot Index": -1,
        "Term": term,
        "Machine Version": 5,
    }


def test_an_answer_is_read_member_by_member() -> None:
    answer = [answered("leader", 2, 9), answered("follower", 2, 7, node="rabbit@two")]
    assert read(answer) == (Member("rabbit@one", "leader", 2, 9), Member("rabbit@two", "follower", 2, 7))


@pytest.mark.parametrize("nothing", ["", None, "undefined", True])
def test_what_a_node_cannot_say_is_not_a_number(nothing: Any) -> None:
    assert read([answered("noproc", nothing, nothing)]) == (Member("rabbit@one", "noproc", None, None),)


def test_a_member_without_figures_is_read() -> None:
    # So RabbitMQ 4.0 shows a node that is starting.
    assert read([{"Node Name": "rabbit@one", "Raft State": "noproc"}]) == (Member("rabbit@one", "noproc", None, None),)


def test_an_answer_of_another_kind_is_an_error() -> None:
    with pytest.raises(KeyError):
        read([{"status": "failed"}])
    with pytest.raises((TypeError, AttributeError)):
        read(["failed"])  # type: ignore[list-item]


@pytest.mark.parametrize("members", [1, 3])
def test_a_queue_whose_members_all_wait_for_a_first_election_was_never_led(members: int) -> None:
    assert never_led(read([answered(node=f"rabbit@{number}") for number in range(members)]))


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(answered("leader", 1, 1), id="a leader"),
        pytest.param(answered("leader", 0, 0), id="a leader, at the moment of its election"),
        pytest.param(answered("follower", 1, 4), id="a follower with a log"),
        pytest.param(answered("follower", 1, 0), id="a follower that has voted"),
        pytest.param(answered("follower", 0, 4), id="a follower with a log of which the term is not known yet"),
        pytest.param(answered("candidate", 1, 0), id="a candidate"),
        pytest.param(answered("pre_vote", 0, 0), id="a candidate before its election"),
        pytest.param(answered("await_condition", 2, 4), id="a follower that waits for entries"),
        pytest.param(answered("nodedown", None, None), id="a node that is down"),
        pytest.param(answered("noconnection", "", ""), id="a node that cannot be reached"),
        pytest.param(answered("noproc", "", ""), id="no member on its node"),
        pytest.param(answered("follower", "", ""), id="a follower that says no more"),
    ],
)
def test_a_queue_of_which_one_member_says_anything_else_may_have_been_led(one: dict[str, Any]) -> None:
    assert not never_led(read([one]))
    # Not even beside members that were lost.
    assert not never_led(read([answered(node="rabbit@two"), one, answered(node="rabbit@three")]))


def test_no_members_prove_nothing() -> None:
    assert not never_led(read([]))
