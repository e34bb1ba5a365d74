"""The threads that plain handlers run in."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any


class HandlerThreads:
    """Daemon threads, begun when they are needed: a handler that hangs does not keep the process alive.

    Use it in one asyncio loop.
    """

    def __init__(self, name: str) -> None:
        """`name` is what the threads are called."""
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[tuple[asyncio.Future[Any], Callable[[], object]] | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0

    async def run(self, call: Callable[[], Any]) -> Any:
        """Return what a call returns, which must not raise. Where this is cancelled, the call goes on."""
        result: asyncio.Future[Any] = self._loop.create_future()
        self._busy += 1
        if self._busy > self._threads:
            try:
                threading.Thread(target=self._work, name=f"{self._name} {self._threads + 1}", daemon=True).start()
            except BaseException:
                self._busy -= 1
                raise
            self._threads += 1
        self._calls.put((result, call))
        return await result

    def close(self) -> None:
        """End each thread after its call."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while (one := self._calls.get()) is not None:
            result, call = one
            returned = call()
            try:
                self._loop.call_soon_threadsafe(self._returned, result, returned)
            except RuntimeError:
                return  # the loop is closed: nothing waits for it any more
            del one, result, call, returned  # which would stay as long as the thread waits

    def _returned(self, result: asyncio.Future[Any], returned: object) -> None:
        self._busy -= 1
        if not result.done():
            result.set_result(returned)
