"""How many bytes of deliveries are in memory at once, and that none is lost by that."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne.broker.memory_limit import MemoryLimit
from osrdyne_amqp import Channel, Message, Properties
from tests.unit.stand_ins import running, until

pytestmark = pytest.mark.looptime


class Queue:
    """A queue of bodies with a prefetch, as a broker keeps it: what is given back goes to the front."""

    def __init__(self, sizes: list[int], *, limit: int, prefetch: int = 256) -> None:
        self.ready = deque(sizes)
        self._free = prefetch
        self._tag = 0
        self.unacknowledged: dict[int, int] = {}
        self.handled: list[int] = []
        self.given_back = 0
        self.deliveries = MemoryLimit(SettlingChannel(self), limit=limit)
        self.deliver()

    def deliver(self) -> None:
        while self.ready and len(self.unacknowledged) < self._free:
            self._tag += 1
            self.unacknowledged[self._tag] = size = self.ready.popleft()
            self.deliveries.on_message(Message(bytes(size), "x", "42", Properties(), self._tag, False))

    def ack(self, tag: int) -> None:
        del self.unacknowledged[tag]
        self.deliver()

    def give_back(self, tag: int) -> None:
        self.given_back += 1
        self.ready.appendleft(self.unacknowledged.pop(tag))
        asyncio.get_running_loop().call_soon(self.deliver)

    def handle(self, message: Message) -> None:
        self.handled.append(message.delivery_tag)

    def held(self) -> int:
        return sum(self.unacknowledged[tag] for tag in self.handled)

    def settle(self) -> None:
        self.deliveries.ack(self.handled.pop(0))


class SettlingChannel(Channel):
    """The channel on which the deliveries of a queue are settled."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        self._queue.ack(tag)

    def give_back(self, tag: int) -> None:
        self._queue.give_back(tag)


async def test_messages_that_fit_are_handled_at_once_and_in_order() -> None:
    queue = Queue([10, 20, 30], limit=100)
    async with running(queue.deliveries.run(queue.handle)):
        await until(lambda: queue.handled == [1, 2, 3], within=0.1)


async def test_what_would_go_beyond_the_bound_comes_again_when_there_is_room() -> None:
    queue = Queue([40] * 20, limit=100)
    async with running(queue.deliveries.run(queue.handle)):
        await asyncio.sleep(60.0)
        # Two that fit, and the one that may go beyond
        assert queue.held() == 120
        # And while nothing is settled, nothing is asked for again and again
        assert queue.given_back == 0
        for _ in range(20):
            await until(lambda: bool(queue.handled), within=2.0)
            assert queue.held() <= 140
            queue.settle()
        assert not queue.unacknowledged
        assert not queue.ready


async def test_headers_count_as_bodies_do() -> None:
    queue = Queue([], limit=1000)
    async with running(queue.deliveries.run(queue.handle)):
        for tag, headers in enumerate(({"text": "x"}, {f"h{number}": 0 for number in range(100)}, {}), start=1):
            queue.unacknowledged[tag] = 0
            queue.deliveries.on_message(Message(b"", "x", "42", Properties(headers=headers), tag, False, None, 600))
        await asyncio.sleep(60.0)
        # The second may go beyond; for the third there is no room
        assert queue.handled == [1, 2]
        assert queue.given_back == 0


async def test_a_message_larger_than_the_bound_is_handled_though_small_ones_never_cease() -> None:
    queue = Queue([10] * 5 + [500] + [10] * 1000, limit=100, prefetch=8)
    async with running(queue.deliveries.run(queue.handle)):
        await until(lambda: 500 in (queue.unacknowledged[tag] for tag in queue.handled), within=10.0)


async def test_one_beyond_the_bound_at_a_time() -> None:
    queue = Queue([500, 500, 10], limit=100)
    async with running(queue.deliveries.run(queue.handle)):
        await asyncio.sleep(5.0)
        assert [queue.unacknowledged[tag] for tag in queue.handled] == [500, 10]
        queue.settle()
        await until(lambda: queue.held() == 510, within=1.0)


async def test_a_large_message_that_is_held_for_long_does_not_hold_up_the_small_ones() -> None:
    queue = Queue([500] + [10] * 100, limit=100)
    async with running(queue.deliveries.run(queue.handle)):
        for _ in range(100):
            await until(lambda: len(queue.handled) > 1, within=2.0)
            queue.deliveries.ack(queue.handled.pop(1))
        assert list(queue.unacknowledged.values()) == [500]


async def test_giving_back_is_paced_while_messages_keep_coming() -> None:
    queue = Queue([60] * 200, limit=100, prefetch=50)
    async with running(queue.deliveries.run(queue.handle)):
        for _ in range(100):
            await asyncio.sleep(0.1)
            if queue.handled:
                queue.settle()
        # At most two fit in a round, each half second for ten seconds
        assert 0 < queue.given_back <= 45


async def test_what_arrives_once_the_session_ends_starts_nothing() -> None:
    queue = Queue([10], limit=100)
    task = asyncio.ensure_future(queue.deliveries.run(queue.handle))
    await asyncio.sleep(0)
    # When the session's tasks are cancelled, and the connection delivers in the same turn of the loop
    task.cancel()
    queue.ready.append(20)
    queue.deliver()
    await asyncio.gather(task, return_exceptions=True)
    assert queue.handled in ([], [1])


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 20))
def test_every_message_is_handled_and_the_bound_is_kept(sizes: list[int], prefetch: int) -> None:
    async def scenario() -> None:
        queue = Queue(sizes, limit=200, prefetch=prefetch)
        task = asyncio.ensure_future(queue.deliveries.run(queue.handle))
        done = 0
        while done < len(sizes):
            for _ in range(5):
                await asyncio.sleep(0)
            largest = max((queue.unacknowledged[tag] for tag in queue.handled), default=0)
            assert queue.held() <= 200 + largest
            if queue.handled:
                queue.settle()
                done += 1
            else:
                assert queue.unacknowledged
                # Time passes by itself in this loop
                await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    import looptime

    loop = looptime.new_event_loop(start=0)
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()
