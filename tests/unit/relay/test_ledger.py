"""The books of a node: what clients have open is bounded, and what ended is remembered for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from osrdyne_relay.errors import CallerGone, TooMany, UnknownRequest
from osrdyne_relay.http.ledger import MOST_ENDED, InHand, Ledger


def taken(ledger: Ledger, request: str, client: str = "a", now: float = 0.0) -> InHand:
    ledger.open(client, 10_000)
    collected: Any = SimpleNamespace(id=request, abandoned=None)
    return ledger.take(collected, client, now)


def test_a_client_opens_as_much_as_it_may_and_again_when_it_has_closed_some() -> None:
    ledger = Ledger()
    ledger.open("a", 2)
    ledger.open("a", 2)
    with pytest.raises(TooMany):
        ledger.open("a", 2)
    ledger.open("b", 2)
    ledger.close("a")
    ledger.open("a", 2)

    assert ledger.opened() == 3


def test_a_request_is_found_by_its_own_client_alone_and_not_while_it_is_settled() -> None:
    ledger = Ledger()
    held = taken(ledger, "1")
    assert ledger.find("a", "1") is held
    for client, request in (("b", "1"), ("a", "2")):
        with pytest.raises(UnknownRequest):
            ledger.find(client, request)
    held.settling = True
    with pytest.raises(UnknownRequest):
        ledger.find("a", "1")


def test_why_a_request_ended_is_said_to_its_own_client_and_forgotten_after_many_others() -> None:
    ledger = Ledger()
    held = taken(ledger, "1")
    assert ledger.end(held, CallerGone())
    assert not ledger.end(held, CallerGone())
    assert ledger.opened() == 0
    with pytest.raises(CallerGone):
        ledger.find("a", "1")
    with pytest.raises(UnknownRequest):
        ledger.find("b", "1")
    for number in range(MOST_ENDED):
        ledger.end(taken(ledger, f"x{number}"), CallerGone())
    with pytest.raises(UnknownRequest):
        ledger.find("a", "1")


def test_a_worker_is_silent_only_where_no_connection_is_there() -> None:
    ledger = Ledger()
    old, heard, settling = (taken(ledger, one) for one in "123")
    heard.connections, settling.settling = 1, True
    taken(ledger, "4", now=10.0)

    assert ledger.silent(5.0) == [old]


def test_an_endpoint_is_forgotten_after_its_last_poll_and_makes_room_for_another() -> None:
    ledger, now = Ledger(), [1.0]
    with ledger.polled("a", "e", 1, lambda: now[0]), ledger.polled("a", "e", 1, lambda: now[0]):
        assert ledger.endpoints() == (1, 2)
        assert ledger.unpolled(100.0) == []
        with pytest.raises(TooMany), ledger.polled("a", "f", 1, lambda: now[0]):
            pass
        with ledger.polled("b", "e", 1, lambda: now[0]), ledger.polled("b", "f", 1, lambda: now[0]):
            pass
        now[0] = 5.0
    assert ledger.unpolled(5.0) == ["f"]
    assert ledger.unpolled(5.1) == ["e"]
    with ledger.polled("a", "f", 1, lambda: now[0]):
        assert ledger.endpoints() == (1, 1)
