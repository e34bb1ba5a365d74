"""What becomes of a dead letter: who is answered, what is kept, and what a copy carries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne.failures import dead_letter_rules
from osrdyne.failures.dead_letter_rules import NOT_DEAD_LETTERED, Verdict
from osrdyne_amqp import Message, Properties
from osrdyne_protocol import headers, statuses
from tests.unit.stand_ins import A_CALLER, NAMES


def letter(
    reason: object = "expired", queue: object = "core-req-42", *, more: dict[str, Any] | None = None, **properties: Any
) -> Message:
    given_headers: dict[str, Any] = {**(more or {})}
    if reason is not None:
        given_headers |= {headers.X_FIRST_DEATH_REASON: reason, headers.X_FIRST_DEATH_QUEUE: queue}
    return Message(b"body", "core-dl-xchg", "42", Properties(headers=given_headers, **properties), 1, False)


def verdict(message: Message) -> Verdict:
    return dead_letter_rules.decide(message, NAMES)


@pytest.mark.parametrize("reason", ["expired", "rejected", "maxlen", b"expired"])
def test_a_caller_is_answered_with_the_brokers_reason_and_nothing_is_kept(reason: str | bytes) -> None:
    found = verdict(letter(reason, reply_to=A_CALLER))
    assert found.status == (reason if isinstance(reason, str) else reason.decode())
    assert found.keep_as is None
    assert found.reason


def test_what_workers_failed_on_is_answered_and_kept() -> None:
    found = verdict(letter("delivery_limit", reply_to=A_CALLER))
    assert (found.status, found.keep_as) == (statuses.DELIVERY_LIMIT, statuses.DELIVERY_LIMIT)


def test_a_delivery_limit_elsewhere_is_not_poison() -> None:
    found = verdict(letter("delivery_limit", "core-orphan", reply_to=A_CALLER))
    assert (found.status, found.keep_as) == (statuses.DELIVERY_LIMIT, None)


@pytest.mark.parametrize("reply_to", [None, "", "core-orphan", "core-req-7", "other-orphan", b"\xff"])
def test_what_cannot_be_answered_is_kept(reply_to: str | bytes | None) -> None:
    found = verdict(letter("expired", reply_to=reply_to))
    assert (found.status, found.keep_as) == (None, statuses.EXPIRED)


def test_what_did_not_die_on_the_broker_is_kept_as_it_came() -> None:
    assert verdict(letter(None, reply_to=A_CALLER)).keep_as == NOT_DEAD_LETTERED
    assert verdict(letter("made up", reply_to=A_CALLER)).keep_as == "made up"
    assert verdict(letter(7, reply_to=A_CALLER)).keep_as == NOT_DEAD_LETTERED
    assert verdict(letter(None, reply_to=A_CALLER)).status is None


def test_what_has_headers_that_cannot_be_read_is_answered_or_kept_with_the_reason() -> None:
    unread = replace(letter(None, reply_to=A_CALLER), malformed="too long")
    found = verdict(unread)
    assert (found.status, found.keep_as, found.reason) == (statuses.INVALID_REQUEST, None, "too long")
    found = verdict(replace(unread, properties=Properties(reply_to="core-orphan")))
    assert (found.status, found.keep_as, found.reason) == (None, statuses.INVALID_REQUEST, "too long")


def test_a_caller_that_has_its_answer_is_not_answered_again() -> None:
    message = letter("delivery_limit", reply_to=A_CALLER, more={headers.X_ANSWERED: True})
    assert (verdict(message).status, verdict(message).keep_as) == (None, statuses.DELIVERY_LIMIT)


def test_a_client_cannot_make_its_own_request_vanish_by_marking_it_answered() -> None:
    assert verdict(letter("expired", reply_to=A_CALLER, more={headers.X_ANSWERED: True})).status == statuses.EXPIRED


def test_the_key_is_that_of_the_first_publish() -> None:
    deaths = [{"routing-keys": ["newest"]}, {"routing-keys": ["oldest"]}]
    assert dead_letter_rules.original_key(letter(more={"x-death": deaths})) == "oldest"
    assert dead_letter_rules.original_key(letter()) == "42"


@pytest.mark.parametrize("deaths", ["x", [], ["x"], [{}], [{"routing-keys": []}], [{"routing-keys": "x"}]])
def test_a_death_record_that_cannot_be_read_leaves_the_routing_key(deaths: object) -> None:
    assert dead_letter_rules.original_key(letter(more={"x-death": deaths})) == "42"


def test_a_kept_copy_says_why_and_never_expires_or_fans_out() -> None:
    message = letter(more={"CC": ["7"], "BCC": ["8"]}, expiration="5", user_id="guest", correlation_id="7")
    copy = dead_letter_rules.kept(
        message, poison_id="7f", reason="expired", detail="late", key="42", queue="core-req-42", now_ms=9
    )
    assert (copy.expiration, copy.user_id, copy.delivery_mode, copy.correlation_id) == (None, None, 2, "7")
    assert copy.headers.items() >= {
        (headers.X_POISON_ID, "7f"),
        (headers.X_POISON_REASON, "expired"),
        (headers.X_POISON_DETAIL, "late"),
        (headers.X_POISON_KEY, "42"),
        (headers.X_POISON_QUEUE, "core-req-42"),
        (headers.X_POISON_TIME, 9),
    }
    assert not {"CC", "BCC"} & set(copy.headers)
    assert message.properties.headers["CC"] == ["7"]


def test_a_dead_letter_goes_back_with_the_mark_only_when_its_caller_was_answered() -> None:
    message = letter("delivery_limit", reply_to=A_CALLER, user_id="guest", more={"CC": ["core-req-7"]})
    marked = dead_letter_rules.put_back(message, answered=True)
    assert marked.headers[headers.X_ANSWERED] is True
    assert marked.user_id is None
    assert "CC" not in marked.headers
    unmarked = dead_letter_rules.put_back(message, answered=False)
    assert headers.X_ANSWERED not in unmarked.headers
    assert unmarked.headers[headers.X_FIRST_DEATH_REASON] == "delivery_limit"


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.lists(st.integers(), max_size=2),
)
names = st.sampled_from((headers.X_FIRST_DEATH_REASON, headers.X_FIRST_DEATH_QUEUE, "x-death", headers.X_ANSWERED))


@given(st.dictionaries(names, values), st.none() | st.text(max_size=12), st.text(max_size=9) | st.binary(max_size=9))
def test_every_dead_letter_is_answered_or_kept_and_none_makes_the_decision_fail(
    given_headers: dict[str, Any], reply_to: str | None, key: str | bytes
) -> None:
    message = Message(b"", "core-dl-xchg", key, Properties(headers=given_headers, reply_to=reply_to), 1, False)
    found = verdict(message)
    assert found.status is not None or found.keep_as is not None
    dead_letter_rules.put_back(message, answered=found.status is not None)
    dead_letter_rules.kept(message, poison_id="x", reason="x", detail="x", key=found.key, queue=found.queue, now_ms=0)
    dead_letter_rules.entered(message, message_ttl=60.0)
