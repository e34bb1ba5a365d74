"""A line of events under virtual time: its connections come and go, and so do the broker's moods."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from osrdyne_amqp import Properties
from osrdyne_amqp.errors import BrokerUnreachable, ConnectionLost, Nacked, Unencodable
from osrdyne_amqp.event_line import LONGEST_PAUSE_SECONDS, MOST_UNCONFIRMED, MOST_WAITING, PATIENCE_SECONDS, EventLine
from osrdyne_protocol.event_batches import unpack

pytestmark = pytest.mark.looptime


class StandInConnection:
    """A connection and its one channel; `end` ends both."""

    def __init__(self, broker: StandInBroker) -> None:
        self._broker = broker
        self._ended: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()
        self._waiting: list[asyncio.Future[None]] = []
        self._dying = False

    @property
    def is_open(self) -> bool:
        return not self._ended.done()

    @property
    def blocked(self) -> bool:
        return self._broker.blocked

    async def channel(self, *, confirm: bool) -> StandInConnection:
        assert confirm
        return self

    def publish(self, exchange: str, key: str, body: bytes, properties: Properties) -> asyncio.Future[None]:
        assert exchange == "activity"
        if key == "too long":
            raise Unencodable(key)
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._broker.refuses or (properties.headers or {}).get("n") == self._broker.poison:
            self._waiting.append(confirmed)
            self._broker.refused.append(properties.headers or {})
            if self._broker.ends_later:
                self._dying = True
                asyncio.get_running_loop().call_later(0.1, self.end)
            else:
                self.end()
            return confirmed
        self._broker.messages += 1
        self._broker.published += 1
        for reported in unpack(properties.headers, body):
            if reported.get("x-event") == "interrupted":
                self._broker.interruptions.append((key, reported["x-worker-id"], reported["x-lost-events"]))
            else:
                self._broker.got.append(int(reported["n"]))
        if self._dying:
            self._waiting.append(confirmed)
        elif self._broker.confirms is True:
            confirmed.set_result(None)
        elif self._broker.confirms is False:
            confirmed.set_exception(Nacked())
        else:
            self._waiting.append(confirmed)
        return confirmed

    def send(self, exchange: str, key: str, body: bytes, properties: Properties) -> None:
        self._broker.published -= 1
        self.publish(exchange, key, body, properties).add_done_callback(lambda done: done.exception())

    async def wait_closed(self) -> ConnectionLost:
        return await asyncio.shield(self._ended)

    def end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(ConnectionLost("506"))
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_exception(ConnectionLost("506"))

    async def close(self) -> None:
        try:
            await asyncio.sleep(self._broker.closes_within)
        finally:
            self.end()


class StandInBroker:
    """Opens connections within a tenth of a second, unless it is away."""

    def __init__(self) -> None:
        self.got: list[int] = []
        #: Messages that were taken; key, sender and number of lost events of each `interrupted`.
        self.messages = 0
        self.interruptions: list[tuple[str, str, int]] = []
        #: Headers of what was refused.
        self.refused: list[dict[str, Any]] = []
        #: An event that ends the connection of its publisher.
        self.poison = -1
        #: It does so when more was published, of which nothing is confirmed.
        self.ends_later = False
        #: Publishes that wait for a confirm.
        self.published = 0
        #: Publishes are confirmed, refused one by one, or left without an answer.
        self.confirms: bool | None = True
        self.opened: list[StandInConnection] = []
        self.attempts = 0
        #: No connection can be opened; publishers have to wait; the connection of each publisher is closed.
        self.away = self.blocked = self.refuses = False
        self.slowness = 0.1
        #: Seconds for which it does not answer the close of a connection.
        self.closes_within = 0.0

    async def open(self) -> Any:
        self.attempts += 1
        await asyncio.sleep(self.slowness)
        if self.away:
            raise BrokerUnreachable("away")
        self.opened.append(StandInConnection(self))
        return self.opened[-1]


@pytest.fixture
async def broker() -> StandInBroker:
    return StandInBroker()


@pytest.fixture
async def line(broker: StandInBroker) -> AsyncIterator[EventLine]:
    line = EventLine("activity", broker.open, sender="w1", key="42")
    yield line
    await line.close()
    assert not any(connection.is_open for connection in broker.opened)


def send(line: EventLine, *numbers: int) -> None:
    for number in numbers:
        line.send("42", [{"n": number}])


async def test_it_connects_once_there_is_something_to_send_and_keeps_the_order(
    broker: StandInBroker, line: EventLine
) -> None:
    await asyncio.sleep(60)
    assert broker.attempts == 0
    send(line, 1, 2)
    await line.settled()
    send(line, 3)
    assert (broker.got, broker.attempts, line.lost) == ([1, 2, 3], 1, 0)


async def test_after_a_lost_connection_the_next_event_opens_a_new_one(broker: StandInBroker, line: EventLine) -> None:
    send(line, 1)
    await line.settled()
    broker.opened[-1].end()
    await asyncio.sleep(60)
    assert broker.attempts == 1
    send(line, 2, 3)
    await asyncio.sleep(1)
    assert (broker.got, broker.attempts) == ([1, 2, 3], 2)


async def test_events_that_end_their_connection_are_tried_with_growing_pauses(
    broker: StandInBroker, line: EventLine
) -> None:
    broker.refuses = True
    for number in range(600):
        send(line, number)
        await asyncio.sleep(0.1)
    assert 60 / (LONGEST_PAUSE_SECONDS + 0.2) < broker.attempts < 2 * 60 / LONGEST_PAUSE_SECONDS + 8
    # And each new connection risks only the report of the interruption
    assert {reported.get("x-event") for reported in broker.refused[1:]} == {"interrupted"}
    # And once events can be sent, all that were kept are sent, in order
    broker.refuses = False
    await asyncio.sleep(LONGEST_PAUSE_SECONDS + 1)
    send(line, 600)
    assert (broker.got, broker.interruptions, line.lost) == (list(range(601)), [("42", "w1", 0)], 0)


async def test_what_a_connection_left_waiting_when_it_ended_needs_no_further_event_to_be_sent(
    broker: StandInBroker, line: EventLine
) -> None:
    broker.refuses = True
    send(line, 1, 2)
    await line.settled()
    assert broker.got == []
    broker.refuses = False
    await asyncio.sleep(LONGEST_PAUSE_SECONDS + 1)
    assert broker.got == [1, 2]


async def test_a_program_that_knows_that_the_broker_is_back_can_end_the_pause(
    broker: StandInBroker, line: EventLine
) -> None:
    broker.away = True
    send(line, 1)
    await asyncio.sleep(60)
    broker.away = False
    line.open()
    await line.settled()
    assert broker.got == [1]


async def test_a_wait_for_a_connection_is_bounded(broker: StandInBroker, line: EventLine) -> None:
    broker.slowness = 3600
    line.open()
    began = asyncio.get_running_loop().time()
    await line.settled()
    assert asyncio.get_running_loop().time() - began == PATIENCE_SECONDS


async def test_what_waits_is_bounded_and_what_is_lost_is_counted(
    broker: StandInBroker, line: EventLine, caplog: pytest.LogCaptureFixture
) -> None:
    broker.away = True
    send(line, *range(MOST_WAITING + 7))
    assert line.lost == 7
    broker.away = False
    await asyncio.sleep(60)
    assert broker.got == list(range(7, MOST_WAITING + 7))
    # One event and one log line say how many were lost
    assert broker.interruptions == [("42", "w1", 7)]
    assert [record.__dict__["events"] for record in caplog.records if "were lost" in record.message] == [7]
    line.send("too long", [{"n": 1}])
    assert line.lost == 8
    send(line, 0)
    assert broker.interruptions[1:] == [("42", "w1", 1)]


async def test_what_is_lost_at_the_end_is_logged_also_where_the_broker_does_not_answer(
    broker: StandInBroker, line: EventLine, caplog: pytest.LogCaptureFixture
) -> None:
    send(line, 1)
    await line.settled()
    broker.blocked, broker.closes_within = True, 60
    send(line, 2, 3)
    await line.close()
    assert [record.__dict__["events"] for record in caplog.records if "were lost" in record.message] == [2]
    await asyncio.sleep(60)


async def test_a_broker_that_takes_nothing_for_now_gets_it_later(broker: StandInBroker, line: EventLine) -> None:
    send(line, 1)
    await line.settled()
    broker.blocked = True
    send(line, 2)
    await asyncio.sleep(60)
    broker.blocked = False
    await asyncio.sleep(2)
    assert (broker.got, broker.attempts) == ([1, 2], 1)


async def test_the_last_events_leave_before_the_end(broker: StandInBroker) -> None:
    line = EventLine("activity", broker.open, sender="w1", key="42")
    send(line, 1)
    await line.close()
    send(line, 2)
    assert (broker.got, line.lost) == ([1], 1)
    assert not broker.opened[-1].is_open


async def test_events_that_are_sent_together_leave_as_one_message(broker: StandInBroker, line: EventLine) -> None:
    line.send("42", [{"n": number} for number in range(300)])
    await line.settled()
    assert (broker.got, broker.messages) == (list(range(300)), 1)


async def test_what_the_broker_has_not_confirmed_is_sent_again_before_newer_events(
    broker: StandInBroker, line: EventLine
) -> None:
    broker.confirms = None
    send(line, 1, 2)
    await line.settled()
    broker.opened[-1].end()
    send(line, 3)
    broker.confirms = True
    await asyncio.sleep(LONGEST_PAUSE_SECONDS + PATIENCE_SECONDS)
    assert (broker.got, line.lost) == ([1, 2, 1, 2, 3], 0)


async def test_what_the_broker_has_confirmed_is_not_sent_again(broker: StandInBroker, line: EventLine) -> None:
    send(line, 1)
    await line.settled()
    await asyncio.sleep(1)
    broker.opened[-1].end()
    send(line, 2)
    await asyncio.sleep(LONGEST_PAUSE_SECONDS + PATIENCE_SECONDS)
    assert broker.got == [1, 2]


async def test_an_event_that_a_queue_refuses_is_lost_and_counted(broker: StandInBroker, line: EventLine) -> None:
    broker.confirms = False
    send(line, 1)
    await line.settled()
    await asyncio.sleep(1)
    assert line.lost == 1


async def test_events_flow_where_a_queue_never_confirms_and_those_that_are_kept_are_bounded(
    broker: StandInBroker, line: EventLine
) -> None:
    broker.confirms = None
    send(line, *range(5))
    await line.settled()
    send(line, *range(5, MOST_UNCONFIRMED + 5))
    assert (broker.got, len(line._unconfirmed)) == (list(range(MOST_UNCONFIRMED + 5)), MOST_UNCONFIRMED)
    # What is not kept waits for no confirm
    assert broker.published == MOST_UNCONFIRMED
    # And nothing is counted as lost: the broker has all of it
    await line.close()
    assert line.lost == 0


async def test_events_that_waited_for_a_blocked_broker_leave_once_it_is_free_although_none_follows(
    broker: StandInBroker, line: EventLine
) -> None:
    broker.away = True
    send(line, 1, 2)
    await asyncio.sleep(10)
    # When the broker is there again, and takes nothing for now
    broker.away, broker.blocked = False, True
    await asyncio.sleep(60)
    assert broker.got == []
    broker.blocked = False
    await asyncio.sleep(2)
    assert broker.got == [1, 2]


@pytest.mark.parametrize("ends_later", [False, True])
async def test_a_message_that_ends_every_connection_does_not_hold_up_the_others(
    broker: StandInBroker, line: EventLine, ends_later: bool
) -> None:
    broker.poison, broker.ends_later = 1, ends_later
    send(line, 1, 2, 3)
    await asyncio.sleep(120)
    # Those behind it may come again and again, because they left with it
    assert (set(broker.got), broker.got[-2:], line.lost) == ({2, 3}, [2, 3], 1)


async def test_the_number_of_lost_events_is_reported_although_more_are_lost_meanwhile(
    broker: StandInBroker, line: EventLine
) -> None:
    broker.confirms = None
    send(line, 0)
    await line.settled()
    broker.opened[-1].end()
    send(line, *range(1, MOST_WAITING + 4))
    # While a new connection waits for the confirm of its first event, more are lost
    await asyncio.sleep(LONGEST_PAUSE_SECONDS)
    send(line, *range(100))
    await asyncio.sleep(60)
    assert sum(reported[2] for reported in broker.interruptions) == line.lost > 0


async def test_a_line_that_ends_during_a_pause_tries_once_more(broker: StandInBroker, line: EventLine) -> None:
    broker.away = True
    send(line, 1)
    await asyncio.sleep(60.1)
    broker.away = False
    await line.close()
    assert (broker.got, line.lost) == ([1], 0)


async def test_a_long_outage_is_logged_about_once_a_minute(
    broker: StandInBroker, line: EventLine, caplog: pytest.LogCaptureFixture
) -> None:
    broker.away = True
    send(line, 1)
    await asyncio.sleep(600)
    logged = [record for record in caplog.records if "cannot be used" in record.message]
    assert 9 <= len(logged) <= 11


async def test_a_new_reason_within_an_outage_is_warned_of_at_once_and_only_once(
    broker: StandInBroker, line: EventLine, caplog: pytest.LogCaptureFixture
) -> None:
    def reasons() -> list[str]:
        found = [record for record in caplog.records if "cannot be used" in record.message]
        return [record.__dict__["reason"] for record in found if record.levelname == "WARNING"]

    broker.away = True
    send(line, 1)
    await asyncio.sleep(6)
    assert reasons() == ["away"]
    broker.away, broker.refuses = False, True
    await asyncio.sleep(6)
    assert reasons() == ["away", "506"]
    broker.away = True
    await asyncio.sleep(6)
    assert len(reasons()) == 2


async def test_a_queue_that_refuses_everything_leaves_no_error_behind_and_is_reported_each_time(
    broker: StandInBroker, line: EventLine, caplog: pytest.LogCaptureFixture
) -> None:
    broker.confirms = False
    for number in range(3):
        send(line, number)
        await asyncio.sleep(1)
    gc.collect()
    assert [reported[2] for reported in broker.interruptions] == [1, 1]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
