"""What becomes of an orphan: forwarded without what would break the forward, or answered with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne.intake import orphan_rules
from osrdyne.intake.orphan_rules import MAX_HOPS, ErrorAnswer, Forward, Origin
from osrdyne_amqp import Message, Properties
from osrdyne_protocol import headers, statuses

TTL = 60_000
NOW = 1_700_000_000_000


def orphan(routing_key: str | bytes = "42", *, malformed: str | None = None, **properties: Any) -> Message:
    return Message(b"body", "core-req-xchg", routing_key, Properties(**properties), 1, False, malformed)


def decided(message: Message, *, now: int = NOW) -> Forward | ErrorAnswer:
    return orphan_rules.decide(message, orphan_ttl_ms=TTL, now_ms=now)


def forwarded(message: Message, *, now: int = NOW) -> Forward:
    decision = decided(message, now=now)
    assert isinstance(decision, Forward), decision
    return decision


def answered(message: Message, *, now: int = NOW) -> str:
    decision = decided(message, now=now)
    assert isinstance(decision, ErrorAnswer), decision
    assert decision.reason
    return decision.status


@pytest.mark.parametrize("key", ["", "xchg", "leader", "a\nb", "a\rb", "50%", "a/b", "é", "~x", "k" * 255])
def test_any_key_is_forwarded_as_it_is(key: str) -> None:
    assert forwarded(orphan(key)).key == key


@pytest.mark.parametrize("routing_key", ["a\0b", b"\xff\xfe"])
def test_a_key_that_no_worker_can_be_given_is_answered(routing_key: str | bytes) -> None:
    assert answered(orphan(routing_key)) == statuses.INVALID_KEY


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_a_request_that_would_fan_out_is_refused(name: str) -> None:
    assert answered(orphan(headers={name: ["7"]})) == statuses.INVALID_REQUEST


def test_a_request_whose_properties_cannot_be_read_is_refused() -> None:
    assert answered(orphan(malformed="its properties cannot be read")) == statuses.INVALID_REQUEST


@pytest.mark.parametrize("reply_to", ["core-req-42", "other-orphan", "mine", "amq.rabbitmq.reply-to.g1h2AA.x", b"\xff"])
def test_a_reply_to_that_is_not_the_address_of_a_reply_queue_is_refused(reply_to: str | bytes) -> None:
    assert answered(orphan(reply_to=reply_to)) == statuses.REJECTED


def test_what_the_broker_added_and_the_users_name_do_not_travel_on() -> None:
    given_headers = {"x-death": [{}], "x-first-death-reason": "expired", "x-delivery-count": 3, "mine": "kept"}
    properties = forwarded(orphan(user_id="guest", correlation_id="7", headers=given_headers)).properties
    assert properties.user_id is None
    assert properties.correlation_id == "7"
    assert properties.headers == {"mine": "kept", headers.X_FIRST_SEEN: NOW, headers.X_HOPS: 1}


@pytest.mark.parametrize(
    ("user", "given", "found"),
    [
        ("u", {}, Origin("u")),
        (b"u", {}, Origin("u")),
        (None, {}, Origin("")),
        ("u", {headers.X_USER: "another", headers.X_LET_IN: True}, Origin("u")),
        (None, {headers.X_USER: "another", headers.X_LET_IN: True}, Origin("")),
        ("core-daemon", {headers.X_USER: "u", headers.X_LET_IN: True}, Origin("u", let_in=True)),
        ("core-daemon", {headers.X_USER: b"u", headers.X_LET_IN: 1}, Origin("u")),
        ("core-daemon", {headers.X_USER: ""}, Origin("")),
        # A client that logs in as the daemon, as in a pool with one user.
        ("core-daemon", {}, Origin("core-daemon")),
    ],
)
def test_a_note_of_the_user_counts_only_in_what_the_daemon_sent(
    user: str | bytes | None, given: dict[str, Any], found: Origin
) -> None:
    assert orphan_rules.origin(Properties(user_id=user, headers=given), "core-daemon") == found


def test_without_a_name_of_its_own_the_daemon_believes_no_note_and_writes_none() -> None:
    forged = Properties(headers={headers.X_USER: "another", headers.X_LET_IN: True})
    assert orphan_rules.origin(forged, None) == Origin("")
    assert orphan_rules.stamped(forged, NOW, let_in=True).headers == {headers.X_FIRST_SEEN: NOW}


def test_the_first_user_and_its_admission_travel_on_however_often_a_request_is_republished() -> None:
    properties = Properties(user_id="u")
    for let_in, noted in ((False, False), (True, True), (False, True)):
        properties = orphan_rules.stamped(properties, NOW, own_user="core-daemon", let_in=let_in)
        assert properties.user_id == "core-daemon"
        assert orphan_rules.origin(properties, "core-daemon") == Origin("u", let_in=noted)


def test_the_message_itself_is_left_as_it_came() -> None:
    message = orphan(user_id="guest", headers={"x-death": []}, expiration="5000")
    orphan_rules.at_publish(forwarded(message), now_ms=NOW + 10)
    orphan_rules.put_back(message.properties, seen_ms=NOW, orphan_ttl_ms=TTL)
    assert (message.properties.user_id, message.properties.headers) == ("guest", {"x-death": []})
    assert message.properties.expiration == "5000"


def test_forwards_are_counted_and_end() -> None:
    message = orphan(headers={headers.X_HOPS: 3})
    forward = forwarded(message)
    assert forward.hops == 3
    assert forward.properties.headers[headers.X_HOPS] == 4
    assert answered(orphan(headers={headers.X_HOPS: MAX_HOPS})) == statuses.UNROUTABLE


def test_an_orphan_ends_with_the_orphan_ttl_counted_from_first_sight() -> None:
    seen = {headers.X_FIRST_SEEN: NOW}
    assert forwarded(orphan(headers=seen), now=NOW + TTL - 1).deadline_ms == NOW + TTL
    assert answered(orphan(headers=seen), now=NOW + TTL) == statuses.EXPIRED


def test_the_clients_deadline_and_its_expiration_end_it_earlier() -> None:
    assert forwarded(orphan(headers={headers.X_DEADLINE: NOW + 500})).deadline_ms == NOW + 500
    assert answered(orphan(headers={headers.X_DEADLINE: NOW})) == statuses.EXPIRED
    assert forwarded(orphan(expiration="700")).deadline_ms == NOW + 700
    assert forwarded(orphan(expiration=b"700")).deadline_ms == NOW + 700
    both = orphan(expiration="700", headers={headers.X_DEADLINE: NOW + 500})
    assert forwarded(both).deadline_ms == NOW + 500


@pytest.mark.parametrize(
    "nonsense",
    [
        {headers.X_DEADLINE: None},
        {headers.X_HOPS: "many"},
        {headers.X_FIRST_SEEN: "then"},
        {headers.X_FIRST_SEEN: NOW + 10**12},
    ],
)
def test_our_own_headers_without_a_sensible_value_are_ignored(nonsense: dict[str, object]) -> None:
    forward = forwarded(orphan(headers=nonsense))
    assert forward.deadline_ms == NOW + TTL
    assert forward.properties.headers[headers.X_FIRST_SEEN] == NOW


@pytest.mark.parametrize("deadline", ["soon", str(NOW), b"1", True, NOW + 0.5, [NOW]])
def test_a_deadline_that_cannot_be_read_is_answered_and_not_ignored(deadline: object) -> None:
    answer = decided(orphan(headers={headers.X_DEADLINE: deadline}))

    assert isinstance(answer, ErrorAnswer)
    assert answer.status == statuses.INVALID_REQUEST
    assert answer.reason.startswith(f"x-deadline is {type(deadline).__name__} ")


def test_a_held_request_is_published_with_what_is_left_of_its_expiration() -> None:
    forward = forwarded(orphan(expiration="10000"))
    assert orphan_rules.at_publish(forward, now_ms=NOW + 4000).expiration == "6000"
    assert orphan_rules.at_publish(forward, now_ms=NOW + 9999).expiration == "1"


def test_a_request_whose_deadline_has_passed_is_not_published() -> None:
    for orphaned in (orphan(expiration="500"), orphan(headers={headers.X_DEADLINE: NOW + 500})):
        with pytest.raises(TimeoutError):
            orphan_rules.at_publish(forwarded(orphaned), now_ms=NOW + 500)
    with pytest.raises(TimeoutError):
        orphan_rules.at_publish(forwarded(orphan()), now_ms=NOW + TTL)


def test_a_request_with_a_deadline_only_gets_what_is_left_of_it_as_its_expiration() -> None:
    forward = forwarded(orphan(headers={headers.X_DEADLINE: NOW + 500}))
    assert orphan_rules.at_publish(forward, now_ms=NOW + 100).expiration == "400"
    # But not a time that a broker would not take
    far = forwarded(orphan(headers={headers.X_DEADLINE: NOW + 2**40}))
    assert orphan_rules.at_publish(far, now_ms=NOW).expiration is None


def test_a_request_with_neither_deadline_nor_expiration_gets_none() -> None:
    assert orphan_rules.at_publish(forwarded(orphan()), now_ms=NOW + 100).expiration is None


def test_elapsed_time_is_subtracted_once_however_often_a_request_comes_back() -> None:
    # Given a request that is held for a second at each of three forwards, and comes back at once
    message, now = orphan(expiration="10000"), NOW
    for _ in range(3):
        forward = forwarded(message, now=now)
        now += 1000
        message = orphan()
        message.properties.__dict__ = orphan_rules.at_publish(forward, now_ms=now).__dict__
    assert message.properties.expiration == "7000"
    assert forwarded(message, now=now).deadline_ms == NOW + 10_000


def test_a_request_that_is_put_back_keeps_its_clock_and_its_hops() -> None:
    message = orphan(expiration="10000", user_id="guest", headers={headers.X_HOPS: 2, "x-death": []})
    properties = orphan_rules.stamped(message.properties, NOW)
    assert properties.user_id is None
    assert properties.headers == {headers.X_HOPS: 2, headers.X_FIRST_SEEN: NOW, headers.X_DEADLINE: NOW + 10_000}
    again = orphan(expiration="10000", headers=properties.headers)
    assert orphan_rules.stamped(again.properties, NOW + 5000).headers == properties.headers
    assert answered(again, now=NOW + 10_000) == statuses.EXPIRED


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=5), st.binary(max_size=5)
)
names_of_ours = st.sampled_from((headers.X_HOPS, headers.X_FIRST_SEEN, headers.X_DEADLINE, "x-death", "CC", "mine"))


def test_what_goes_back_to_the_tail_lives_there_for_what_is_left_of_its_time_and_no_longer() -> None:
    properties = Properties()
    for number in range(4):
        seen = NOW + number * TTL // 4
        properties = orphan_rules.put_back(properties, seen_ms=seen, orphan_ttl_ms=TTL)
        assert properties.expiration == str(TTL - number * TTL // 4)
    late = orphan_rules.put_back(properties, seen_ms=NOW + 2 * TTL, orphan_ttl_ms=TTL)
    assert late.expiration == "1"


def test_its_time_in_the_orphan_queue_does_not_limit_a_request_in_its_request_queue() -> None:
    back = orphan_rules.put_back(Properties(), seen_ms=NOW, orphan_ttl_ms=TTL)
    forward = decided(Message(b"", "core-orphan-xchg", "42", back, 1, False), now=NOW + 1)
    assert isinstance(forward, Forward)
    assert orphan_rules.at_publish(forward, now_ms=NOW + 1).expiration is None
    assert headers.X_DEADLINE not in forward.properties.headers


@given(
    st.dictionaries(names_of_ours, values),
    st.none() | st.text(max_size=6) | st.binary(max_size=6),
    st.none() | st.text(max_size=12) | st.binary(max_size=12),
    st.one_of(st.text(max_size=300), st.binary(max_size=300)),
)
def test_no_message_can_make_the_decision_fail(
    given_headers: dict[str, Any], expiration: str | bytes | None, reply_to: str | bytes | None, key: str | bytes
) -> None:
    message = orphan(key, headers=given_headers, expiration=expiration, reply_to=reply_to)
    decision = decided(message)
    orphan_rules.stamped(message.properties, NOW)
    if isinstance(decision, Forward):
        assert NOW < decision.deadline_ms <= NOW + TTL
        orphan_rules.at_publish(decision, now_ms=NOW)
