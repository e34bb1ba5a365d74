"""What servers and listeners have in common: they take messages from subscriptions, and run handlers for them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from osrdyne_bus.aio.bus import AsyncBus
from osrdyne_bus.aio.handler_threads import HandlerThreads
from osrdyne_bus.aio.subscriptions import KeptSubscription
from osrdyne_bus.engine import Incoming
from osrdyne_runtime.forks import Home

log = logging.getLogger(__name__)

#: Seconds for a cancelled handler to end.
CANCELLATION = 2.0


class Taking(ABC):
    """Takes messages from subscriptions, and runs so many of them at once."""

    def __init__(self, bus: AsyncBus, concurrency: int, name: str) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; give it 1 or more")
        self._bus = bus
        self._concurrency = concurrency
        self._name = name
        self._threads: HandlerThreads | None = None
        self._waiting: deque[Incoming] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._subscriptions: list[KeptSubscription] = []
        self._stopping = False
        #: Where it was started.
        self._home: Home | None = None
        #: Whether messages are settled before their handlers begin.
        self._settles_at_start = False

    @property
    def _is_elsewhere(self) -> bool:
        """Whether this is a fork of the process that started it, which has all of it."""
        return self._home is not None and not self._home.is_here

    @property
    def in_hand(self) -> int:
        """Messages that came and are not done."""
        return len(self._waiting) + len(self._running)

    async def _subscribe(self, addresses: Sequence[Callable[[Any], str]], credit: int) -> None:
        if self._threads is not None:
            raise RuntimeError("it is started already")
        self._home = Home()
        self._stopping = False
        self._threads = HandlerThreads(self._name)
        try:
            for address in addresses:
                self._subscriptions.append(await self._bus.subscribe(address, credit, self._received))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Take no more, give back what was not begun, and return when all that was begun is done. Safe to repeat.

        A handler that goes on for longer than the setting `grace` is cancelled; one in a thread is left there.

        What was not begun goes back with its link: once, and not again and again as if it were released while this
        server has credit. Where handlers settle at their end, their link stays until then.
        """
        if self._is_elsewhere:
            return
        self._stopping = True
        self._waiting.clear()
        if self._settles_at_start:
            await self._unsubscribe()
        await self._end_running(self._bus.settings.grace)
        await self._unsubscribe()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()

    async def _end_running(self, grace: float) -> None:
        if self._running:
            await asyncio.wait(set(self._running), timeout=grace)
        if left := set(self._running):
            log.warning("%s stops, and %d of its handlers have not ended within %g s", self._name, len(left), grace)
            for one in left:
                one.cancel()
                self._given_up(one)
            await asyncio.wait(left, timeout=CANCELLATION)

    @abstractmethod
    def _given_up(self, task: asyncio.Task[None]) -> None:
        """A handler is not waited for any more."""

    async def _unsubscribe(self) -> None:
        while self._subscriptions:
            one = self._subscriptions[-1]
            await self._bus.unsubscribe(one)
            if one in self._subscriptions:  # and not removed by another stop
                self._subscriptions.remove(one)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def _received(self, incoming: Incoming) -> None:
        if not self._stopping:
            while self._waiting and not self._waiting[0].is_here:
                self._waiting.popleft()
            self._waiting.append(incoming)
            self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._concurrency and not self._stopping:
            task = asyncio.create_task(self._take(self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._begin()

    async def _take(self, incoming: Incoming) -> None:
        if not incoming.is_here:
            return
        try:
            await self._handle(incoming)
        except Exception:
            log.exception("a message to %s could not be handled", incoming.subscription.address)
            incoming.reject("osrdyne:failed", "the receiver failed; its log says why")

    @abstractmethod
    async def _handle(self, incoming: Incoming) -> None:
        """Run the handler for a message, and settle it."""

    async def _run(self, handler: Callable[[Any], Any], given: object) -> tuple[object, BaseException | None]:
        """Return what a handler returns or raises. Raises CancelledError where this task was cancelled."""
        result: object = None
        try:
            call = getattr(handler, "__call__", None)  # noqa: B004 - of an object that is called
            if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
                result = handler(given)
            else:
                assert self._threads is not None
                result, error = await self._threads.run(partial(_caught, handler, given))
                if error is not None:
                    return None, error
            return (await result if inspect.isawaitable(result) else result), None
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None, cancelled
        except BaseException as error:  # noqa: BLE001 - a handler must not end the server, by sys.exit for example
            return None, error


def _caught(handler: Callable[[Any], object], given: object) -> tuple[object, BaseException | None]:
    # Returned and not raised: a future cannot hold StopIteration, and SystemExit would end the thread.
    try:
        return handler(given), None
    except BaseException as error:  # noqa: BLE001
        return None, error
