"""Publishing with confirms, and with protection from messages that break their channel.

A broker closes the channel on a message that it refuses outright (an expiration it cannot read, a body beyond
its limit). Everything else in flight there fails with it, and the broker does not say which message it was. So the
messages in flight are published again one by one on a separate channel; the one that breaks that channel too is
the culprit, and only it is refused.

A queue that does not answer delays only the messages that go to it: see `osrdyne_amqp.lanes`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from osrdyne.errors import DaemonError
from osrdyne_amqp import Channel, Connection, Properties, awake
from osrdyne_amqp.errors import AccessRefused, BrokerError, BrokerTimeout, Nacked, NotFound, Returned, Unencodable
from osrdyne_amqp.lanes import Lanes

T = TypeVar("T")


class MessageRefused(DaemonError):
    """The broker, or AMQP itself, cannot take this message."""


class _ConnectionBlocked(Exception):
    """The broker has blocked the connection before a message left."""


class Publisher:
    """Publishes with confirm on the daemon's one connection. `timeout` is the longest wait for a confirm, in seconds.

    While the broker has blocked the connection (an alarm), messages wait here, where their time can still be looked at.

    Methods raise `MessageRefused` for a message that can never be accepted, `Nacked` and `Returned` as the broker
    reports, `BrokerTimeout` without a confirm, and other `BrokerError` when the connection is gone or the pool is
    not set up (no such exchange, no permission), which is independent of the message.
    """

    def __init__(self, connection: Connection, *, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._lanes: Lanes | None = None
        self._suspects = asyncio.Lock()
        self._opening = asyncio.Lock()

    async def publish(
        self,
        exchange: str,
        routing_key: str | bytes,
        body: bytes,
        properties: Properties | Callable[[], Properties],
    ) -> None:
        """Publish and wait for the confirm. The message is mandatory: a return raises `Returned`.

        A function as `properties` is called each time that the message leaves, right before it does. What it raises
        ends this, and nothing was sent then.
        """
        publish_id = secrets.token_hex(8)

        def publish(channel: Channel) -> asyncio.Future[None]:
            given = properties() if callable(properties) else properties
            return channel.publish(exchange, routing_key, body, given, mandatory=True, publish_id=publish_id)

        await self._attempt((exchange, routing_key), publish)

    async def reply(self, reply_to: str | bytes, body: bytes, properties: Properties) -> bool:
        """Publish a reply and wait for the confirm; return False when its caller is gone, which is final."""
        return await self._attempt(
            ("", reply_to), lambda channel: channel.publish_final("", reply_to, body, properties)
        )

    async def _attempt(
        self, destination: tuple[str, str | bytes], publish: Callable[[Channel], asyncio.Future[T]]
    ) -> T:
        try:
            return await self._in_its_lane(destination, publish)
        except Unencodable as error:
            raise MessageRefused(str(error)) from error
        except (Nacked, Returned, BrokerTimeout):
            raise
        except BrokerError:
            if not self._connection.is_open:
                raise
        async with self._suspects:
            alone = await self._connection.channel(confirm=True)
            try:
                return await self._confirmed(publish(alone))
            except (Nacked, Returned, BrokerTimeout, NotFound, AccessRefused):
                raise
            except BrokerError as error:
                if not self._connection.is_open:
                    raise
                raise MessageRefused(str(error)) from error
            finally:
                if alone.is_open:
                    await alone.close()

    async def _in_its_lane(
        self, destination: tuple[str, str | bytes], publish: Callable[[Channel], asyncio.Future[T]]
    ) -> T:
        def leave(channel: Channel) -> asyncio.Future[T]:
            if self._connection.blocked:
                raise _ConnectionBlocked
            return publish(channel)

        while True:
            await self._connection.unblocked()
            lanes = await self._open()
            try:
                return await self._confirmed(lanes.publish(destination, leave))
            except _ConnectionBlocked:
                continue

    async def _confirmed(self, confirm: asyncio.Future[T]) -> T:
        try:
            # A broker in alarm withholds confirms until the alarm is over; keep waiting.
            return await awake.result_of(confirm, self._timeout, paused=lambda: self._connection.blocked)
        except awake.NotInTime:
            raise BrokerTimeout(f"no publisher confirm within {self._timeout:.0f} s") from None

    async def _open(self) -> Lanes:
        async with self._opening:
            if self._lanes is None:
                open_channel = partial(self._connection.channel, confirm=True)
                self._lanes = Lanes(await open_channel(), open_channel, blocked=lambda: self._connection.blocked)
            await self._lanes.reopen()
            return self._lanes
