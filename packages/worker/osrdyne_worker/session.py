"""One connection of a worker: it consumes the request queue and sends replies, each on a channel of its own.

When the broker closes a channel, everything on it is lost, so separate channels are used: a refused reply costs no
delivery, and a reply to a queue that does not answer delays no other (`lanes`). Activity events have a connection of
their own (`event_line`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from osrdyne_amqp import Channel, Connection, Message, Properties
from osrdyne_amqp.address import from_file, present
from osrdyne_amqp.errors import AccessRefused, BrokerError, InvalidUri, NotFound, Unencodable
from osrdyne_amqp.lanes import Lanes
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message and the session that has to settle it."""

    session: WorkerSession
    message: Message


class WorkerSession:
    """An open connection of a worker; made by `open`. It ends once: `lost` says why."""

    def __init__(
        self,
        environment: WorkerEnvironment,
        connection: Connection,
        requests: Channel,
        replies: Channel,
        prefetch: int,
    ) -> None:
        self._environment = environment
        self._connection = connection
        self._requests = requests
        #: Requests that the broker hands over at once, and by the present limit.
        self._most = self._limit = prefetch
        self._replies = Lanes(replies, partial(connection.channel, confirm=True), blocked=lambda: connection.blocked)
        self._consumer: str | None = None
        #: Set when the broker has cancelled the consumer.
        self.cancelled = asyncio.Event()

    @classmethod
    async def open(cls, environment: WorkerEnvironment, prefetch: int) -> WorkerSession:
        """Connect and open the channels. Raises what `Connection.open` raises."""
        connection = await connect(environment)
        try:
            requests = await connection.channel(prefetch=prefetch)
            return cls(environment, connection, requests, await connection.channel(confirm=True), prefetch)
        except BaseException:
            await connection.close()
            raise

    async def consume(self, on_delivery: Callable[[Delivery], None], *, one_by_one: bool = False) -> None:
        """Consume the request queue, perhaps one by one. Raises NotFound, and is lost, when there is none."""
        self.cancelled.clear()
        if (limit := 1 if one_by_one else self._most) != self._limit:
            await self._requests.limit(limit)
            self._limit = limit
        self._consumer = await self._requests.consume(
            self._environment.requests_queue,
            lambda message: on_delivery(Delivery(self, message)),
            on_cancel=self.cancelled.set,
        )

    async def has_queue(self) -> bool:
        """Return whether the request queue exists, or may. Raises BrokerError when the broker does not answer.

        RabbitMQ 4.2.6 and 4.3.0 answer only users who may configure the queue, and workers may not.
        """
        channel = await self._connection.channel()
        try:
            await channel.declare_queue(self._environment.requests_queue, passive=True)
        except NotFound:
            return False
        except AccessRefused:
            return True
        finally:
            await channel.close()
        return True

    async def stop_consuming(self) -> None:
        """Take no more deliveries; those received already can still be settled."""
        if self._consumer is not None and self.is_open:
            try:
                await self._requests.cancel(self._consumer)
            except BrokerError as error:
                log.warning("the consumer could not be cancelled", extra={"reason": str(error)})

    @property
    def is_open(self) -> bool:
        """Whether deliveries of this session can still be settled."""
        return self._requests.is_open

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker takes no replies over this connection; None while it does."""
        return self._connection.blocked_reason

    async def lost(self) -> BrokerError:
        """Wait until deliveries can no longer be settled, and return why."""
        return await self._requests.wait_closed()

    # --- settling: nothing when the session is lost, because the broker has requeued then -------------------

    def ack(self, tag: int) -> None:
        if self.is_open:
            self._requests.ack(tag)

    def reject(self, tag: int, *, requeue: bool) -> None:
        """Refuse a delivery: counted and redelivered with `requeue`, dead-lettered without."""
        if self.is_open:
            self._requests.reject(tag, requeue=requeue)

    def give_back(self, tag: int) -> None:
        """Return a delivery whose handler has not begun."""
        if self.is_open:
            self._requests.give_back(tag)

    # --- sending --------------------------------------------------------------------------------------------

    def reply(
        self, reply_to: str | bytes, body: bytes, properties: Properties, shorter: Properties
    ) -> asyncio.Future[bool]:
        """Send a reply; the result is False when its caller is gone.

        `shorter` is sent where `properties` do not fit in one frame. Fails with Nacked, or the reason for which the
        channel ended. Raises Unencodable, or fails with it.
        """

        def send(channel: Channel) -> asyncio.Future[bool]:
            try:
                return channel.publish_final("", reply_to, body, properties)
            except Unencodable:
                return channel.publish_final("", reply_to, body, shorter)

        return self._replies.publish(reply_to, send)

    async def reopen_replies(self) -> None:
        """Open the channel of replies again after the broker closed it. Raises BrokerError."""
        await self._replies.reopen()

    async def close(self) -> None:
        """Disconnect; sent data leaves first, and unsettled messages go back to the queue. Never raises."""
        await self._connection.close()


async def connect(environment: WorkerEnvironment, what: str = "") -> Connection:
    """Open a connection of a worker; its name says `what` it is for. Raises what `Connection.open` raises."""
    name = f"osrdyne worker {environment.id} of {environment.pool}"
    return await Connection.open(present_address(environment), name=f"{name}, {what}" if what else name)


def present_address(environment: WorkerEnvironment) -> str:
    """Return the present address: from the file, which may be newer, or the start's where the file is unreadable.

    Raises InvalidUri where there is only the file, and it cannot be read.
    """
    if environment.amqp_uri_file is not None:
        try:
            return present(from_file(environment.amqp_uri_file))
        except InvalidUri:
            if not environment.amqp_uri:
                raise
    return environment.amqp_uri
