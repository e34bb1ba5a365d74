"""When a worker's events leave, under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, cast

import pytest

from osrdyne_amqp import Message, Properties
from osrdyne_calls.handling import Request, invoke
from osrdyne_protocol import events
from osrdyne_worker.events import GATHER_TIME_SECONDS, MOST_WAITING, ActivityEvents, queued_ms
from osrdyne_worker.in_flight import InFlight

pytestmark = pytest.mark.looptime


@dataclass(frozen=True)
class SentEvent:
    """An event that left."""

    event: str
    at: float
    headers: dict[str, str | int]


class Recorder:
    """Stands for a line: keeps what leaves, and when on the loop's clock."""

    def __init__(self) -> None:
        self.sent: list[SentEvent] = []
        #: How many events left at once, of each time.
        self.sizes: list[int] = []

    def send(self, key: str, sent: list[dict[str, str | int]]) -> None:
        assert key == "42"
        self.sizes.append(len(sent))
        now = asyncio.get_running_loop().time()
        self.sent += [SentEvent(str(headers["x-event"]), now, headers) for headers in sent]

    @property
    def names(self) -> list[str]:
        return [event.event for event in self.sent]

    @property
    def moments(self) -> list[float]:
        """When something left; what left together counts once."""
        return sorted({event.at for event in self.sent})


class Teller:
    """An activity and what left of it."""

    def __init__(self) -> None:
        self.line: Any = Recorder()
        self.activity = ActivityEvents(cast("Any", self.line), "42", "w1", alive_interval=10.0)

    def tell(self, *names: str, **fields: Any) -> None:
        for name in names:
            self.activity.tell(name, **fields)


@pytest.fixture
async def teller() -> Any:
    teller = Teller()
    yield teller
    teller.activity.close()


async def test_a_request_after_a_quiet_time_is_reported_at_once(teller: Teller) -> None:
    for _ in range(3):
        teller.tell(events.REQUEST_RECEIVED)
        assert teller.line.sent[-1].at == asyncio.get_running_loop().time()
        await asyncio.sleep(10 * GATHER_TIME_SECONDS)
    assert len(teller.line.sent) == 3


async def test_requests_that_follow_one_another_are_reported_together_and_in_order(teller: Teller) -> None:
    numbers = range(20)
    for number in numbers:
        teller.tell(events.REQUEST_RECEIVED, events.FINISHED, request_id=str(number))
        await asyncio.sleep(GATHER_TIME_SECONDS / 10)
    await asyncio.sleep(GATHER_TIME_SECONDS)
    # Twenty requests in two gathering times and a bit: one event at their begin, and the others in a batch after each
    assert len(teller.line.moments) == 3
    assert (len(teller.line.sizes), teller.line.sizes[0], sum(teller.line.sizes)) == (3, 1, 40)
    sent = [(event.event, event.headers["x-request-id"]) for event in teller.line.sent]
    assert sent == [(name, str(number)) for number in numbers for name in (events.REQUEST_RECEIVED, events.FINISHED)]


async def test_the_last_event_of_a_burst_does_not_wait_for_another(teller: Teller) -> None:
    teller.tell(events.REQUEST_RECEIVED, events.FINISHED)
    await asyncio.sleep(1.01 * GATHER_TIME_SECONDS)
    assert teller.line.names == [events.REQUEST_RECEIVED, events.FINISHED]


@pytest.mark.parametrize("name", [events.STARTED, events.ALIVE, events.STOPPING])
async def test_a_rare_event_leaves_at_once_and_after_all_earlier_events(teller: Teller, name: str) -> None:
    before = [events.REQUEST_RECEIVED, events.FINISHED, events.REQUEST_RECEIVED]
    teller.tell(*before, name)
    assert teller.line.names == [*before, name]


async def test_a_request_that_failed_a_worker_before_is_reported_at_once(teller: Teller) -> None:
    teller.tell(events.REQUEST_RECEIVED, events.FINISHED)
    teller.tell(events.REQUEST_RECEIVED, at_once=True)
    assert teller.line.names == [events.REQUEST_RECEIVED, events.FINISHED, events.REQUEST_RECEIVED]


