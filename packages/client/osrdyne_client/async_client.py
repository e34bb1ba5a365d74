"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_calls.replies import Reply
from osrdyne_client.base import BaseClient


class AsyncClient(BaseClient):
    """Calls the workers of a pool from one asyncio loop. Use it with `async with`."""

    async def open(self) -> None:
        """Connect. Raises BrokerUnreachable, AccessRefused, Undeliverable and other errors of the broker."""
        await self._dispatcher.open()

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Fail waiting calls with `ClientClosed` and disconnect; the reply queue is deleted. Does nothing in a fork.

        Takes `timeout` seconds at most, whatever the broker does: then it disconnects without the broker's word. What
        was sent with `confirm=False` may be lost then.
        """
        await self._dispatcher.close(timeout)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
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

        `timeout` in seconds, the client's by default, and `math.inf` to wait without an end. Unless `deadline` is
        False, it is also sent as `x-deadline`, so that no worker works for a caller that has left. `headers` go to the
        worker unchanged.

        Raises RemoteError (a subclass for each status) when the answer is an error, CallTimeout, NoFreeSlot,
        Undeliverable (the pool is not set up), Nacked (the queue is full), InvalidKey, BodyTooLarge, Unencodable,
        InvalidTimeout, and OtherProcess in a fork of the process that opened this client.
        """
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        call = self._dispatcher.request(
            key, body, future, wants_reply=True, timeout=timeout, headers=headers, deadline=deadline
        )
        try:
            return await future
        except (asyncio.CancelledError, GeneratorExit):
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
        """Send a request without waiting for its reply; the future gets the reply later.

        Reply, timeout and slot are as with `call`. Errors in the request itself are raised here; any later failure is
        only in the future. Cancelling the future gives up the reply.
        """
        return self._start(key, body, wants_reply=True, timeout=timeout, headers=headers, deadline=deadline)

    def start_cast(
        self, key: str, body: bytes, *, timeout: float | None = None, headers: Mapping[str, Any] | None = None
    ) -> asyncio.Future[None]:
        """Send a request without a reply, and do not wait; the future says when the broker has it, or any failure.

        Errors in the request itself are raised here.
        """
        return self._start(key, body, wants_reply=False, timeout=timeout, headers=headers, deadline=False)

    def _start(self, key: str, body: bytes, **options: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = self._dispatcher.request(key, body, future, **options)

        def done(_: asyncio.Future[Any]) -> None:
            if future.cancelled():
                self._dispatcher.abandon(call)
            else:
                future.exception()  # mark it as seen, so that asyncio does not warn about an unused result

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
        """Send a request without a reply; return once the broker has taken responsibility for it.

        With `confirm=False` it returns once the request is written. Later failures are not reported: use `submit`
        where they matter. It carries no deadline. Raises as `call`, but no RemoteError and no NoFreeSlot.
        """
        await self.start_cast(key, body, timeout=timeout, headers=headers)
