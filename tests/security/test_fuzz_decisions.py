"""What is decided from a message: whatever it holds, there is a decision, and what is sent on can be encoded."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osrdyne.failures import dead_letter_rules
from osrdyne.intake import orphan_rules
from osrdyne.intake.activity_listener import ActivityListener
from osrdyne.metrics import Metrics
from osrdyne.state.pool import PoolState
from osrdyne.state.values import Phase, QueueState
from osrdyne_amqp import Message, Properties
from osrdyne_amqp.codec.frames import write_properties
from osrdyne_amqp.errors import Unencodable
from osrdyne_calls import handling
from osrdyne_calls.slots import Slots
from osrdyne_client import replies
from osrdyne_client.errors import RemoteError
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import events, headers, statuses
from osrdyne_protocol.names import PoolNames, is_reply_address
from testbed.suite import examples
from tests.security.arbitrary import FUZZ, HEADERS, MESSAGES, SHORT, VALUES

NAMES = PoolNames("core")
NOW = 1_700_000_000_000


#: Activity that is nearly right, of keys that exist and of others.
REPORTS = st.builds(
    Message,
    body=st.just(b""),
    exchange=st.just(NAMES.activity_exchange),
    routing_key=st.sampled_from(["42", b"42", "43", b"\xff", "", "\0"]),
    properties=st.builds(
        Properties,
        headers=st.fixed_dictionaries(
            {"x-event": st.sampled_from([*sorted(events.ACTIVITY), b"started"])},
            optional=dict.fromkeys(
                ("x-worker-id", "x-request-id", "x-event-time", "x-outcome", "x-duration-ms"), VALUES
            ),
        ),
    ),
    delivery_tag=st.just(1),
    redelivered=st.just(False),
)


def encodes(properties: Properties) -> None:
    """Only what the daemon expects may come of encoding."""
    try:
        write_properties(properties.__dict__)
    except Unencodable:
        return


@FUZZ
@given(MESSAGES)
def test_every_orphan_is_forwarded_or_answered(message: Message) -> None:
    decision = orphan_rules.decide(message, orphan_ttl_ms=600_000, now_ms=NOW)

    if isinstance(decision, orphan_rules.Forward):
        assert NOW < decision.deadline_ms <= NOW + 600_000
        encodes(orphan_rules.at_publish(decision, now_ms=min(NOW + 1000, decision.deadline_ms - 1)))
    else:
        assert decision.status in statuses.STATUSES
    encodes(orphan_rules.stamped(message.properties, NOW))


@FUZZ
@given(MESSAGES)
def test_every_dead_letter_is_answered_or_kept(message: Message) -> None:
    verdict = dead_letter_rules.decide(message, NAMES)

    assert verdict.status or verdict.keep_as or dead_letter_rules.was_answered(message)
    dead_letter_rules.entered(message, message_ttl=1800.0)
    dead_letter_rules.deliveries(message)
    kept = dead_letter_rules.kept(
        message, poison_id="p", reason="r", detail="d", key=verdict.key, queue=verdict.queue, now_ms=NOW
    )
    encodes(kept)
    encodes(dead_letter_rules.put_back(message, answered=True))


@pytest.mark.parametrize("digits", ["9" * 400, "9" * 5000])
def test_a_time_to_live_of_thousands_of_digits_is_none(digits: str) -> None:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    deaths = [{"time": time, "original-expiration": digits}]
    letter = Message(b"", "", "42", Properties(headers={"x-death": deaths}), 1, False)

    assert dead_letter_rules.entered(letter, message_ttl=10.0) == time.timestamp() - 10.0


@settings(FUZZ, max_examples=examples(60))
@given(st.lists(MESSAGES | REPORTS, max_size=10))
def test_activity_of_strangers_makes_no_keys_and_raises_nothing(messages: list[Message]) -> None:
    state = PoolState.of(PoolSettings.from_mapping({"name": "core"}), lambda: 0.0)
    state.queues["42"] = QueueState(Phase.UNKNOWN)
    listener = ActivityListener(state, Metrics(), debounce=1.0)

    for message in messages:
        listener.on_message(message)

    assert set(state.activity) <= {"42"}


@FUZZ
@given(MESSAGES)
def test_every_reply_is_an_answer_or_an_error(message: Message) -> None:
    assert isinstance(replies.read(message), replies.Reply | RemoteError)


@FUZZ
@given(st.lists(SHORT | VALUES, max_size=10))
def test_correlation_ids_of_strangers_free_no_slot(ids: list[object]) -> None:
    slots: Slots[str] = Slots(4, "client")
    mine = slots.take("call", now=0.0, deadline=10.0)

    for request_id in ids:
        assert slots.match(request_id) is None

    assert slots.match(mine) == "call"


@FUZZ
@given(HEADERS, SHORT)
def test_a_worker_reads_deadlines_and_reply_addresses_of_any_kind(given_headers: object, reply_to: object) -> None:
    table = given_headers if isinstance(given_headers, dict) else {}

    handling.deadline_of(table)
    is_reply_address(reply_to if isinstance(reply_to, str | bytes) else None)
    for name in table:
        headers.integer(table, name)
        headers.text(table[name])
