"""A client of the simulation: it publishes with confirm, sends again what may be lost, and reads replies."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from osrdyne_amqp import Channel, Message, Properties
from osrdyne_amqp.errors import BrokerError, Nacked, Returned
from osrdyne_protocol import events, headers
from simulation.scenario import DIRECT, IN_POOL, QUEUE, RequestPlan

if TYPE_CHECKING:
    from simulation.world import World

#: Seconds between two attempts to connect or to publish.
_PAUSE_SECONDS = 0.5
_DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"


class Client:
    """One client program; `run` until cancelled. What happens to each request is noted in the history."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self.name = f"client {number}"
        self._reply_queue = f"reply-core-client-{number:032x}"
        self._channel: Channel | None = None
        #: Sent as soon as there is a connection.
        self._unsent: dict[str, RequestPlan] = {}
        #: Published, and neither confirmed nor refused.
        self._unknown: dict[str, RequestPlan] = {}
        self._sessions = 0
        #: Name of its connection, while it has one.
        self.connection: str | None = None

    @property
    def waits_for_confirms(self) -> bool:
        """Say whether it has requests that the broker has not confirmed."""
        return bool(self._unsent or self._unknown)

    async def run(self) -> None:
        while True:
            try:
                await self._session()
            except BrokerError as error:
                self._world.note("client lost its session", self.name, "", str(error))
            self._channel = self.connection = None
            self._unsent.update(self._unknown)
            self._unknown.clear()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _session(self) -> None:
        self._sessions += 1
        name = f"{self.name}.{self._sessions}"
        connection = await self._world.broker.open(self._world.uris["client"], name=name)
        self.connection = name
        try:
            channel = await connection.channel(confirm=True)
            lost = asyncio.Event()
            await channel.declare_queue(self._reply_queue, arguments={"x-expires": 600_000})
            await channel.consume(self._reply_queue, partial(self._take, channel), on_cancel=lost.set)
            await channel.consume(_DIRECT_REPLY_TO, partial(self._take, None), on_cancel=lost.set, no_ack=True)
            self._channel = channel
            for plan in list(self._unsent.values()):
                self._publish(plan)
            raise await channel.wait_closed()
        finally:
            await connection.close()

    def tell(self, key: str) -> None:
        """Send activity of a key that has no worker."""
        if self._channel is not None and self._channel.is_open:
            values = {headers.X_EVENT: events.ALIVE, headers.X_WORKER_ID: self.name}
            self._channel.send(self._world.names.activity_exchange, key, b"", Properties(headers=values))

    def send(self, plan: RequestPlan) -> None:
        """Publish a request, now or once there is a connection."""
        self._unsent[plan.name] = plan
        self._publish(plan)

    def _publish(self, plan: RequestPlan) -> None:
        channel = self._channel
        if channel is None or not channel.is_open or plan.name not in self._unsent:
            return
        del self._unsent[plan.name]
        self._unknown[plan.name] = plan
        reply_to = {
            DIRECT: _DIRECT_REPLY_TO,
            QUEUE: self._reply_queue,
            IN_POOL: self._world.names.orphan_queue,
        }.get(plan.reply)
        properties = Properties(
            correlation_id=plan.name,
            reply_to=reply_to,
            delivery_mode=2,
            expiration=None if plan.expiration is None else str(plan.expiration),
            headers={name: list(value) if isinstance(value, tuple) else value for name, value in plan.headers} or None,
        )
        self._world.note("asked", self.name, plan.name, self._sessions)
        confirm = channel.publish(
            self._world.names.request_exchange, plan.routing_key, plan.name.encode(), properties, mandatory=True
        )
        confirm.add_done_callback(partial(self._published, plan, self._sessions))

    def _published(self, plan: RequestPlan, session: int, confirm: asyncio.Future[None]) -> None:
        if confirm.cancelled():
            return
        error = confirm.exception()
        if error is None:
            self._unknown.pop(plan.name, None)
            self._world.note("request confirmed", self.name, plan.name, session)
        elif isinstance(error, Nacked):
            self._unknown.pop(plan.name, None)
            self._unsent[plan.name] = plan
            asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._publish, plan)
        elif isinstance(error, Returned):
            # Unless an earlier copy was taken, the client knows that no answer will come.
            self._unknown.pop(plan.name, None)
            self._world.note("request returned", self.name, plan.name)

    def _take(self, channel: Channel | None, message: Message) -> None:
        values = message.properties.headers or {}
        self._world.note(
            "answered",
            self.name,
            str(message.properties.correlation_id),
            headers.text(values.get(headers.X_STATUS)),
        )
        if channel is not None and channel.is_open:
            channel.ack(message.delivery_tag)
