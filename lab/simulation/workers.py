"""A worker of the simulation: it speaks the wire protocol at its plainest, and fails as its request says."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from osrdyne_amqp import Channel, Connection, Message, Properties
from osrdyne_amqp.errors import BrokerError, Nacked
from osrdyne_amqp.event_line import EventLine
from osrdyne_protocol import events, headers, statuses
from osrdyne_protocol.names import is_reply_address
from simulation import scenario
from simulation.scenario import Kind

if TYPE_CHECKING:
    from simulation.world import World

#: Seconds between two attempts to connect, or to send a reply that was refused.
_PAUSE_SECONDS = 0.7

#: How the end of a worker that a request killed is reported.
DIED_AT_WORK = "killed the worker"

#: Name of the tasks in which workers watch their connections.
WATCH = "worker: watch the connection"

Inbox = asyncio.Queue[Message | str]
_STOP, _LOST, _CANCELLED = "stop", "lost", "cancelled"


class WorkerCrashed(Exception):
    """The worker's process died."""


class Worker:
    """One process that serves one key. `run` returns when it was asked to stop, and raises `WorkerCrashed`."""

    def __init__(self, world: World, key: str, name: str) -> None:
        self._world = world
        self._key = key
        self.name = name
        self._inbox: Inbox = asyncio.Queue()
        self._stopping = False
        #: It has stopped by itself, and its process stays until the engine asks it to stop.
        self._stays = self._says_so = False
        self._asked = asyncio.Event()
        self._sessions = 0
        #: A connection for events alone, as the worker library has one; None for a worker with one connection.
        self._line: EventLine | None = None
        #: Name of its connection, while it has one.
        self.connection: str | None = None

    def stop(self) -> None:
        """Ask it to finish what it holds and end, as SIGTERM does."""
        self._stopping = True
        self._asked.set()
        self._inbox.put_nowait(_STOP)

    def stay(self, *, says_so: bool) -> None:
        """Have it stop to consume without an end of its process."""
        self._stays, self._says_so = True, says_so
        self._inbox.put_nowait(_STOP)

    async def run(self) -> None:
        while not self._stopping and not self._stays:
            try:
                await self._session()
            except BrokerError as error:
                self._world.note("worker lost its session", self.name, self._key, str(error))
                await asyncio.sleep(_PAUSE_SECONDS)
            finally:
                self.connection = None
        if self._stays:
            await self._asked.wait()

    async def _session(self) -> None:
        world = self._world
        self._sessions += 1
        name = f"{self.name}.{self._sessions}"
        connection = await world.broker.open(world.uris["worker"], name=name)
        self.connection = name
        watching = asyncio.get_running_loop().create_task(connection.wait_closed(), name=WATCH)
        inbox: Inbox = asyncio.Queue()
        if self._stopping or self._stays:
            inbox.put_nowait(_STOP)
        self._inbox = inbox
        if world.scenario.kind is Kind.EVENTS:
            self._line = EventLine(
                world.names.activity_exchange,
                partial(world.broker.open, world.uris["worker"], name=f"{name}.events"),
                sender=self.name,
                key=self._key,
            )
        watching.add_done_callback(lambda _: inbox.put_nowait(_LOST))
        try:
            await self._serve(connection, inbox)
        finally:
            watching.cancel()
            await connection.close()
            if self._line is not None:
                await self._line.close()

    async def _serve(self, connection: Connection, inbox: Inbox) -> None:
        names = self._world.names
        replies = await connection.channel(confirm=True)
        while True:
            requests = await connection.channel(prefetch=1)
            self._tell(requests, events.STARTED)
            tag = await requests.consume(
                names.request_queue(self._key), inbox.put_nowait, on_cancel=lambda: inbox.put_nowait(_CANCELLED)
            )
            while (news := await inbox.get()) is not _CANCELLED:
                if news is _LOST:
                    return
                if news is _STOP:
                    await self._drain(requests, replies, tag, inbox)
                    return
                assert isinstance(news, Message)
                await self._work(news, requests, replies)
            # Its queue is gone, or the broker lost patience: what it holds goes back with the channel.
            await requests.close()
            if self._stopping or self._stays:
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _drain(self, requests: Channel, replies: Channel, tag: str, inbox: Inbox) -> None:
        if self._says_so:
            self._tell(requests, events.STOPPING)
        await requests.cancel(tag)
        while not inbox.empty():
            news = inbox.get_nowait()
            if isinstance(news, Message):
                await self._work(news, requests, replies)

    async def _work(self, message: Message, requests: Channel, replies: Channel) -> None:
        plan = self._world.request_plan(message.body.decode())
        do, work = (plan.do, plan.work) if plan is not None else (scenario.ANSWER, 0.05)
        self._tell(requests, events.REQUEST_RECEIVED, message)
        await asyncio.sleep(work)
        if do == scenario.CRASH:
            if self.connection is not None:
                self._world.broker.kill(self.connection)
            raise WorkerCrashed(f"request {message.body!r} {DIED_AT_WORK}")
        if do == scenario.HANG:
            await asyncio.get_running_loop().create_future()
        if do == scenario.REJECT:
            requests.reject(message.delivery_tag, requeue=False)
        elif do == scenario.REQUEUE or (do == scenario.REQUEUE_ONCE and not message.redelivered):
            requests.reject(message.delivery_tag, requeue=True)
        else:
            await self._reply(message, replies)
            requests.ack(message.delivery_tag)
            self._world.note("served", self.name, message.body.decode())

    async def _reply(self, message: Message, replies: Channel) -> None:
        reply_to = message.properties.reply_to
        if not is_reply_address(reply_to):
            return
        properties = Properties(
            correlation_id=message.properties.correlation_id, headers={headers.X_STATUS: statuses.OK}, delivery_mode=2
        )
        while True:
            try:
                await replies.publish_final("", reply_to, message.body, properties)
                return
            except Nacked:
                await asyncio.sleep(_PAUSE_SECONDS)

    def _tell(self, channel: Channel, event: str, message: Message | None = None) -> None:
        values = {headers.X_EVENT: event, headers.X_WORKER_ID: self.name}
        if message is not None and message.properties.correlation_id is not None:
            values[headers.X_REQUEST_ID] = message.properties.correlation_id
        if self._line is not None:
            self._line.send(self._key, [values, {**values, headers.X_EVENT: events.ALIVE}])
        else:
            channel.send(self._world.names.activity_exchange, self._key, b"", Properties(headers=values))
