"""What servers and listeners have in common: they take messages from subscriptions, and run handlers for them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import operator
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from osrdyne_bus.aio.bus import AsyncBus
from osrdyne_bus.aio.mesh import KNOWN_SECONDS
from osrdyne_bus.aio.subscriptions import KeptSubscription
from osrdyne_bus.engine import IncomingMessage
from osrdyne_bus.errors import StartTimedOut
from osrdyne_calls.handling import Outcome
from osrdyne_calls.runners import InExecutor, InThreads, is_async
from osrdyne_protocol.durations import timeout_of
from osrdyne_runtime import log_lines
from osrdyne_runtime.forks import OwnerProcess

log = log_lines.logger(__name__)

#: Seconds of a wait whose time is over: a timeout is more than 0.
LEAST_SECONDS = 0.001
#: Seconds for a cancelled handler to end.
CANCELLATION_SECONDS = 2.0


class Consumer(ABC):
    """Takes messages from subscriptions, and runs so many of them at once."""

    def __init__(
        self,
        bus: AsyncBus,
        concurrency: int,
        name: str,
        executor: concurrent.futures.Executor | None,
        returned: Callable[[object], Outcome],
        failed: Callable[[Any, BaseException], Outcome],
    ) -> None:
        """`returned` and `failed` say what becomes of a handler's result or error: functions of a module."""
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; give it 1 or more")
        self._bus = bus
        self._concurrency = concurrency
        self._name = name
        self._executor = executor
        self._returned = returned
        self._failed = failed
        self._started = False
        #: Where plain handlers run, from the first of them on.
        self._runner: InThreads | InExecutor | None = None
        self._waiting: deque[IncomingMessage] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._subscriptions: list[KeptSubscription] = []
        self._stopping = False
        #: Where it was started.
        self._home: OwnerProcess | None = None
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

    async def _subscribe(self, addresses: Sequence[Callable[[Any], str]], credit: int, timeout: float | None) -> None:
        if self._started:
            raise RuntimeError("it is started already")
        timeout = self._bus.settings.start_timeout if timeout is None else timeout_of(timeout)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout

        def left() -> float:
            return max(deadline - loop.time(), LEAST_SECONDS)

        self._started = True
        self._home = OwnerProcess()
        self._stopping = False
        try:
            for address in addresses:
                made = await self._bus.subscribe(address, credit, self._received, timeout=left())
                self._subscriptions.append(made)
            # Routers announce receivers in their order: one that knows the last knows them all.
            for address in addresses[-1:]:
                await self._bus.until_known(address, min(KNOWN_SECONDS, left()))
        except StartTimedOut as late:
            await self.stop()
            raise StartTimedOut(late.address, timeout, peer=late.peer, trouble=late.trouble) from None
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Take no more, give back what was not begun, and return when all that was begun is done. Safe to repeat.

        A handler that goes on for longer than the setting `grace` is cancelled; one in a thread is left there.

        What was not begun goes back with its link: once, and not again and again as if it were released while this
        server has credit. Where handlers settle at their end, their link stays until then. A router takes what goes
        with a link for begun, and does not send it again. So from there it is released, as is what comes meanwhile.
        """
        if self._is_elsewhere:
            return
        self._stopping = True
        waiting = [*self._waiting]
        self._waiting.clear()
        for incoming in waiting:
            incoming.give_back()
        if self._settles_at_start:
            await self._unsubscribe()
        await self._end_running(self._bus.settings.grace)
        await self._unsubscribe()
        self._started = False
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    async def _end_running(self, grace: float) -> None:
        if self._running:
            await asyncio.wait(set(self._running), timeout=grace)
        if left := set(self._running):
            fields = {"consumer": self._name, "handlers": len(left), "seconds": grace}
            log.warning("handlers that have not ended in time are given up", extra=fields)
            for task in left:
                task.cancel()
                self._given_up(task)
            await asyncio.wait(left, timeout=CANCELLATION_SECONDS)

    @abstractmethod
    def _given_up(self, task: asyncio.Task[None]) -> None:
        """A handler is not waited for any more."""

    async def _unsubscribe(self) -> None:
        # At once: each waits for its router.
        gone = list(self._subscriptions)
        await asyncio.gather(*map(self._bus.unsubscribe, gone))
        self._subscriptions = [each for each in self._subscriptions if each not in gone]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def _received(self, incoming: IncomingMessage) -> None:
        if self._stopping:
            incoming.give_back()
        else:
            while self._waiting and not self._waiting[0].is_here:
                self._waiting.popleft()
            self._waiting.append(incoming)
            self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._concurrency and not self._stopping:
            task = asyncio.create_task(self._process(self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._begin()

    async def _process(self, incoming: IncomingMessage) -> None:
        if not incoming.is_here:
            return
        try:
            await self._handle(incoming)
        except Exception:
            log.exception("a message could not be handled", extra={"address": incoming.subscription.address})
            incoming.reject("osrdyne:failed", "the receiver failed; its log says why")

    @abstractmethod
    async def _handle(self, incoming: IncomingMessage) -> None:
        """Run the handler for a message, and settle it."""

    async def _run(self, handler: Callable[[Any], Any], given: object) -> Outcome:
        """Return what becomes of a handler. Raises CancelledError where this task was cancelled."""
        try:
            found = handler(given) if is_async(handler) else await self._run_plain(handler, given)
            return found if isinstance(found, Outcome) else self._returned(await found)
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._failed(given, cancelled)
        except BaseException as error:  # noqa: BLE001 - a handler must not end the server, by sys.exit for example
            return self._failed(given, error)

    async def _run_plain(self, handler: Callable[[Any], Any], given: object) -> Any:
        if self._runner is None:
            run = operator.call
            most, executor = self._concurrency, self._executor
            self._runner = InThreads(run, most) if executor is None else InExecutor(run, executor)
        found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        withdraw = self._runner.start(
            partial(_invoke, handler, given, self._returned, self._failed),
            lambda result: None if found.done() else found.set_result(result),
        )
        try:
            return await found
        finally:
            withdraw()  # which does nothing once it has begun


def _invoke(
    handler: Callable[[Any], Any],
    given: object,
    returned: Callable[[object], Outcome],
    failed: Callable[[Any, BaseException], Outcome],
) -> Any:
    """Run a plain handler, in any thread or process. Never raises. What is to be awaited is not an outcome yet."""
    try:
        result = handler(given)
        ready = isinstance(result, Outcome) or inspect.isawaitable(result)
        return result if ready else returned(result)
    except BaseException as error:  # noqa: BLE001
        return failed(given, error)
