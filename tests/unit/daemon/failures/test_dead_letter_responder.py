"""The dead-letter responder under virtual time: the caller first, the inventory where one is due, and nothing twice."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import generate_latest

from osrdyne.broker.publisher import MessageRefused
from osrdyne.drivers.base import How, WorkerEnd
from osrdyne.failures import dead_letter_rules
from osrdyne.failures.dead_letter_responder import DeadLetterResponder
from osrdyne.failures.error_replies import ErrorReplies
from osrdyne.metrics import Metrics
from osrdyne.state.delivery_history import PastDelivery
from osrdyne.state.worker_ends import EndFact
from osrdyne_amqp import Message, Properties
from osrdyne_amqp.errors import BrokerTimeout, ConnectionLost, Nacked, Returned
from osrdyne_protocol import events, headers, statuses
from osrdyne_runtime.console.log_format import Repeats
from tests.unit.stand_ins import (
    A_CALLER,
    ANOTHER_CALLER,
    NAMES,
    SentMessage,
    SettledDeliveries,
    StandInLifecycle,
    StandInPublisher,
    state_of,
    until,
)

pytestmark = pytest.mark.looptime

REPLIES = ("", A_CALLER)
POISON, UNANSWERED, WAITING = (
    ("", queue) for queue in (NAMES.poison_queue, NAMES.unanswered_queue, NAMES.waiting_queue)
)
INVENTORY = (POISON, UNANSWERED, WAITING)
BACK = (NAMES.dead_letter_exchange, "42")


class Responder:
    """A responder on stand-ins."""

    def __init__(self, tasks: asyncio.TaskGroup, *, worker_reasons: bool = True) -> None:
        self.publisher = StandInPublisher()
        self.settled = SettledDeliveries()
        self.acked = self.settled.tags
        self.lifecycle = StandInLifecycle()
        self.metrics = Metrics()
        error_replies = ErrorReplies(NAMES, self.publisher, self.metrics)
        self.state = state_of()
        self.responder = DeadLetterResponder(
            state=self.state,
            deliveries=self.settled,
            publisher=self.publisher,
            error_replies=error_replies,
            lifecycle=self.lifecycle,
            metrics=self.metrics,
            tasks=tasks,
            prefetch=8,
            message_ttl=60.0,
            worker_reasons=worker_reasons,
        )
        self.delivered = 0

    def letter(self, reason: str = "expired", *, more: dict[str, Any] | None = None, **properties: Any) -> int:
        self.delivered += 1
        given = {headers.X_FIRST_DEATH_REASON: reason, headers.X_FIRST_DEATH_QUEUE: "core-req-42"} | (more or {})
        properties = {"reply_to": A_CALLER, "correlation_id": "7"} | properties
        self.deliver(Properties(headers=given, **properties))
        return self.delivered

    def deliver(self, properties: Any) -> None:
        message = Message(b"body", "core-dl-xchg", "42", properties, self.delivered, redelivered=False)
        self.responder.on_message(message)

    def sent(self, where: tuple[str, str]) -> list[SentMessage]:
        return self.publisher.sent_to(*where)


@asynccontextmanager
async def responding(**settings: bool) -> AsyncIterator[Responder]:
    async with asyncio.TaskGroup() as tasks:
        yield Responder(tasks, **settings)
        for task in list(tasks._tasks):
            task.cancel()


async def test_a_caller_gets_status_and_correlation_id_and_then_the_dead_letter_is_acknowledged() -> None:
    async with responding() as one:
        one.publisher.delay = 3.0
        tag = one.letter("expired")
        await asyncio.sleep(2.5)
        assert one.acked == []
        await until(lambda: one.acked == [tag], within=1.0)
        (reply,) = one.sent(REPLIES)
        assert reply.properties.correlation_id == "7"
        assert reply.properties.headers[headers.X_STATUS] == statuses.EXPIRED
        assert one.sent(POISON) == []
        assert ("dead-lettered", "42") in one.lifecycle.events


async def test_what_workers_failed_on_is_answered_first_and_then_kept() -> None:
    async with responding() as one:
        one.letter("delivery_limit")
        await until(lambda: one.acked == [1])
        assert [sent.routing_key for sent in one.publisher.sent] == [A_CALLER, NAMES.poison_queue]
        assert one.sent(POISON)[0].body == b"body"


def ended(one: Responder, ago: float, how: How = How.EXIT) -> None:
    reason = "worker exited with status 1: no such file"
    at, failed = one.state.clock() - ago, how is not How.STOPPED
    one.state.ends.note(EndFact("42", WorkerEnd(how, 1), reason, False, 0, at, failed))


@pytest.mark.parametrize("status", ["expired", "delivery_limit"])
async def test_a_caller_reads_how_workers_failed_while_its_request_waited(status: str) -> None:
    async with responding() as one:
        ended(one, ago=3.0)
        seen = {headers.X_FIRST_SEEN: events.wall_ms() - 5_000}
        one.letter(status, more=seen)
        await until(lambda: one.acked == [1])
        text = one.sent(REPLIES)[0].properties.headers[headers.X_REASON]
        assert text.endswith("; the last one failed: worker exited with status 1: no such file")
        assert one.lifecycle.reasons == [text]
        for kept in one.sent(POISON):
            assert kept.properties.headers[headers.X_POISON_DETAIL] == text


async def test_a_caller_reads_how_a_worker_failed_though_that_is_known_after_the_dead_letter() -> None:
    async with responding() as one:
        one.letter("delivery_limit", more={headers.X_FIRST_SEEN: events.wall_ms() - 5_000})
        await asyncio.sleep(0.5)
        ended(one, ago=0.0)
        await until(lambda: one.acked == [1])
        text = one.sent(REPLIES)[0].properties.headers[headers.X_REASON]
        assert text.endswith("; the last one failed: worker exited with status 1: no such file")
        assert one.sent(POISON)[0].properties.headers[headers.X_POISON_DETAIL] == text


async def test_a_caller_is_answered_though_no_worker_is_known_to_have_ended() -> None:
    async with responding() as one:
        one.letter("delivery_limit", more={headers.X_FIRST_SEEN: events.wall_ms() - 5_000})
        await until(lambda: one.acked == [1])
        assert one.sent(REPLIES)[0].properties.headers[headers.X_REASON] == (
            "workers took the request and failed, too often"
        )


async def test_a_caller_may_be_spared_how_workers_failed_and_the_inventory_has_it() -> None:
    async with responding(worker_reasons=False) as one:
        ended(one, ago=3.0)
        one.letter("delivery_limit", more={headers.X_FIRST_SEEN: events.wall_ms() - 5_000})
        await until(lambda: one.acked == [1])
        text = one.sent(REPLIES)[0].properties.headers[headers.X_REASON]
        assert text == "workers took the request and failed, too often"
        assert "no such file" in one.lifecycle.reasons[0]
        assert "no such file" in one.sent(POISON)[0].properties.headers[headers.X_POISON_DETAIL]


@pytest.mark.parametrize(
    ("status", "ago", "how"), [("expired", 9.0, How.EXIT), ("expired", 3.0, How.STOPPED), ("maxlen", 3.0, How.EXIT)]
)
async def test_what_did_not_end_the_request_is_not_its_reason(status: str, ago: float, how: How) -> None:
    async with responding() as one:
        ended(one, ago=ago, how=how)
        one.state.activity.note("42", "started", one.state.clock() - 1.0, "w")
        one.letter(status, more={headers.X_FIRST_SEEN: events.wall_ms() - 5_000})
        await until(lambda: one.acked == [1])
        assert "no such file" not in one.sent(REPLIES)[0].properties.headers[headers.X_REASON]


@pytest.mark.parametrize("life", [None, 10.0])
async def test_what_failed_before_a_request_came_is_why_it_expired_where_no_worker_has_lived_since(
    life: float | None,
) -> None:
    async with responding() as one:
        if life is not None:
            one.state.activity.note("42", "started", one.state.clock() - life, "w")
        ended(one, ago=9.0, how=How.NO_START)
        one.letter("expired", more={headers.X_FIRST_SEEN: events.wall_ms() - 5_000})
        await until(lambda: one.acked == [1])
        assert "no such file" in one.sent(REPLIES)[0].properties.headers[headers.X_REASON]


async def test_a_request_that_was_handed_out_has_the_failures_since_then() -> None:
    async with responding() as one:
        ended(one, ago=3.0)
        one.state.activity.delivery_history.add("42", "7", PastDelivery("w", events.wall_ms() - 1_000))
        one.letter("delivery_limit", more={headers.X_FIRST_SEEN: events.wall_ms() - 5_000})
        await until(lambda: one.acked == [1])
        assert "no such file" not in one.sent(REPLIES)[0].properties.headers[headers.X_REASON]


async def test_a_reply_that_is_returned_is_final() -> None:
    async with responding() as one:
        one.publisher.gone.add(A_CALLER)
        one.letter("expired")
        await until(lambda: one.acked == [1])
        assert len(one.publisher.sent) == 1


async def test_a_dead_letter_without_a_caller_is_kept_apart_from_failures_and_acknowledged() -> None:
    async with responding() as one:
        one.letter("expired", reply_to=None)
        await until(lambda: one.acked == [1])
        assert [sent.routing_key for sent in one.publisher.sent] == [NAMES.unanswered_queue]


async def test_a_copy_without_room_waits_in_a_queue_of_its_own_and_is_tried_again_as_it_is() -> None:
    async with responding() as one:
        one.publisher.refusing[POISON] = Nacked()
        one.letter("delivery_limit")
        await until(lambda: one.acked == [1])
        (waiting,) = one.sent(WAITING)
        # When it comes back from there, first to a full inventory and then to one with room
        died = {headers.X_FIRST_DEATH_REASON: "expired", headers.X_LAST_DEATH_QUEUE: NAMES.waiting_queue}
        again = copy.copy(waiting.properties)
        again.headers = waiting.properties.headers | died
        one.delivered += 1
        one.deliver(again)
        await until(lambda: len(one.sent(WAITING)) == 2)
        one.publisher.refusing.clear()
        one.delivered += 1
        one.deliver(again)
        await until(lambda: one.acked == [1, 2, 3])
        # Then it is what it was, its caller has one reply, and nothing went back to the dead letters
        assert one.sent(POISON)[-1].properties.headers == {
            name: value for name, value in waiting.properties.headers.items() if name not in headers.BROKER_ADDED
        }
        assert (len(one.sent(REPLIES)), one.sent(BACK)) == (1, [])
        assert len(one.lifecycle.events) == 1


async def test_what_the_broker_dropped_from_the_inventory_is_counted_and_gone() -> None:
    async with responding() as one:
        one.letter("maxlen", more={headers.X_LAST_DEATH_QUEUE: NAMES.unanswered_queue})
        await until(lambda: one.acked == [1])
        assert one.publisher.sent == []
        assert one.state.tally.dropped == 1
        assert 'osrdyne_poison_total{outcome="dropped"} 1.0' in generate_latest(one.metrics.registry).decode()


async def test_a_flood_of_dropped_requests_and_copies_is_a_few_lines_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    repeats = Repeats(limit=20, window=60.0, clock=asyncio.get_running_loop().time)
    caplog.handler.addFilter(repeats)
    try:
        async with responding() as one:
            one.publisher.refusing |= dict.fromkeys(INVENTORY, Nacked())
            for number in range(500):
                one.letter("maxlen", more={headers.X_LAST_DEATH_QUEUE: NAMES.unanswered_queue})
                one.letter("expired", reply_to=None, correlation_id=str(number))
            await until(lambda: len(one.acked) == 1000)
    finally:
        caplog.handler.removeFilter(repeats)

    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert 2 <= len(said) <= 40
    assert all(said.count(line) <= 20 for line in said)


async def test_in_a_pool_of_an_earlier_topology_all_is_kept_in_one_queue() -> None:
    async with responding() as one:
        one.publisher.refusing |= dict.fromkeys((UNANSWERED, WAITING), Returned("no such queue"))
        one.letter("expired", reply_to=None)
        await until(lambda: one.acked == [1])
        assert one.publisher.confirmed[-1].routing_key == NAMES.poison_queue


async def test_when_the_inventory_is_full_the_caller_is_answered_once_and_the_copy_goes_back_marked() -> None:
    async with responding() as one:
        one.publisher.refusing |= dict.fromkeys(INVENTORY, Nacked())
        one.letter("delivery_limit")
        await until(lambda: one.acked == [1])
        for round_ in (1, 2, 3):
            back = one.sent(BACK)[-1]
            assert back.properties.headers[headers.X_ANSWERED] is True
            one.delivered += 1
            one.deliver(back.properties)
            await until(lambda: len(one.acked) == round_ + 1)  # noqa: B023
        assert len(one.sent(REPLIES)) == 1
        # And it is kept when there is room again
        one.publisher.refusing.clear()
        one.delivered += 1
        one.deliver(one.sent(BACK)[-1].properties)
        await until(lambda: len(one.acked) == 5)
        assert len(one.sent(BACK)) == 4
        assert one.publisher.confirmed[-1].routing_key == NAMES.poison_queue
        # And it was one request
        assert one.metrics.registry.get_sample_value("osrdyne_requests_total", {"outcome": "delivery_limit"}) == 1


@pytest.mark.parametrize("reply_to", [A_CALLER, None])
async def test_a_dead_letter_that_keeps_going_back_has_one_event_for_its_answer_and_one_when_kept(
    reply_to: str | None,
) -> None:
    async with responding() as one:
        one.publisher.refusing |= dict.fromkeys(INVENTORY, Nacked())
        one.letter("delivery_limit", reply_to=reply_to)
        for round_ in range(1, 5):
            await until(lambda: len(one.acked) == round_)  # noqa: B023
            one.delivered += 1
            one.deliver(one.sent(BACK)[-1].properties)
        await until(lambda: len(one.acked) == 5)
        answered = 1 if reply_to else 0
        assert len(one.lifecycle.events) == answered
        # And once more when there is room
        one.publisher.refusing.clear()
        one.delivered += 1
        one.deliver(one.sent(BACK)[-1].properties)
        await until(lambda: len(one.lifecycle.events) == answered + 1)


async def test_a_full_inventory_does_not_stop_the_replies_of_others() -> None:
    async with responding() as one:
        one.publisher.refusing |= dict.fromkeys(INVENTORY, Nacked())
        for _ in range(200):
            one.letter("delivery_limit")
        one.letter("expired", reply_to=ANOTHER_CALLER)
        await until(lambda: len(one.sent(("", ANOTHER_CALLER))) == 1, within=0.1)
        assert len(one.sent(REPLIES)) == 200


@pytest.mark.parametrize("error", [MessageRefused("cannot be sent"), Nacked(), BrokerTimeout("no confirm")])
async def test_a_caller_that_cannot_be_answered_now_is_not_marked_as_answered(error: Exception) -> None:
    async with responding() as one:
        one.publisher.refusing[REPLIES] = error
        one.publisher.refusing |= dict.fromkeys(INVENTORY, Nacked())
        one.letter("expired")
        await until(lambda: one.acked == [1])
        (back,) = one.sent(BACK)
        assert headers.X_ANSWERED not in back.properties.headers
        # And it is not lost: once its caller can be answered, it is
        del one.publisher.refusing[REPLIES]
        one.delivered += 1
        one.deliver(back.properties)
        await until(lambda: one.acked == [1, 2])
        assert one.publisher.confirmed[-1].properties.headers[headers.X_STATUS] == statuses.EXPIRED


@pytest.mark.parametrize("error", [MessageRefused("cannot be sent"), Nacked(), BrokerTimeout("no confirm")])
async def test_a_reply_queue_that_takes_no_reply_costs_a_copy_not_the_session(error: Exception) -> None:
    async with responding() as one:
        one.publisher.refusing[REPLIES] = error
        one.letter("expired")
        one.letter("expired", reply_to=ANOTHER_CALLER)
        await until(lambda: 2 in one.acked, within=1.0)
        await until(lambda: sorted(one.acked) == [1, 2], within=30.0)
        assert len(one.sent(UNANSWERED)) == 1


@pytest.mark.parametrize("error", [Returned("no such queue"), MessageRefused("too large"), BrokerTimeout("no confirm")])
async def test_an_inventory_that_takes_no_copy_whatever_the_reason_costs_no_message(error: Exception) -> None:
    async with responding() as one:
        one.publisher.refusing |= dict.fromkeys(INVENTORY, error)
        one.letter("expired", reply_to=None)
        await until(lambda: one.acked == [1])
        assert len(one.sent(BACK)) == 1


async def test_a_dead_letter_that_cannot_go_back_either_stays_on_the_broker() -> None:
    async with responding() as one:
        one.publisher.refusing |= {**dict.fromkeys(INVENTORY, Nacked()), BACK: MessageRefused("too large")}
        one.letter("expired", reply_to=None)
        await asyncio.sleep(100.0)
        assert one.acked == []


def break_rules(monkeypatch: pytest.MonkeyPatch, where: object = dead_letter_rules, what: str = "decide") -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(where, what, fail)


@pytest.mark.parametrize(
    ("died_of", "died_in", "room", "reason"),
    [
        ("delivery_limit", "core-req-42", POISON, statuses.DELIVERY_LIMIT),
        ("delivery_limit", "core-orphan", UNANSWERED, statuses.INVALID_REQUEST),
        ("expired", "core-req-42", UNANSWERED, statuses.INVALID_REQUEST),
    ],
)
async def test_a_dead_letter_that_shows_a_bug_is_answered_and_kept_where_it_belongs(
    monkeypatch: pytest.MonkeyPatch, died_of: str, died_in: str, room: tuple[str, str], reason: str
) -> None:
    break_rules(monkeypatch)
    async with responding() as one:
        one.letter(died_of, more={headers.X_FIRST_DEATH_QUEUE: died_in})
        await until(lambda: one.acked == [1])
        (kept,), (reply,) = one.sent(room), one.sent(REPLIES)
        assert kept.properties.headers[headers.X_POISON_REASON] == reason
        assert kept.properties.headers[headers.X_POISON_QUEUE] == died_in
        assert kept.properties.headers[headers.X_POISON_KEY] == "42"
        assert (reply.properties.headers[headers.X_STATUS], reply.properties.correlation_id) == (reason, "7")


async def test_a_dead_letter_that_shows_a_bug_in_its_answer_is_kept_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_rules(monkeypatch, ErrorReplies, "reply")
    async with responding() as one:
        one.letter("delivery_limit")
        await until(lambda: one.acked == [1])
        assert len(one.sent(POISON)) == 1


async def test_a_dead_letter_that_shows_a_bug_after_its_answer_is_answered_once_and_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep, broken = ErrorReplies.keep, [True]

    async def fail_once(self: ErrorReplies, *given: Any, **named: Any) -> bool:
        if broken:
            raise ZeroDivisionError(broken.pop())
        return await keep(self, *given, **named)

    monkeypatch.setattr(ErrorReplies, "keep", fail_once)
    async with responding() as one:
        one.letter("delivery_limit")
        await until(lambda: one.acked == [1])
        assert (len(one.sent(REPLIES)), len(one.sent(POISON))) == (1, 1)


async def test_a_dead_letter_that_cannot_be_kept_for_a_bug_is_answered_once_and_ends_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_rules(monkeypatch, ErrorReplies, "keep")
    async with responding() as one:
        one.letter("delivery_limit")
        one.letter("expired")
        await until(lambda: one.acked == [2])
        assert len(one.sent(REPLIES)) == 2


async def test_a_bug_after_a_dead_letter_was_acknowledged_answers_and_settles_nothing_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_rules(monkeypatch, StandInLifecycle, "record")
    async with responding() as one:
        one.letter("expired")
        await until(lambda: "acknowledged" in caplog.text)
        assert (one.acked, len(one.publisher.sent)) == ([1], 1)


async def test_a_copy_that_waited_and_shows_a_bug_stays_among_what_workers_failed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with responding() as one:
        one.publisher.refusing[POISON] = Nacked()
        one.letter("delivery_limit")
        await until(lambda: one.acked == [1])
        (waiting,) = one.sent(WAITING)
        one.publisher.refusing.clear()
        break_rules(monkeypatch, dead_letter_rules, "kept_again")
        died = {headers.X_FIRST_DEATH_REASON: "expired", headers.X_LAST_DEATH_QUEUE: NAMES.waiting_queue}
        again = copy.copy(waiting.properties)
        again.headers = waiting.properties.headers | died
        one.delivered += 1
        one.deliver(again)
        await until(lambda: one.acked == [1, 2])
        kept = one.publisher.confirmed[-1]
        assert (kept.routing_key, kept.properties.headers[headers.X_POISON_KEY]) == (NAMES.poison_queue, "42")
        assert len(one.sent(REPLIES)) == 1


async def test_a_lost_connection_ends_the_session_and_settles_nothing() -> None:
    acked = list[int]()

    async def session() -> None:
        async with responding() as one:
            one.acked = acked
            one.publisher.refusing[REPLIES] = ConnectionLost()
            one.letter("expired")
            await asyncio.sleep(10.0)

    with pytest.raises(ExceptionGroup) as caught:
        await session()
    assert caught.group_contains(ConnectionLost)
    assert acked == []
