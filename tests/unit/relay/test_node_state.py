"""The state of a node: what clients have open is bounded, and ended requests are remembered for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from osrdyne_relay.errors import CallerGone, TooMany, UnknownRequest
from osrdyne_relay.http.node_state import MOST_ENDED, HeldRequest, NodeState


def taken(state: NodeState, request: str, client: str = "a", now: float = 0.0) -> HeldRequest:
    state.open(client, 10_000)
    collected: Any = SimpleNamespace(id=request, abandoned=None)
    return state.take(collected, client, now)


def test_a_client_opens_as_much_as_it_may_and_again_when_it_has_closed_some() -> None:
    state = NodeState()
    state.open("a", 2)
    state.open("a", 2)
    with pytest.raises(TooMany):
        state.open("a", 2)
    state.open("b", 2)
    state.close("a")
    state.open("a", 2)

    assert state.opened() == 3


def test_a_request_is_found_by_its_own_client_alone_and_not_while_it_is_settled() -> None:
    state = NodeState()
    held = taken(state, "1")
    assert state.find("a", "1") is held
    for client, request in (("b", "1"), ("a", "2")):
        with pytest.raises(UnknownRequest):
            state.find(client, request)
    held.settling = True
    with pytest.raises(UnknownRequest):
        state.find("a", "1")


def test_only_a_requests_own_client_learns_why_it_ended_until_many_others_have_ended() -> None:
    state = NodeState()
    held = taken(state, "1")
    assert state.end(held, CallerGone())
    assert not state.end(held, CallerGone())
    assert state.opened() == 0
    with pytest.raises(CallerGone):
        state.find("a", "1")
    with pytest.raises(UnknownRequest):
        state.find("b", "1")
    for number in range(MOST_ENDED):
        state.end(taken(state, f"x{number}"), CallerGone())
    with pytest.raises(UnknownRequest):
        state.find("a", "1")


def test_a_worker_is_silent_only_where_no_connection_is_there() -> None:
    state = NodeState()
    old, heard, settling = (taken(state, number) for number in "123")
    heard.connections, settling.settling = 1, True
    taken(state, "4", now=10.0)

    assert state.silent(5.0) == [old]


def test_an_endpoint_is_forgotten_after_its_last_poll_and_makes_room_for_another() -> None:
    state, now = NodeState(), [1.0]
    with state.polled("a", "e", 1, lambda: now[0]), state.polled("a", "e", 1, lambda: now[0]):
        assert state.endpoints() == (1, 2)
        assert state.unpolled(100.0) == []
        with pytest.raises(TooMany), state.polled("a", "f", 1, lambda: now[0]):
            pass
        with state.polled("b", "e", 1, lambda: now[0]), state.polled("b", "f", 1, lambda: now[0]):
            pass
        now[0] = 5.0
    assert state.unpolled(5.0) == ["f"]
    assert state.unpolled(5.1) == ["e"]
    with state.polled("a", "f", 1, lambda: now[0]):
        assert state.endpoints() == (1, 1)
