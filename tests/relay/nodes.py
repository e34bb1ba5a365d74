"""Nodes of the relay for tests, with short times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from osrdyne_relay import Collected, Relay, RelayError, RelaySettings
from osrdyne_relay.redis.client import RedisClient
from osrdyne_relay.redis.port import Away, Hear, RedisPort, Subscriber
from testbed.redis import RedisServer

#: A twentieth of the defaults: what has to happen after a minute happens after three seconds.
QUICK = {
    "beat_every": 0.5,
    "server_gone_after": 3.0,
    "caller_gone_after": 4.0,
    "retry_for": 30.0,
    "look_first": 0.1,
    "look_every": 0.5,
    "pickup_timeout": 30.0,
}


def settings(
    server: RedisServer, *, prefix: str = "test", timings: dict[str, float] | None = None, **more: Any
) -> RelaySettings:
    """Settings of a node on a server."""
    redis = {"url_file": str(server.address_file), **more.pop("redis", {})}
    return RelaySettings.from_mapping(
        {"redis": redis, "prefix": prefix, "timings": {**QUICK, **(timings or {})}, **more}
    )


Handler = Callable[[Collected], Awaitable[bytes | None]]


async def upper(request: Collected) -> bytes:
    """Answer in capitals."""
    return request.body.upper()


async def serve(relay: Relay, endpoint: str, handle: Handler = upper) -> None:
    """Work as a worker that polls at a node does, until cancelled. A handler that returns None answers by itself."""
    while True:
        with suppress(RelayError):
            request = await relay.dequeue(endpoint)
            if request is not None:
                answer = await handle(request)
                if answer is not None:
                    await relay.apply_response(request.id, answer)


@asynccontextmanager
async def serving(relay: Relay, endpoint: str, handle: Handler = upper, workers: int = 1) -> AsyncIterator[None]:
    """Serve an endpoint at a node within the block."""
    tasks = [asyncio.create_task(serve(relay, endpoint, handle)) for _ in range(workers)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SilentRedis(RedisPort):
    """A real Redis all of whose pulses are lost."""

    def __init__(self, settings: RelaySettings) -> None:
        self._redis = RedisClient(settings.redis)
        self.commands = 0

    async def run(self, *commands: tuple[str | bytes | int, ...]) -> list[Any]:
        self.commands += len(commands)
        return await self._redis.run(*commands)

    def subscriber(self, hear: Hear) -> Subscriber:
        return _DeafSubscriber()

    async def close(self) -> None:
        await self._redis.close()


class _DeafSubscriber(Subscriber):
    async def subscribe(self, *channels: str) -> None:
        """Nothing will come."""

    async def unsubscribe(self, *channels: str) -> None:
        """Nothing came."""

    async def receive(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        """It is not open."""


class SlowClaims(RedisClient):
    """A real Redis whose answer to a claim is held up."""

    def __init__(self, settings: RelaySettings) -> None:
        super().__init__(settings.redis)
        self.claimed, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def run(self, *commands: tuple[str | bytes | int, ...]) -> list[Any]:
        answers = await super().run(*commands)
        if any(command[2:3] == ("claim",) for command in commands):
            self.claimed.set()
            await self.may_go_on.wait()
        return answers


class NoAnswers(RedisClient):
    """A real Redis that takes no answers to requests while `holds` is true."""

    def __init__(self, settings: RelaySettings) -> None:
        super().__init__(settings.redis)
        self.holds = True

    async def run(self, *commands: tuple[str | bytes | int, ...]) -> list[Any]:
        if self.holds and any(command[2:3] == ("response",) for command in commands):
            raise Away("no answer in time", sent=False)
        return await super().run(*commands)
