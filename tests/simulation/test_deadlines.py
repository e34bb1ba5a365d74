"""What the checker says of a forward's deadline: when it left counts, and not when the broker read it."""

from __future__ import annotations

from typing import Any

import pytest

from osrdyne_protocol import headers
from simulation.checker import check
from simulation.model import Event, History
from simulation.model import history as kinds
from simulation.model.message import Message
from simulation.scenario import scenario
from simulation.virtual_time import EPOCH_MS
from simulation.world import FOREIGN_QUEUE, NAMES, Outcome

DAEMON = "daemon a1.1"
#: A seed whose wall clocks are right.
SEED = 3


def request(sent_at: float, deadline: float, publisher: str = DAEMON) -> Message:
    given = {headers.X_DEADLINE: EPOCH_MS + int(1000 * deadline), headers.X_HOPS: 1}
    properties: dict[str, Any] = {"headers": given, "correlation_id": "r"}
    return Message(1, NAMES.request_exchange, "42", properties, b"r", publisher, sent_at=sent_at)


def found(*events: Event) -> list[str]:
    history = History()
    history.events += events
    outcome = Outcome(scenario(SEED), history, 100.0, True, {}, [FOREIGN_QUEUE], [], [])
    return [text for number, text in check(outcome).broken if number == 2]


def forward(sent_at: float, read_at: float, deadline: float = 5.0) -> tuple[Event, Event]:
    message = request(sent_at, deadline)
    return (
        Event(1.0, kinds.DELIVERED, DAEMON, NAMES.orphan_queue, message),
        Event(read_at, kinds.PUBLISHED, DAEMON, NAMES.request_exchange, message, True),
    )


def test_a_forward_that_left_before_its_deadline_is_not_late_however_late_the_broker_reads_it() -> None:
    assert found(*forward(sent_at=4.999, read_at=60.0)) == []


@pytest.mark.parametrize("jumped_at", [None, 3.0])
def test_a_forward_that_left_a_millisecond_after_its_deadline_is_late(jumped_at: float | None) -> None:
    # Also where a wall clock was changed while it was held
    jumps = [] if jumped_at is None else [Event(jumped_at, "fault begins", "clock jumps")]
    seen, published = forward(sent_at=5.001, read_at=5.002)
    assert "was forwarded 1.0 ms after its deadline" in found(seen, *jumps, published)[0]


def test_of_an_orphan_that_was_seen_with_a_wrong_clock_nothing_is_asked() -> None:
    assert found(Event(0.5, "fault begins", "clock jumps"), *forward(sent_at=6.0, read_at=6.001)) == []


def test_a_forward_that_leaves_after_the_daemon_heard_of_an_alarm_is_a_mistake() -> None:
    seen, published = forward(sent_at=2.0, read_at=4.0)
    blocked, unblocked = Event(1.5, kinds.BLOCKED, DAEMON), Event(1.8, kinds.UNBLOCKED, DAEMON)
    assert "the broker had said that it reads nothing" in found(seen, blocked, published)[0]
    assert found(seen, blocked, unblocked, published) == []
    # And one that had left before it heard of it is none
    assert found(seen, Event(2.5, kinds.BLOCKED, DAEMON), published) == []
