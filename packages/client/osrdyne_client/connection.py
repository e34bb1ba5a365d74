"""One connection of a client, from open to loss: channels to publish on and a consumer of its replies.

Replies are acknowledged in batches, so that a reply on its way when the connection breaks comes again to the next
connection. A reply that was handled just before comes again, too, finds no call and is dropped. With direct reply-to
the broker keeps no replies: they need the channel that published, and end with it. The loss of any of these channels
is the loss of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from osrdyne_amqp import Channel, Connection, Message, Properties
from osrdyne_amqp.errors import BrokerError, BrokerTimeout, ChannelClosed, ConnectionLost, Returned
from osrdyne_amqp.lanes import Lanes
from osrdyne_calls.closing import CLOSE_SECONDS

#: The pseudo queue of RabbitMQ's direct reply-to.
DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"

#: A reply queue without a consumer is deleted after this many milliseconds, long enough for any reconnect. It is
#: classic, because RabbitMQ advises against short-lived quorum queues ("Quorum Queues: when not to use").
REPLY_QUEUE_ARGUMENTS = {"x-queue-type": "classic", "x-expires": 600_000}

#: Seconds for which replies wait to be acknowledged together. Measured with prefetch 1, it saves the broker a sixth of
#: its work for a call; 50 ms save no more.
ACK_TIME_SECONDS = 0.02
#: Seconds that connecting may take, by default.
CONNECT_SECONDS = 10.0
#: Code with which the broker closes a connection as it crashes, for example on a message that it cannot deliver.
CRASHED = 541


class CrashedOnReplies(ConnectionLost):
    """The broker crashed after it had let the client in, as the replies were to be consumed."""


class ClientConnection:
    """An open connection; made by `open`. It ends once: `lost` says why, `close` ends it."""

    def __init__(
        self,
        connection: Connection,
        publisher: Channel,
        consumer: Channel,
        queue: str | None,
        on_reply: Callable[[Message], None],
    ) -> None:
        #: The channels to publish requests on.
        self.lanes = Lanes(publisher, self._open_lane, blocked=self._is_blocked, broken=self._end)
        self._publisher = publisher
        self._connection = connection
        self._on_reply = on_reply
        self._consumer = consumer
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[BrokerError] = self._loop.create_future()
        self._last_tag = 0
        self._acking = False

    @classmethod
    async def open(
        cls,
        uri: str,
        *,
        name: str,
        timeout: float = CONNECT_SECONDS,
        confirm: bool,
        queue: str | None,
        on_reply: Callable[[Message], None],
        on_return: Callable[[Returned, Properties], None],
    ) -> ClientConnection:
        """Connect, declare the reply queue (`None`: use direct reply-to) and consume replies, within `timeout` seconds.

        Raises what `Connection.open` and the declarations raise, and CrashedOnReplies.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        connection = await Connection.open(uri, name=name, timeout=timeout)
        try:
            async with asyncio.timeout_at(deadline):
                publisher = await connection.channel(confirm=confirm)
                publisher.on_return = on_return
                consumer = publisher if queue is None else await connection.channel()
                self = cls(connection, publisher, consumer, queue, on_reply)
                await self._consume()
        except BaseException as error:
            await connection.close()
            if isinstance(error, TimeoutError):
                raise BrokerTimeout(
                    f"{connection.where}: connecting took longer than {timeout:g} s: the broker let the client in, "
                    "and does not answer what it asks"
                ) from None
            if isinstance(error, BrokerError) and error.code == CRASHED:
                raise CrashedOnReplies(str(error), code=CRASHED) from None
            raise
        return self

    @property
    def where(self) -> str:
        """The broker's address for people, without a password."""
        return self._connection.where

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._publisher.is_open

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker takes no messages over this connection; None while it does."""
        return self._connection.blocked_reason

    def _is_blocked(self) -> bool:
        return self._connection.blocked

    async def _open_lane(self) -> Channel:
        lane = await self._connection.channel(confirm=True)
        if self._queue is None:
            await self._consume_directly(lane)
        return lane

    async def _consume_directly(self, channel: Channel) -> None:
        await channel.consume(DIRECT_REPLY_TO, self._on_reply, on_cancel=self._on_cancel, no_ack=True)

    async def _consume(self) -> None:
        if self._queue is None:
            await self._consume_directly(self._consumer)
            return

        def on_message(message: Message) -> None:
            self._on_reply(message)
            self._last_tag = message.delivery_tag
            if not self._acking:
                self._acking = True
                self._loop.call_later(ACK_TIME_SECONDS, self._ack)

        await self._consumer.declare_queue(self._queue, arguments=REPLY_QUEUE_ARGUMENTS)
        await self._consumer.consume(self._queue, on_message, on_cancel=self._on_cancel)

    def _ack(self) -> None:
        self._acking = False
        if self._consumer.is_open:
            self._consumer.ack(self._last_tag, multiple=True)

    def _on_cancel(self) -> None:
        self._end(ChannelClosed("the broker cancelled the consumer of the reply queue"))

    def _end(self, reason: BrokerError) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)

    async def lost(self) -> BrokerError:
        """Wait until replies or confirms can no longer come, and return why."""
        waits = [
            asyncio.ensure_future(wait)
            for wait in (self._publisher.wait_closed(), self._consumer.wait_closed(), asyncio.shield(self._ended))
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for wait in waits:
                wait.cancel()

    async def close(self, *, delete_queue: bool = False, timeout: float = CLOSE_SECONDS) -> None:
        """Close the connection within `timeout` seconds. Never raises; with `delete_queue` the reply queue goes too.

        A broker that answers nothing, as in an alarm, deletes the queue when it reads this, or when the queue expires.
        """
        if delete_queue and self._queue is not None and self._consumer.is_open:
            timeout /= 2
            with contextlib.suppress(BrokerError, TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._consumer.delete_queue(self._queue)
        await self._connection.close(timeout)
