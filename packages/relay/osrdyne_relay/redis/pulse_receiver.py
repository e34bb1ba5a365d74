"""Receives the pulses of all channels of a node over one connection, which it opens again when it ends.

A pulse is a message of Redis's PUBLISH: something has changed, look now. It only saves waiting. A receiver that is
called with None looks for what lost pulses announced: its subscription has begun, for the first time or again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from osrdyne_relay.errors import RelayError
from osrdyne_relay.redis.port import Away, RedisPort, Subscriber
from osrdyne_runtime import log_lines
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry

log = log_lines.logger(__name__)

#: Channels that are subscribed to by one command.
_AT_ONCE = 256
#: Longest pause between two attempts to connect, in seconds.
_LONGEST_PAUSE_SECONDS = 5.0

#: Takes the content of a pulse; None when the subscription has begun. It returns at once and raises nothing.
Receiver = Callable[[bytes | None], None]


class PulseReceiver:
    """Which channels a node listens to, and who receives what comes."""

    def __init__(self, redis: RedisPort) -> None:
        self._redis = redis
        self._receivers: dict[str, Receiver] = {}
        #: Channels whose subscription this connection must begin or end.
        self._changed: dict[str, None] = {}
        self._news = asyncio.Event()
        self._retry = Retry(first=0.05, limit=_LONGEST_PAUSE_SECONDS)
        self._outage = OutageLog(log, "the pulses of Redis", meanwhile="looks find what they announce")

    def listen(self, channel: str, receiver: Receiver) -> None:
        """Pass what comes on a channel to a receiver."""
        self._receivers[channel] = receiver
        self._change(channel)

    def forget(self, channel: str) -> None:
        """Listen to a channel no more."""
        if self._receivers.pop(channel, None):
            self._change(channel)

    def _change(self, channel: str) -> None:
        self._changed[channel] = None
        self._news.set()

    async def run(self) -> None:
        """Receive until cancelled."""
        while True:
            subscriber = self._redis.subscriber(self._hear)
            try:
                self._changed = dict.fromkeys(self._receivers)
                await self._subscribe(subscriber)
                await self._both(subscriber)
            except (Away, RelayError) as error:
                self._outage.failed(str(error), asyncio.get_running_loop().time())
            finally:
                await subscriber.close()
            await asyncio.sleep(self._retry.failed())

    async def _both(self, subscriber: Subscriber) -> None:
        """Receive and subscribe at the same time, until one of them fails."""
        tasks = [asyncio.ensure_future(work) for work in (subscriber.receive(), self._subscribe_always(subscriber))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _hear(self, channel: str, content: bytes | None) -> None:
        self._retry.worked()
        self._outage.over(asyncio.get_running_loop().time())
        if receiver := self._receivers.get(channel):
            receiver(content)

    async def _subscribe_always(self, subscriber: Subscriber) -> None:
        while True:
            await self._news.wait()
            await self._subscribe(subscriber)

    async def _subscribe(self, subscriber: Subscriber) -> None:
        self._news.clear()
        changed, self._changed = list(self._changed), {}
        for first in range(0, len(changed), _AT_ONCE):
            some = changed[first : first + _AT_ONCE]
            if begin := [channel for channel in some if channel in self._receivers]:
                await subscriber.subscribe(*begin)
            if end := [channel for channel in some if channel not in self._receivers]:
                await subscriber.unsubscribe(*end)