async def test_a_worker_that_has_just_started_reports_its_first_request_at_once(teller: Teller) -> None:
    teller.tell(events.STARTED, events.REQUEST_RECEIVED)
    assert teller.line.names == [events.STARTED, events.REQUEST_RECEIVED]


async def test_a_burst_waits_only_in_a_bounded_number(teller: Teller) -> None:
    for _ in range(10 * MOST_WAITING):
        teller.tell(events.REQUEST_RECEIVED)
        assert len(teller.activity._waiting) < MOST_WAITING
    assert len(teller.line.sent) > 9 * MOST_WAITING


async def test_what_waits_leaves_when_it_is_flushed_and_only_once(teller: Teller) -> None:
    teller.tell(events.REQUEST_RECEIVED, events.FINISHED)
    teller.activity.flush()
    await asyncio.sleep(10 * GATHER_TIME_SECONDS)
    assert teller.line.names == [events.REQUEST_RECEIVED, events.FINISHED]


async def test_an_event_carries_the_time_at_which_it_happened_however_late_it_leaves(
    teller: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments: Iterator[int] = iter((1000, 2000, 3000))
    monkeypatch.setattr(events, "wall_ms", lambda: next(moments))
    teller.tell(events.REQUEST_RECEIVED, events.FINISHED, events.REQUEST_RECEIVED)
    await asyncio.sleep(2 * GATHER_TIME_SECONDS)
    assert [event.headers["x-event-time"] for event in teller.line.sent] == [1000, 2000, 3000]


async def test_the_end_of_a_request_has_the_class_of_the_error_and_nothing_that_it_says(teller: Teller) -> None:
    def handler(request: Request) -> bytes:
        raise {b"9": KeyError, b"html": HTTPException}[request.body]("a secret")

    for body in (b"9", b"html"):
        request = Request("42", body, {}, "id", False, None)
        work = InFlight(request, cast("Any", None), 1.0, 1.0, 1.0, outcome=invoke(handler, request), finished_at=1.5)
        teller.activity.finished(work)
    await asyncio.sleep(2 * GATHER_TIME_SECONDS)
    assert [event.headers["x-error"] for event in teller.line.sent] == ["KeyError", "http.client.HTTPException"]
    assert "secret" not in repr([event.headers for event in teller.line.sent])


async def test_a_worker_with_nothing_to_do_is_not_woken(teller: Teller) -> None:
    teller.tell(events.REQUEST_RECEIVED, events.FINISHED)
    await asyncio.sleep(3 * GATHER_TIME_SECONDS)
    assert teller.activity._gathering is None


# --- how long a request was in its queue --------------------------------------------------------------------------


def queued(published: object, *, serves_for: float = 60.0, redelivered: bool = False, **more: Any) -> int | None:
    headers = {"x-publish-time": published} | more.pop("headers", {})
    properties = Properties(headers=headers, **({"reply_to": "reply-a"} | more))
    message = Message(b"", "core-req-xchg", "42", properties, 1, redelivered)
    return queued_ms(message, serves_for=serves_for, now_ms=1_000_000)


async def test_a_request_that_found_a_worker_says_how_long_it_was_in_its_queue() -> None:
    assert queued(998_500) == 1500
    teller = Teller()
    teller.tell(events.REQUEST_RECEIVED, queued_ms=1500)
    assert teller.line.sent[0].headers["x-queued-ms"] == 1500


async def test_what_waited_for_a_start_was_tried_before_or_has_no_caller_does_not_count() -> None:
    # It was published before this worker began to consume
    assert queued(998_500, serves_for=1.4) is None
    # The daemon forwarded it
    assert queued(998_500, headers={"x-osrdyne-hops": 1}) is None
    assert queued(998_500, redelivered=True) is None
    assert queued(998_500, reply_to=None) is None


async def test_a_clock_that_is_a_little_ahead_counts_as_no_wait_and_any_other_wrong_one_not_at_all() -> None:
    assert queued(1_000_900) == 0
    assert queued(1_001_100) is None
    # An hour behind
    assert queued(1_000_000 - 3_600_000) is None


@pytest.mark.parametrize("published", [None, "998500", b"998500", 998_500.0, True, 1 << 63])
async def test_a_client_without_a_stamp_or_with_another_one_does_no_harm(published: object) -> None:
    assert queued(published) is None
