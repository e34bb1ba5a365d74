"""The feed of activity events: it outlives its connection, its channel and the activity queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from osrdyne.intake.activity_feed import ActivityFeed
from osrdyne_amqp.errors import AccessRefused, BrokerError, BrokerUnreachable, ConnectionLost, NotFound
from tests.unit.stand_ins import running

pytestmark = pytest.mark.looptime


class StandInConnection:
    """A connection, its channel and a consumer on it."""

    def __init__(self, broker: StandInBroker) -> None:
        self._broker = broker
        self.ended: asyncio.Future[BrokerError] = asyncio.get_running_loop().create_future()
        self.cancel: Callable[[], None] | None = None

    async def channel(self) -> StandInConnection:
        return self

    async def consume(
        self, queue: str, on_message: Any, *, on_cancel: Callable[[], None], no_ack: bool, arguments: Any
    ) -> None:
        assert (queue, no_ack) == ("core-activity", True)
        if self._broker.refuses is not None:
            raise self._broker.refuses
        self.cancel = on_cancel
        on_message("an event")

    async def wait_closed(self) -> BrokerError:
        return await asyncio.shield(self.ended)

    async def close(self) -> None:
        self._broker.open.remove(self)


class StandInBroker:
    def __init__(self) -> None:
        self.open: list[StandInConnection] = []
        self.away = False
        self.refuses: BrokerError | None = None
        self.attempts = 0

    async def connect(self) -> Any:
        self.attempts += 1
        if self.away:
            raise BrokerUnreachable("away")
        self.open.append(StandInConnection(self))
        return self.open[-1]


@pytest.fixture
def broker() -> StandInBroker:
    return StandInBroker()


async def test_a_lost_connection_is_opened_again_and_none_is_left_open(broker: StandInBroker) -> None:
    got: list[Any] = []
    async with running(ActivityFeed("core-activity", broker.connect, got.append).run()):
        await asyncio.sleep(1)
        broker.open[0].ended.set_result(ConnectionLost("gone"))
        await asyncio.sleep(10)
        assert (len(got), len(broker.open)) == (2, 1)
    assert broker.open == []


async def test_a_consumer_that_the_broker_cancels_is_started_again(broker: StandInBroker) -> None:
    got: list[Any] = []
    async with running(ActivityFeed("core-activity", broker.connect, got.append).run()):
        await asyncio.sleep(1)
        assert broker.open[0].cancel is not None
        broker.open[0].cancel()
        await asyncio.sleep(10)
        assert (len(got), len(broker.open)) == (2, 1)


@pytest.mark.parametrize("error", [NotFound("no queue"), AccessRefused("revoked")])
async def test_a_refusal_is_logged_once_a_minute_and_tried_again_until_it_is_over(
    broker: StandInBroker, error: BrokerError, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[Any] = []
    broker.refuses = error
    async with running(ActivityFeed("core-activity", broker.connect, got.append).run()):
        await asyncio.sleep(60)
        assert 60 / 5 <= broker.attempts <= 2 * 60 / 5 + 6
        record, *later = caplog.records
        assert "the stream of activity events cannot be used" in record.message
        assert len(later) <= 1
        assert record.__dict__["reason"] == str(error)
        broker.refuses = None
        await asyncio.sleep(10)
        assert got == ["an event"]
        assert caplog.records[-1].message == "the stream of activity events can be used again"


async def test_a_broker_that_is_away_ends_nothing(broker: StandInBroker) -> None:
    got: list[Any] = []
    broker.away = True
    async with running(ActivityFeed("core-activity", broker.connect, got.append).run()):
        await asyncio.sleep(60)
        broker.away = False
        await asyncio.sleep(10)
        assert got == ["an event"]
