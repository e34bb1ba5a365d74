"""What the daemon remembers of who was given which request: bounded, and gone with the answer."""

from __future__ import annotations

from typing import Any

import pytest

from osrdyne.intake.activity_listener import ActivityListener
from osrdyne.metrics import Metrics
from osrdyne.state.delivery_history import LONGEST_ID, MOST_HANDOUTS, DeliveryHistory, PastDelivery
from osrdyne.state.values import Phase, QueueState
from osrdyne_amqp import Message, Properties
from tests.unit.stand_ins import state_of


def test_a_request_has_its_workers_in_order() -> None:
    record = DeliveryHistory()
    record.add("42", "7", PastDelivery("w-1", 1))
    record.add("42", "7", PastDelivery("w-2", 2))
    record.add("43", "7", PastDelivery("w-3", 3))
    assert record.of("42", "7") == (PastDelivery("w-1", 1), PastDelivery("w-2", 2))
    assert record.of("42", "8") == record.of(None, "7") == record.of("42", b"7") == ()


def test_only_the_requests_that_were_delivered_last_are_remembered() -> None:
    record = DeliveryHistory(most_requests=3)
    for number in range(5):
        record.add("42", str(number), PastDelivery("w", number))
        record.add("42", "old but busy", PastDelivery("w", number))
    assert len(record._requests) == 3
    assert [bool(record.of("42", request_id)) for request_id in ("0", "3", "4", "old but busy")] == [
        False,
        True,
        True,
        True,
    ]


def test_of_a_request_that_was_delivered_often_the_first_and_last_workers_are_remembered() -> None:
    record = DeliveryHistory()
    for number in range(1000):
        record.add("42", "7", PastDelivery("w", number))
    found = [delivery.time_ms for delivery in record.of("42", "7")]
    assert len(found) == MOST_HANDOUTS
    assert found[0] == 0
    assert found[-1] == 999


def test_ids_that_are_too_long_are_not_remembered() -> None:
    record = DeliveryHistory()
    record.add("42", "7" * (LONGEST_ID + 1), PastDelivery("w", 1))
    record.add("42", "7", PastDelivery("w" * (LONGEST_ID + 1), 1))
    assert not record._requests


@pytest.mark.looptime
async def test_events_of_workers_fill_and_empty_it() -> None:
    state = state_of()
    state.queues["42"] = QueueState(Phase.BOUND)
    listener = ActivityListener(state, Metrics(), debounce=1.0)

    def event(name: str, **more: Any) -> None:
        properties = Properties(headers={"x-event": name, **{k.replace("_", "-"): v for k, v in more.items()}})
        listener.on_message(Message(b"", "core-activity-xchg", "42", properties, 1, redelivered=False))

    event("request-received", x_request_id="7", x_worker_id=b"w-1", x_event_time=5)
    assert state.activity.delivery_history.of("42", "7") == (PastDelivery("w-1", 5),)
    event("finished", x_request_id="7", x_worker_id="w-1", x_outcome="requeued")
    assert state.activity.delivery_history.of("42", "7")
    event("finished", x_request_id="7", x_worker_id="w-1", x_outcome="ok")
    assert not state.activity.delivery_history._requests
    # And what a stranger leaves out or makes up does no harm
    event("request-received")
    event("request-received", x_request_id="7")
    event("request-received", x_request_id=7, x_worker_id=["w"])
    assert not state.activity.delivery_history._requests
