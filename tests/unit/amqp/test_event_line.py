"""A line of events under virtual time: its connections come and go, and so do the broker's moods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from osrdyne_amqp import Properties
from osrdyne_amqp.errors import BrokerUnreachable, ConnectionLost, Unencodable
from osrdyne_amqp.event_line import LONGEST_PAUSE, MOST_WAITING, PATIENCE, EventLine

pytestmark = pytest.mark.looptime


class StandInConnection:
    """A connection and its one channel; `end` ends both."""

    def __init__(self, broker: StandInBroker) -> None:
        self._broker = broker
        self._ended: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        return not self._ended.done()

    @property
    def blocked(self) -> bool:
        return self._broker.blocked

    async def channel(self) -> StandInConnection:
        return self

    def send(self, exchange: str, key: str, body: bytes, properties: Properties) -> None:
        assert (exchange, body) == ("activity", b"")
        if key == "too long":
            raise Unencodable(key)
        self._broker.got.append(int((properties.headers or {})["n"]))
        if self._broker.refuses:
            self.end()

    async def wait_closed(self) -> ConnectionLost:
        return await asyncio.shield(self._ended)

    def end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(ConnectionLost("506"))

    async def close(self) -> None:
        self.end()


class StandInBroker:
    """Opens connections within a tenth of a second, unless it is away."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.opened: list[StandInConnection] = []
        self.attempts = 0
        #: Nobody can connect; publishers are to wait; the connection of whoever publishes is closed.
        self.away = self.blocked = self.refuses = False
        self.slowness = 0.1

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
    line = EventLine("activity", broker.open)
    yield line
    await line.close()
    assert not any(one.is_open for one in broker.opened)


def send(line: EventLine, *numbers: int) -> None:
    for number in numbers:
        line.send("42", {"n": number})


async def test_it_connects_once_there_is_something_to_send_and_keeps_the_order(
    broker: StandInBroker, line: EventLine
) -> None:
    await asyncio.sleep(60)
    assert broker.attempts == 0
    send(line, 1, 2)
    await line.settled()
    send(line, 3)
    assert (broker.got, broker.attempts, line.lost) == ([1, 2, 3], 1, 0)


async def test_a_lost_connection_is_made_anew_for_the_next_event_and_not_before(
    broker: StandInBroker, line: EventLine
) -> None:
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
    assert 60 / (LONGEST_PAUSE + 0.2) < broker.attempts < 2 * 60 / LONGEST_PAUSE + 8
    # And once they can be sent, what waits and what comes is
    broker.refuses = False
    await asyncio.sleep(LONGEST_PAUSE + 1)
    send(line, 600)
    assert broker.got[-50:] == list(range(551, 601))


async def test_what_a_connection_left_waiting_when_it_ended_needs_no_further_event_to_be_sent(
    broker: StandInBroker, line: EventLine
) -> None:
    broker.refuses = True
    send(line, 1, 2)
    await line.settled()
    assert broker.got == [1]
    broker.refuses = False
    await asyncio.sleep(LONGEST_PAUSE + 1)
    assert broker.got == [1, 2]


async def test_who_knows_that_the_broker_is_back_need_not_wait(broker: StandInBroker, line: EventLine) -> None:
    broker.away = True
    send(line, 1)
    await asyncio.sleep(60)
    broker.away = False
    line.open()
    await line.settled()
    assert broker.got == [1]


async def test_nobody_waits_long_for_a_connection(broker: StandInBroker, line: EventLine) -> None:
    broker.slowness = 3600
    line.open()
    began = asyncio.get_running_loop().time()
    await line.settled()
    assert asyncio.get_running_loop().time() - began == PATIENCE


async def test_what_waits_is_bounded_and_what_is_lost_is_counted(
    broker: StandInBroker, line: EventLine, caplog: pytest.LogCaptureFixture
) -> None:
    broker.away = True
    send(line, *range(MOST_WAITING + 7))
    assert line.lost == 7
    broker.away = False
    await asyncio.sleep(60)
    assert broker.got == list(range(7, MOST_WAITING + 7))
    line.send("too long", {"n": 1})
    assert line.lost == 8
    assert [record.__dict__["events"] for record in caplog.records if "were lost" in record.message] == [7]


async def test_a_broker_that_takes_nothing_for_now_gets_it_later(broker: StandInBroker, line: EventLine) -> None:
    send(line, 1)
    await line.settled()
    broker.blocked = True
    send(line, 2)
    await asyncio.sleep(60)
    broker.blocked = False
    await asyncio.sleep(2)
    assert (broker.got, broker.attempts) == ([1, 2], 1)


async def test_what_was_told_last_leaves_before_the_end(broker: StandInBroker) -> None:
    line = EventLine("activity", broker.open)
    send(line, 1)
    await line.close()
    send(line, 2)
    assert (broker.got, line.lost) == ([1], 1)
    assert not broker.opened[-1].is_open
