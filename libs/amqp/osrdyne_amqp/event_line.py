"""A connection that carries only activity events, so that an event that the broker refuses disturbs no request.

A broker closes the whole connection of an event's publisher (506) while the pool's stream is unreachable, for example
for seconds after a kill (docs/rabbitmq-facts.md#messages-that-vanish). If deliveries used the same connection, each of
them would be redelivered, and counted as failed.

Connects when there is something to send, and again, with back-off, when the connection or its channel has ended.
Events leave in order. They are unconfirmed, so some may be lost; known losses are counted and logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

from osrdyne_amqp import Channel, Connection, Properties
from osrdyne_amqp.errors import BrokerError, Unencodable

logger = logging.getLogger(__name__)

#: First and longest pause before connecting again, in seconds; each is cut by up to half at random. An unreachable
#: stream is back within seconds, and a daemon can wait minutes for an event.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
#: A connection that lasted this many seconds resets the count of failures.
STABLE = 15.0
#: Most events that wait for a connection, about a megabyte; beyond this the oldest are dropped.
MOST_WAITING = 1000
#: Longest time in seconds for which `settled` and `close` wait for an attempt to connect.
PATIENCE = 2.0
#: Seconds between two checks of a connection that the broker has blocked (memory or disk alarm).
BLOCKED_PAUSE = 1.0


class EventLine:
    """Sends events to one exchange. Use it from one event loop; `close` ends it."""

    def __init__(self, exchange: str, connect: Callable[[], Awaitable[Connection]]) -> None:
        """`connect` opens a connection for the events alone, and raises `BrokerError`."""
        self._exchange = exchange
        self._connect = connect
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._waiting: deque[tuple[str | bytes, Mapping[str, str | int]]] = deque()
        self._task: asyncio.Task[None] | None = None
        #: Events wait to be sent, or `open` was called.
        self._wanted = asyncio.Event()
        #: `open` was called: connect without a pause.
        self._hurry = asyncio.Event()
        #: No attempt to connect is under way.
        self._settled = asyncio.Event()
        #: Runs while events wait for a broker that has blocked the connection.
        self._blocked: asyncio.TimerHandle | None = None
        self._closed = False
        #: Events that are known to be lost.
        self.lost = 0
        self._told_lost = 0

    def send(self, key: str | bytes, headers: Mapping[str, str | int]) -> None:
        """Send an event, now or when there is a connection. Never raises."""
        if self._closed:
            self.lost += 1
            return
        self._waiting.append((key, headers))
        if len(self._waiting) > MOST_WAITING:
            self._waiting.popleft()
            self.lost += 1
        self._flush()
        if self._waiting:
            self._want()

    def open(self) -> None:
        """Connect at once if there is no connection: the caller knows that the broker may be there again."""
        if not self._closed and not self._is_open:
            self._settled.clear()
            self._hurry.set()
            self._want()

    async def settled(self) -> None:
        """Wait until no attempt to connect is under way, for at most `PATIENCE` seconds."""
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._settled.wait()

    async def close(self) -> None:
        """Send waiting events if possible, and disconnect. Takes some seconds at most, and never raises."""
        if self._waiting:
            await self.settled()
        self._closed = True
        if self._blocked is not None:
            self._blocked.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.lost += len(self._waiting)
        self._waiting.clear()
        self._tell_lost()

    @property
    def _is_open(self) -> bool:
        return self._channel is not None and self._channel.is_open

    def _want(self) -> None:
        if self._is_open:  # but blocked
            if self._blocked is None:
                self._blocked = asyncio.get_running_loop().call_later(BLOCKED_PAUSE, self._look_again)
            return
        self._wanted.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="osrdyne: activity events")

    def _look_again(self) -> None:
        self._blocked = None
        self._flush()
        if self._waiting:
            self._want()

    def _flush(self) -> None:
        while self._waiting and self._channel is not None and self._channel.is_open:
            if self._connection is not None and self._connection.blocked:
                return
            key, headers = self._waiting.popleft()
            try:
                self._channel.send(self._exchange, key, b"", Properties(headers=dict(headers)))
            except (BrokerError, Unencodable):  # a foreign message's key or id, perhaps
                self.lost += 1

    async def _run(self) -> None:
        loop, pause, failures = asyncio.get_running_loop(), FIRST_PAUSE, 0
        while True:
            await self._wanted.wait()
            self._settled.clear()
            began = loop.time()
            try:
                reason: Exception = await self._carry()
            except Exception as error:  # noqa: BLE001 - a failing event must not end the program
                reason = error
            self._settled.set()
            if self._waiting:  # the connection ended before all of them were sent
                self._wanted.set()
            if loop.time() - began > STABLE:
                pause, failures = FIRST_PAUSE, 0
            failures += 1
            # Do not warn of the first loss: the code that uses another connection logs the outage.
            level = logging.WARNING if failures > 1 else logging.DEBUG
            logger.log(level, "no activity events can be sent, trying again later", extra={"reason": str(reason)})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.5, 1.0)):
                    await self._hurry.wait()
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _carry(self) -> BrokerError:
        """Connect, send waiting and new events, and return why that ended."""
        self._hurry.clear()
        self._connection = await self._connect()
        try:
            self._channel = await self._connection.channel()
            self._wanted.clear()
            self._flush()
            self._settled.set()
            self._tell_lost()
            return await self._channel.wait_closed()
        finally:
            connection, self._connection, self._channel = self._connection, None, None
            await connection.close()

    def _tell_lost(self) -> None:
        if self.lost > self._told_lost:
            logger.warning("activity events were lost", extra={"events": self.lost - self._told_lost})
            self._told_lost = self.lost
