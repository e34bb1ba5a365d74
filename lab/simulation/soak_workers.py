"""The workers of a soak: thousands at a time, so most share one connection; one is of the worker library.

To the daemon they look as if each had its own: it sees their consumers, events and settlements.
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING

from osrdyne_amqp import Channel, Message, Properties
from osrdyne_protocol import events, headers, statuses
from osrdyne_protocol.names import is_reply_address
from osrdyne_worker import Request, WorkerEnvironment, serve
from simulation import scenario
from simulation.workers import Worker

if TYPE_CHECKING:
    from simulation.world import World

#: Seconds of work, and channels that the workers share.
_WORK_SECONDS, _CHANNELS = 0.05, 32


class Fleet:
    """The connection that the workers share, opened by the first; each channel does one call at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._opening = asyncio.Lock()
        self._channels: list[Channel] = []
        self._turn = itertools.count()

    async def channel(self) -> Channel:
        async with self._opening:
            if not self._channels:
                connection = await self._world.broker.open(self._world.uris["worker"], name="fleet")
                self._channels = [await connection.channel(confirm=True, prefetch=1) for _ in range(_CHANNELS)]
        return self._channels[next(self._turn) % _CHANNELS]


class FleetWorker(Worker):
    """Answers, or rejects; one that is to crash needs a connection of its own."""

    def __init__(self, world: World, fleet: Fleet, key: str, name: str) -> None:
        super().__init__(world, key, name)
        self._fleet = fleet
        self._ended = asyncio.Event()
        self._in_hand = 0

    def stop(self) -> None:
        self._stopping = True
        if not self._in_hand:
            self._ended.set()

    async def run(self) -> None:
        channel = await self._fleet.channel()
        self._tell(channel, events.STARTED)
        queue = self._world.names.request_queue(self._key)
        tag = await channel.consume(queue, partial(self._take, channel), on_cancel=self._ended.set)
        await self._ended.wait()
        await channel.cancel(tag)

    def _take(self, channel: Channel, message: Message) -> None:
        self._in_hand += 1
        self._tell(channel, events.REQUEST_RECEIVED, message)
        self._world.loop.call_later(_WORK_SECONDS, self._finish, channel, message)

    def _finish(self, channel: Channel, message: Message) -> None:
        plan = self._world.request_plan(message.body.decode())
        if plan is not None and plan.do == scenario.REJECT:
            channel.reject(message.delivery_tag, requeue=False)
            self._finished()
        elif not is_reply_address(message.properties.reply_to):
            self._settle(channel, message)
        else:
            properties = Properties(
                correlation_id=message.properties.correlation_id,
                headers={headers.X_STATUS: statuses.OK},
                delivery_mode=2,
            )
            confirm = channel.publish_final("", message.properties.reply_to, message.body, properties)
            confirm.add_done_callback(lambda _: self._settle(channel, message))

    def _settle(self, channel: Channel, message: Message) -> None:
        channel.ack(message.delivery_tag)
        self._finished()

    def _finished(self) -> None:
        self._in_hand -= 1
        if self._stopping and not self._in_hand:
            self._ended.set()


class LibraryWorker(Worker):
    """A worker of the worker library, as its driver starts it."""

    #: Requests that such workers have served.
    served = 0

    def __init__(self, world: World, key: str, name: str) -> None:
        super().__init__(world, key, name)
        self._stop = asyncio.Event()
        names = world.names
        self._environment = WorkerEnvironment(
            name,
            key,
            names.pool,
            names.request_queue(key),
            names.activity_exchange,
            world.uris["worker"],
            consumer_timeout_ms=int(world.scenario.pool.consumer_timeout * 1000),
        )

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        await serve(_answer, self._environment, self._stop, prefetch=16)


async def _answer(request: Request) -> bytes:
    await asyncio.sleep(_WORK_SECONDS)
    LibraryWorker.served += 1
    return request.body
