"""The client for threads: the same dispatcher as the asyncio client, on a loop in a thread of its own."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Self

from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_calls.errors import ClientClosed
from osrdyne_calls.replies import Reply
from osrdyne_client.base import BaseClient
from osrdyne_client.calls import PendingCall
from osrdyne_protocol.errors import OtherProcess
from osrdyne_runtime.portal import Portal

Future = concurrent.futures.Future[Any]


class Client(BaseClient):
    """Calls the workers of a pool from any number of threads. Use it with `with`.

    Threads put their requests into a queue and wake the loop once for all of them. In a process that is forked after
    `open`, all methods raise OtherProcess, and `close` does nothing.
    """

    def _prepare(self) -> None:
        self._portal = Portal("client", ClientClosed)
        self._close_timeout = CLOSE_SECONDS

    def open(self) -> None:
        """Start the thread and connect. Raises the same errors as `AsyncClient.open`."""
        self._dispatcher.settle_here()
        if self._portal.is_running:
            raise RuntimeError("a client is opened once; make a new one")
        self._portal = Portal("client", ClientClosed)  # another one, where the last could not connect
        self._portal.open(self._opened())

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        await self._dispatcher.open()
        try:
            yield
        finally:
            await self._dispatcher.close(self._close_timeout)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Fail waiting calls with `ClientClosed`, disconnect, end the thread. Safe to repeat; as `AsyncClient.close`.

        Does nothing in a fork: thread and connection are the other process's.
        """
        self._close_timeout = timeout
        self._portal.close(timeout)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        key: str,
        body: bytes,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Any] | None = None,
        deadline: bool = True,
    ) -> Reply:
        """Send a request to the workers of `key` and wait for their answer; as `AsyncClient.call`."""
        return self._ask(  # type: ignore[no-any-return]
            key, body, wants_reply=True, timeout=timeout, headers=headers, deadline=deadline
        )

    def submit(
        self,
        key: str,
        body: bytes,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Any] | None = None,
        deadline: bool = True,
    ) -> concurrent.futures.Future[Reply]:
        """Send a request without waiting for its reply; the future has it, or any failure. It cannot be cancelled."""
        return self._request([], key, body, wants_reply=True, timeout=timeout, headers=headers, deadline=deadline)

    def cast(
        self,
        key: str,
        body: bytes,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a request without a reply and wait until the broker has it; as `AsyncClient.cast`."""
        self._ask(key, body, wants_reply=False, timeout=timeout, headers=headers, deadline=False)

    def start_cast(
        self, key: str, body: bytes, *, timeout: float | None = None, headers: Mapping[str, Any] | None = None
    ) -> concurrent.futures.Future[None]:
        """Send a request without a reply, and do not wait; the future says when the broker has it, or any failure."""
        return self._request([], key, body, wants_reply=False, timeout=timeout, headers=headers, deadline=False)

    def _request(self, sent: list[PendingCall], key: str, body: bytes, **options: Any) -> Future:
        """Hand a request over; once the loop has taken it, it is in `sent`, for `_give_up`."""
        future: Future = Future()
        future.set_running_or_notify_cancel()

        def start() -> None:
            try:
                sent.append(self._dispatcher.request(key, body, future, **options))
            except BaseException as error:  # noqa: BLE001 - it belongs to the calling thread
                future.set_exception(error)

        self._portal.put(start)
        return future

    def _ask(self, key: str, body: bytes, **options: Any) -> Any:
        sent: list[PendingCall] = []
        future: Future | None = None
        try:
            future = self._request(sent, key, body, **options)
            return future.result()
        except BaseException:
            if future is None or not future.done():  # interrupted, by Ctrl-C for example
                with contextlib.suppress(ClientClosed, OtherProcess):
                    self._portal.put(partial(self._give_up, sent))
            raise

    def _give_up(self, sent: list[PendingCall]) -> None:
        for call in sent:
            self._dispatcher.abandon(call)
