"""A queue's feed under virtual time: what ends its connection, what it takes then, and what ends the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from osrdyne.broker import queue_feed
from osrdyne.broker.memory_limit import MemoryLimit
from osrdyne.broker.queue_feed import QueueFeed
from osrdyne.errors import SessionEnded
from osrdyne_amqp.errors import BrokerError, BrokerTimeout, ConnectionLost

pytestmark = pytest.mark.looptime


class OnChannel:
    """A channel that begins to consume, or gets no answer."""

    def __init__(self, connection: OnConnection, prefetch: int) -> None:
        self.connection, self.prefetch = connection, prefetch

    async def consume(
        self, queue: str, on_message: Any, *, on_cancel: Any, no_ack: bool = False, arguments: Any = None
    ) -> str:
        if self.connection.refusing:
            raise BrokerTimeout
        self.connection.consumers.append(self.prefetch)
        return "tag"

    async def wait_closed(self) -> BrokerError:
        return await asyncio.shield(self.connection.ended)


class OnConnection:
    def __init__(self, *, refusing: bool = False) -> None:
        self.refusing = refusing
        self.ended: asyncio.Future[BrokerError] = asyncio.get_running_loop().create_future()
        #: The prefetch of each consumer that began.
        self.consumers: list[int] = []

    @property
    def is_open(self) -> bool:
        return not self.ended.done()

    def end(self, code: int) -> BrokerError:
        self.ended.set_result(ConnectionLost("ended", code=code))
        return self.ended.result()

    async def channel(self, *, prefetch: int) -> OnChannel:
        return OnChannel(self, prefetch)

    async def wait_closed(self) -> BrokerError:
        return await asyncio.shield(self.ended)

    async def close(self) -> None:
        if self.is_open:
            self.end(0)


class Broker:
    """Connections of a feed; each new one is handed to `on_open` a moment later."""

    def __init__(self, on_open: Callable[[OnConnection], object], *, refusing: bool = False) -> None:
        self.opened: list[OnConnection] = []
        self._on_open = on_open
        self._refusing = refusing

    async def connect(self) -> Any:
        self.opened.append(OnConnection(refusing=self._refusing))
        asyncio.get_running_loop().call_later(0.01, self._on_open, self.opened[-1])
        return self.opened[-1]

    async def run(self) -> None:
        def handle(channel: Any, tasks: asyncio.TaskGroup) -> MemoryLimit:
            return MemoryLimit(channel, limit=1)

        await QueueFeed("core-dl", self.connect, handle, prefetch=256).run()


async def test_after_a_message_that_ends_the_connection_one_is_taken_at_a_time_until_all_is_calm() -> None:
    broker = Broker(lambda channel: channel.end(541) if len(broker.opened) <= 3 else None)
    feed = asyncio.create_task(broker.run())
    await asyncio.sleep(1)
    assert [connection.consumers for connection in broker.opened] == [[256], [1], [1], [1]]
    await asyncio.sleep(10)
    assert [connection.consumers for connection in broker.opened] == [[256], [1], [1], [1, 256]]
    # And again
    broker.opened[-1].end(501)
    await asyncio.sleep(1)
    assert broker.opened[-1].consumers == [1]
    feed.cancel()


@pytest.mark.parametrize("code", [0, 320, 403])
async def test_any_other_end_of_the_connection_ends_the_session(code: int) -> None:
    broker = Broker(lambda channel: channel.end(code))
    with pytest.raises(ExceptionGroup) as caught:
        await broker.run()
    assert caught.group_contains(SessionEnded, match="ended")
    assert len(broker.opened) == 1


async def test_a_queue_whose_consumer_gets_no_answer_ends_the_session() -> None:
    broker = Broker(lambda _: None, refusing=True)
    with pytest.raises(ExceptionGroup):
        await broker.run()
    assert len(broker.opened) == 1


async def test_a_message_that_nothing_moves_away_is_tried_with_pauses_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_feed, "_MOST_QUICK_TRIES", 20)
    broker = Broker(lambda channel: channel.end(541))
    feed = asyncio.create_task(broker.run())
    await asyncio.sleep(0.5)
    assert len(broker.opened) >= 21
    quick = len(broker.opened)
    await asyncio.sleep(20)
    assert len(broker.opened) - quick <= 21
    feed.cancel()


@pytest.mark.parametrize("turns", range(12))
async def test_a_stop_is_heard_however_many_turns_of_the_loop_after_a_connection_has_ended_it_comes(turns: int) -> None:
    broker = Broker(lambda _: None)
    feed = asyncio.create_task(broker.run())
    await asyncio.sleep(1)
    broker.opened[-1].end(541)
    for _ in range(turns):
        await asyncio.sleep(0)
    feed.cancel()
    ended, _ = await asyncio.wait((feed,), timeout=60)
    feed.cancel()
    assert ended


async def test_a_feed_goes_on_after_its_connection_has_ended_in_the_midst_of_work() -> None:
    broker = Broker(lambda _: None)
    feed = asyncio.create_task(broker.run())
    for _ in range(3):
        await asyncio.sleep(10)
        broker.opened[-1].end(541)
    await asyncio.sleep(1)
    assert len(broker.opened) == 4
    assert not feed.done()
    feed.cancel()
