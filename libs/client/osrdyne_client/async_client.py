"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from osrdyne_client.base import BaseClient
from osrdyne_client.replies import Reply


class AsyncClient(BaseClient):
    """Calls the workers of a pool from one asyncio loop. Use it with `async with`."""

    async def open(self) -> None:
        """Connect. Raises what keeps the client from working: BrokerUnreachable, AccessRefused, Undeliverable, ..."""
        await self._dispatcher.open()

    async def close(self) -> None:
        """Fail what still waits with `ClientClosed` and disconnect; the reply queue is deleted."""
        await self._dispatcher.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def call(
        self,
        key: str,
        body: bytes,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Any] | None = None,
        deadline: bool = True,
    ) -> Reply:
        """Send a request to the workers of `key` and return their answer.

        `timeout` in seconds, the client's by default; it also goes along as `x-deadline`, so that nobody works for a
        caller who has left, unless `deadline` is False. `headers` go to the worker as they are.

        Raises RemoteError (a subclass for each status) when the answer is an error, CallTimeout, NoFreeSlot,
        Undeliverable (the pool is not set up), Nacked (the queue is full), InvalidKey, BodyTooLarge, Unencodable.
        """
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        call = self._dispatcher.request(
            key, body, future, wants_reply=True, timeout=timeout, headers=headers, deadline=deadline
        )
        try:
            return await future
        except asyncio.CancelledError:
            self._dispatcher.abandon(call)
            raise

    def submit(
        self,
        key: str,
        body: bytes,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Any] | None = None,
        deadline: bool = True,
    ) -> asyncio.Future[Reply]:
        """Send a request without waiting for its reply; the future has it later, for whoever wants it.

        The reply, its timeout and its slot are as those of `call`. What is wrong with the request itself is raised
        here; any later failure is in the future, and nowhere else. Cancelling the future gives up the reply.
        """
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        call = self._dispatcher.request(
            key, body, future, wants_reply=True, timeout=timeout, headers=headers, deadline=deadline
        )

        def done(_: asyncio.Future[Reply]) -> None:
            if future.cancelled():
                self._dispatcher.abandon(call)
            else:
                future.exception()  # seen: asyncio shall not complain where nobody wants the reply

        future.add_done_callback(done)
        return future

    async def cast(
        self,
        key: str,
        body: bytes,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a request that nobody answers; return once the broker has taken responsibility for it.

        With `confirm=False` it returns once the request is written. Nobody hears of its fate after that: use
        `submit` where failures matter. It carries no deadline. Raises as `call`, but no RemoteError and no NoFreeSlot.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call = self._dispatcher.request(
            key, body, future, wants_reply=False, timeout=timeout, headers=headers, deadline=False
        )
        try:
            await future
        except asyncio.CancelledError:
            self._dispatcher.abandon(call)
            raise
