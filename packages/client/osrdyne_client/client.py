"""The client for threads: the same dispatcher as the asyncio client, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

from osrdyne_calls.errors import ClientClosed
from osrdyne_calls.replies import Reply
from osrdyne_client.base import BaseClient
from osrdyne_client.calls import PendingCall
from osrdyne_protocol.errors import OtherProcess
from osrdyne_runtime.thread_bridge import ThreadBridge

Future = concurrent.futures.Future[Any]


class Client(BaseClient):
    """Calls the workers of a pool from any number of threads. Use it with `with`.

    Threads put their requests into a queue and wake the loop once for all of them. In a process that is forked after
    `open`, all methods raise OtherProcess, and `close` does nothing.
    """

    def _prepare(self) -> None:
        self._gone = threading.Event()
        self._gone.set()
        self._handover: ThreadBridge | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event

    def open(self) -> None:
        """Start the thread and connect. Raises the same errors as `AsyncClient.open`."""
        self._dispatcher.settle_here()
        if self._thread is not None and self._thread.is_alive():
            raise RuntimeError("a client is opened once; make a new one")
        opened: Future = Future()
        thread = threading.Thread(target=self._run, args=(opened,), name="osrdyne client", daemon=True)
        self._gone.clear()
        try:
            thread.start()
        except BaseException:
            self._gone.set()
            raise
        self._thread = thread
        try:
            opened.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Fail waiting calls with `ClientClosed`, disconnect, end the thread. Safe to repeat.

        Does nothing in a fork: thread and connection are the other process's.
        """
        if not self._dispatcher.is_here:
            return
        if self._thread is not None and self._thread is not threading.current_thread():
            with contextlib.suppress(ClientClosed):
                self._hand_over(self._stop.set)
            self._thread.join()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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

        self._hand_over(start)
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
                    self._hand_over(partial(self._give_up, sent))
            raise

    def _give_up(self, sent: list[PendingCall]) -> None:
        for call in sent:
            self._dispatcher.abandon(call)

    # --- the thread -----------------------------------------------------------------------------------------

    def _hand_over(self, action: Callable[[], None]) -> None:
        """Run `action` in the loop's thread. Raises ClientClosed when the thread has ended or never began, and
        OtherProcess in a fork, where it is not.
        """
        self._dispatcher.check_here()
        if self._gone.is_set() or self._handover is None:
            raise ClientClosed("the client is closed; open one with `with`")
        self._handover.put(action)
        if self._gone.is_set():
            self._handover.drain()  # the thread ended meanwhile; its closed dispatcher fails the request

    def _run(self, opened: Future) -> None:
        try:
            asyncio.run(self._serve(opened))
        finally:
            self._gone.set()
            if self._handover is not None:
                self._handover.drain()  # late requests meet a closed dispatcher
            if not opened.done():
                opened.set_exception(ClientClosed())

    async def _serve(self, opened: Future) -> None:
        self._handover = ThreadBridge(asyncio.get_running_loop())
        self._stop = asyncio.Event()
        try:
            await self._dispatcher.open()
        except BaseException as error:  # noqa: BLE001 - it belongs to the thread that opens
            self._gone.set()
            opened.set_exception(error)
            return
        opened.set_result(None)
        try:
            await self._stop.wait()
        finally:
            await self._dispatcher.close()
