"""The activity listener: which events keep a key alive, and what they cost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from osrdyne.intake.activity_listener import ActivityListener
from osrdyne.metrics import Metrics
from osrdyne.state.delivery_history import PastDelivery
from osrdyne.state.pool import PoolState
from osrdyne.state.tracker import Status
from osrdyne.state.values import Phase, QueueState
from osrdyne_amqp import Message, Properties
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import events
from osrdyne_protocol.event_batches import pack
from tests.unit.stand_ins import follower, running


class Listener:
    def __init__(self) -> None:
        self.now = 100.0
        self.state = PoolState.of(PoolSettings("core", unbind_delay=10.0, stop_delay=5.0), lambda: self.now)
        self.metrics = Metrics()
        self.listener = ActivityListener(self.state, self.metrics, debounce=1.0)
        self.wakes = follower(self.state.activity.changes)

    def event(self, event: object, key: str | bytes = "42", *, after: float = 0.0) -> None:
        self.now += after
        given: dict[str, Any] | None = None if event is None else {"x-event": event}
        self.listener.on_message(Message(b"", "core-activity-xchg", key, Properties(headers=given), 1, False))

    def message(self, headers: dict[str, Any], body: bytes, key: str | bytes = "42") -> None:
        self.listener.on_message(Message(body, "core-activity-xchg", key, Properties(headers=headers), 1, False))

    def woken(self) -> bool:
        keys = bool(self.wakes._keys)
        self.wakes._keys.clear()
        return keys

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"osrdyne_{name}", labels) or 0.0

    def counted(self, kind: str) -> float:
        value = self.metrics.registry.get_sample_value("osrdyne_activity_events_total", {"event": kind})
        return value or 0.0


@pytest.fixture
def listener() -> Listener:
    made = Listener()
    made.state.queues["42"] = QueueState(Phase.UNBOUND)
    return made


def test_that_a_worker_stops_is_noted_until_one_says_that_it_consumes_and_renews_nothing(listener: Listener) -> None:
    def noted() -> tuple[object, ...]:
        activity = listener.state.activity["42"]
        return activity.consuming_at, activity.stopping_at, activity.last_event

    listener.event(events.STOPPING)
    assert listener.state.activity == {}
    listener.event(events.STARTED)
    assert noted() == (100.0, None, 100.0)
    until = dict(listener.state.tracker.wanted)
    listener.event(events.STOPPING, after=2.0)
    assert noted() == (100.0, 102.0, 100.0)
    assert listener.state.tracker.wanted == until
    # What it reports of its last request is not a consumer
    listener.event(events.FINISHED, after=2.0)
    listener.event(events.ALIVE, after=2.0)
    assert noted() == (100.0, 102.0, 106.0)
    listener.event(events.REQUEST_RECEIVED, after=2.0)
    assert noted() == (108.0, None, 108.0)


@pytest.mark.parametrize("event", sorted(events.ACTIVITY - {events.STARTED}))
def test_activity_of_a_key_with_a_queue_requires_it_with_the_burst_s_length(listener: Listener, event: str) -> None:
    listener.event(event)
    assert listener.state.tracker.wanted["42"].until == 100.0 + 1.0 + 10.0


def test_an_event_may_be_a_byte_array(listener: Listener) -> None:
    listener.event(b"request-received")
    assert "42" in listener.state.tracker.wanted


@pytest.mark.parametrize("event", [events.STOPPING, *sorted(events.LIFECYCLE), None, "made-up", 7, b"\xff"])
def test_what_is_not_activity_requires_nothing(listener: Listener, event: object) -> None:
    listener.event(event)
    assert not listener.state.tracker.wanted
    assert not listener.state.activity


@pytest.mark.parametrize("key", ["7", "a\0b", b"\xff\xfe", "x" * 300])
def test_an_event_of_a_key_without_a_queue_wakes_nothing(listener: Listener, key: str | bytes) -> None:
    listener.event(events.STARTED, key)
    assert not listener.state.tracker.wanted
    assert not listener.state.activity
    assert listener.counted("unknown_key") + listener.counted("unreadable") == 1


def test_only_the_first_event_of_a_burst_goes_on(listener: Listener) -> None:
    listener.event(events.REQUEST_RECEIVED)
    assert listener.woken()
    for _ in range(5):
        listener.event(events.REQUEST_RECEIVED, after=0.1)
        assert not listener.woken()
    assert listener.state.tracker.wanted["42"].until == 111.0
    assert listener.state.activity["42"].last_taken == pytest.approx(100.5)
    listener.event(events.FINISHED, after=0.6)
    assert listener.woken()


def test_starts_alone_keep_a_key_no_longer_than_one_delay(listener: Listener) -> None:
    # Given a key that had a request, and a worker that crashes at each of its starts
    listener.state.require("42")
    listener.event(events.STARTED, after=5.0)
    assert listener.state.tracker.wanted["42"].until == 105.0 + 1.0 + 10.0
    for _ in range(5):
        listener.event(events.STARTED, after=2.0)
        assert listener.woken()
    # Then its later starts count for nothing
    assert listener.state.tracker.wanted["42"].until == 116.0
    listener.state.tracker.advance(116.0)
    listener.state.tracker.advance(121.0)
    listener.event(events.STARTED, after=11.0)
    assert "42" not in listener.state.tracker.wanted


@pytest.mark.parametrize("asked", [events.REQUEST_RECEIVED, events.FINISHED, events.ALIVE, "orphan"])
def test_a_start_counts_again_after_a_request(listener: Listener, asked: str) -> None:
    listener.state.require("42")
    listener.event(events.STARTED)
    if asked == "orphan":
        listener.state.require("42", found_unbound=True)
    else:
        listener.event(asked, after=0.1)  # within the burst of the start
    listener.event(events.STARTED, after=9.0)
    assert listener.state.tracker.wanted["42"].until == listener.now + 1.0 + 10.0


def test_a_slow_first_start_makes_a_key_active_that_was_unbound_meanwhile(listener: Listener) -> None:
    listener.state.require("42")
    listener.state.tracker.advance(110.0)
    listener.event(events.STARTED, after=12.0)
    assert listener.state.tracker.wanted["42"].status is Status.ACTIVE


def test_a_start_that_counts_for_nothing_does_not_hide_the_request_that_follows(listener: Listener) -> None:
    listener.state.require("42")
    listener.event(events.STARTED)
    listener.event(events.STARTED, after=5.0)
    listener.event(events.REQUEST_RECEIVED, after=0.1)
    assert listener.state.tracker.wanted["42"].until == pytest.approx(105.1 + 1.0 + 10.0)


def test_a_start_is_reported_at_once_also_within_a_burst(listener: Listener) -> None:
    listener.event(events.REQUEST_RECEIVED)
    listener.woken()
    listener.event(events.STARTED, after=0.1)
    assert listener.woken()


@pytest.mark.looptime
async def test_a_key_is_forgotten_with_its_queue_and_no_other(listener: Listener) -> None:
    listener.state.queues["7"] = QueueState(Phase.UNBOUND)
    for key in ("42", "7"):
        listener.event("started", key)
    async with running(listener.listener.run()):
        await asyncio.sleep(0)
        listener.state.queues.pop("42")
        # One that has a queue again keeps what it reported
        for key in ("42", "7"):
            listener.state.queues.forgotten.add(key)
        await asyncio.sleep(1.0)
        assert list(listener.state.activity) == ["7"]
    assert listener.state.queues.forgotten.readers == []


def test_each_event_of_a_batch_counts(listener: Listener) -> None:
    batched_events: list[dict[str, str | int]] = [
        events.headers(events.REQUEST_RECEIVED, now_ms=1, worker_id="w1", request_id="r1"),
        events.headers(events.REQUEST_RECEIVED, now_ms=2, worker_id="w1", request_id="r2"),
        events.headers(events.FINISHED, now_ms=3, worker_id="w1", request_id="r1", outcome="ok"),
        {"x-event": "made-up"},
    ]
    [message] = pack(batched_events)
    listener.message(dict(message.headers), message.body)
    assert [listener.counted(event) for event in (events.REQUEST_RECEIVED, events.FINISHED, "unreadable")] == [2, 1, 1]
    assert "42" in listener.state.tracker.wanted
    assert listener.state.activity.delivery_history.of("42", "r1") == ()
    assert listener.state.activity.delivery_history.of("42", "r2") == (PastDelivery("w1", 2),)


@pytest.mark.parametrize("body", [b"", b"[{", b"[1]", b'[{"x-event": "alive"}]' + b" " * 64_000])
def test_a_batch_that_cannot_be_read_is_counted_and_wakes_nothing(listener: Listener, body: bytes) -> None:
    listener.message({"x-event": "batch", "x-batch-version": 1}, body)
    assert listener.counted("unreadable") == 1
    assert not listener.state.tracker.wanted


def test_events_of_any_json_type_do_no_harm(listener: Listener) -> None:
    odd: list[Any] = [None, True, 1.5, -1, 10**30, "", "\0", [], {}, ["alive"]]
    names = ("x-event", "x-event-time", "x-request-id", "x-worker-id", "x-outcome")
    batched_events = [
        {"x-event": "request-received", "x-request-id": "r", "x-worker-id": "w", name: value}
        for name in names
        for value in odd
    ]
    listener.message({"x-event": "batch", "x-batch-version": 1}, json.dumps(batched_events).encode())
    assert listener.counted("unreadable") == len(odd)
    assert listener.counted("request-received") == (len(names) - 1) * len(odd)
    for delivery in listener.state.activity.delivery_history.of("42", "r"):
        assert abs(delivery.time_ms) < 2**63


def test_the_report_of_an_interruption_is_not_activity(listener: Listener) -> None:
    listener.event(events.INTERRUPTED)
    assert (listener.counted("own"), listener.state.tracker.wanted) == (1, {})


# --- metrics ------------------------------------------------------------------------------------------------------


def test_the_start_of_a_worker_for_which_a_request_woke_its_key_is_a_cold_start(listener: Listener) -> None:
    listener.state.tally.woken["42"] = listener.now
    listener.event(events.STARTED, after=3.0)
    # No request waited for a second worker, or for one that starts again
    listener.event(events.STARTED, after=1.0)
    assert listener.sample("cold_start_seconds_count") == 1
    assert listener.sample("cold_start_seconds_sum") == 3.0


def test_a_key_that_still_had_its_worker_when_it_was_woken_has_no_cold_start(listener: Listener) -> None:
    listener.state.tally.woken["42"] = listener.now
    listener.event(events.REQUEST_RECEIVED, after=0.1)
    listener.event(events.STARTED, after=3600.0)
    assert listener.sample("cold_start_seconds_count") == 0


@pytest.mark.looptime
async def test_a_key_that_leaves_without_a_worker_is_not_waited_for(listener: Listener) -> None:
    listener.state.tally.woken["42"] = listener.now
    async with running(listener.listener.run()):
        await asyncio.sleep(0)
        listener.state.queues.pop("42")
        listener.state.queues.forgotten.add("42")
        await asyncio.sleep(1.0)
    assert listener.state.tally.woken == {}


def test_requests_are_counted_by_the_outcome_that_workers_report(listener: Listener) -> None:
    for outcome in ("ok", "ok", b"error", "requeued", "made-up", None):
        listener.message({"x-event": events.FINISHED} | ({} if outcome is None else {"x-outcome": outcome}), b"")
    assert [listener.sample("requests_total", outcome=outcome) for outcome in ("ok", "error", "other")] == [2, 1, 2]


@pytest.mark.parametrize("value", [-1, 86_400_001, 1 << 70, True, 1.5, "7", [7]])
def test_a_time_in_the_queue_that_cannot_be_is_not_measured(listener: Listener, value: object) -> None:
    listener.message({"x-event": events.REQUEST_RECEIVED, "x-queued-ms": 1500}, b"")
    listener.message({"x-event": events.REQUEST_RECEIVED, "x-queued-ms": value}, b"")
    listener.message({"x-event": events.REQUEST_RECEIVED}, b"")
    assert listener.sample("queue_seconds_count") == 1
    assert listener.sample("queue_seconds_sum") == 1.5
    assert listener.counted(events.REQUEST_RECEIVED) == 3
