"""Where handlers run: in threads, on the loop, or in an executor of the user's.

A runner starts a request and calls `done` with its outcome, in the loop's thread. It returns a function that takes
the request back when its handler has not begun, and that returns whether it did.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import itertools
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from osrdyne_calls.handling import Handler, Outcome, Request, invoke, invoke_async
from osrdyne_protocol.statuses import ERROR
from osrdyne_runtime import log_lines
from osrdyne_runtime.thread_bridge import ThreadBridge

logger = log_lines.logger(__name__)

#: Seconds in which a cancelled handler must end.
END_PATIENCE = 5.0

Done = Callable[[Outcome], None]
Withdraw = Callable[[], bool]


class Runner(Protocol):
    """Starts requests; all calls come from the loop's thread."""

    def start(self, request: Request, done: Done) -> Withdraw:
        """Start a request."""

    async def end(self, request: Request) -> bool:
        """End the handler of a request that hangs; False where that cannot be done."""

    def close(self) -> None:
        """Start no more requests; running handlers go on."""


def runner_of(handler: Handler, threads: int, executor: concurrent.futures.Executor | None) -> Runner:
    """Return the runner for a handler: the executor if given, the loop for `async def` and for no threads."""
    plain: Any = handler
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None)):  # noqa: B004
        return OnLoop(plain)
    if executor is not None:
        return InExecutor(plain, executor)
    return InThreads(plain, threads) if threads else Inline(plain)


def _too_late() -> bool:
    """Take back nothing: a request on the loop has begun."""
    return False


class Inline:
    """Runs a plain handler on the loop: no thread switch, but heartbeats wait as long as the handler takes."""

    def __init__(self, handler: Callable[[Request], bytes | None]) -> None:
        self._handler = handler

    def start(self, request: Request, done: Done) -> Withdraw:
        done(invoke(self._handler, request))
        return _too_late

    async def end(self, request: Request) -> bool:
        return False

    def close(self) -> None:
        """Nothing outlives a call."""


class OnLoop:
    """Runs an `async def` handler as a task."""

    def __init__(self, handler: Callable[[Request], Any]) -> None:
        self._handler = handler
        #: By the identity of the request, which lives as long as its task.
        self._tasks: dict[int, asyncio.Task[Outcome]] = {}

    def start(self, request: Request, done: Done) -> Withdraw:
        task = asyncio.get_running_loop().create_task(
            invoke_async(self._handler, request), name=f"osrdyne request {request.correlation_id}"
        )
        self._tasks[id(request)] = task

        def finished(_: asyncio.Task[Outcome]) -> None:
            del self._tasks[id(request)]
            if task.cancelled():
                done(Outcome(ERROR, reason="the handler was cancelled"))
            else:
                done(task.result())

        task.add_done_callback(finished)
        return _too_late

    async def end(self, request: Request) -> bool:
        task = self._tasks.get(id(request))
        if task is not None:
            task.cancel()
            await asyncio.wait((task,), timeout=END_PATIENCE)
        return task is None or task.done()

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()


class InThreads:
    """Runs a plain handler in a fixed number of daemon threads: a hanging one does not keep the process alive."""

    def __init__(self, handler: Callable[[Request], bytes | None], threads: int) -> None:
        self._handler = handler
        self._handover = ThreadBridge(asyncio.get_running_loop())
        self._jobs: queue.SimpleQueue[tuple[Request, Done, list[bool]] | None] = queue.SimpleQueue()
        self._threads = threads
        self._numbers = itertools.count()
        for _ in range(threads):
            self._start_thread()

    def start(self, request: Request, done: Done) -> Withdraw:
        unclaimed = [True]  # a thread that begins, or the stop that takes the job back, pops it
        self._jobs.put((request, done, unclaimed))
        return partial(_claim, unclaimed)

    async def end(self, request: Request) -> bool:
        # A thread cannot be ended; waiting requests get another one.
        self._start_thread()
        return False

    def close(self) -> None:
        for _ in range(self._threads):
            self._jobs.put(None)

    def _start_thread(self) -> None:
        threading.Thread(target=self._work, name=f"osrdyne handler {next(self._numbers)}", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            request, done, unclaimed = job
            if _claim(unclaimed):
                self._handover.put(partial(done, invoke(self._handler, request)))


def _claim(unclaimed: list[bool]) -> bool:
    try:
        return unclaimed.pop()
    except IndexError:
        return False


class InExecutor:
    """Runs a plain handler in an executor of the user's; with processes, handler and answer must be picklable."""

    def __init__(self, handler: Callable[[Request], bytes | None], executor: concurrent.futures.Executor) -> None:
        self._handler = handler
        self._executor = executor
        self._handover = ThreadBridge(asyncio.get_running_loop())

    def start(self, request: Request, done: Done) -> Withdraw:
        try:
            future = self._executor.submit(invoke, self._handler, request)
        except RuntimeError as error:  # broken or shut down
            done(self._failed(error))
            return _too_late

        def finished(_: concurrent.futures.Future[Outcome]) -> None:
            if not future.cancelled():
                error = future.exception()
                self._handover.put(partial(done, self._failed(error) if error else future.result()))

        future.add_done_callback(finished)
        return future.cancel

    async def end(self, request: Request) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: the executor belongs to the user."""

    def _failed(self, error: BaseException) -> Outcome:
        logger.error("the executor failed", exc_info=error)
        return Outcome(ERROR, reason=f"the worker's executor failed: {type(error).__name__}")
