"""Where handlers run: in threads, on the loop, or in an executor of the user's.

A runner starts a request and calls `done` with its outcome, in the loop's thread. It returns a function that takes
the request back when its handler has not begun, and that returns whether it did.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from osrdyne_calls.handling import Handler, Outcome, Request, invoke, invoke_async
from osrdyne_protocol.statuses import ERROR
from osrdyne_runtime import log_lines
from osrdyne_runtime.portal import ThreadBridge

log = log_lines.logger(__name__)

#: Seconds in which a cancelled handler must end.
END_PATIENCE_SECONDS = 5.0

#: Runs a plain handler for a request, and never raises: `invoke` with its handler.
Run = Callable[[Any], Outcome]
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


def is_async(handler: Callable[..., Any]) -> bool:
    """Return whether a handler runs on the loop: an `async def`, or an object whose `__call__` is one."""
    called = getattr(handler, "__call__", None)  # noqa: B004 - of an object that is called
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)


def runner_of(handler: Handler, threads: int, executor: concurrent.futures.Executor | None) -> Runner:
    """Return the runner for a handler: the executor if given, the loop for `async def` and for no threads."""
    given: Any = handler
    if is_async(given):
        return OnLoop(given)
    run = partial(invoke, given)
    if executor is not None:
        return InExecutor(run, executor)
    return InThreads(run, threads) if threads else Inline(run)


def _too_late() -> bool:
    """Take back nothing: a request on the loop has begun."""
    return False


class Inline:
    """Runs a plain handler on the loop: no thread switch, but heartbeats wait as long as the handler takes."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def start(self, request: Request, done: Done) -> Withdraw:
        done(self._run(request))
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
            await asyncio.wait((task,), timeout=END_PATIENCE_SECONDS)
        return task is None or task.done()

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()


class InThreads:
    """Runs plain handlers in daemon threads: one that hangs does not keep the process alive.

    The first thread is there from the beginning, and others begin when they are needed.
    """

    def __init__(self, run: Run, most: int) -> None:
        """`most`: threads at a time."""
        self._run = run
        self._handover = ThreadBridge(asyncio.get_running_loop())
        self._jobs: queue.SimpleQueue[tuple[Any, Done, list[bool]] | None] = queue.SimpleQueue()
        self._most = most
        self._threads = 0
        #: Guards the number of jobs that no thread has ended, which each thread counts down.
        self._counting = threading.Lock()
        self._unfinished = 0
        #: Whether the system refused the last thread: logged once, until it gives one again.
        self._refused = False
        self._start_thread()

    def start(self, request: Any, done: Done) -> Withdraw:
        with self._counting:
            self._unfinished += 1
            busy = self._unfinished > self._threads
        if busy and self._threads < self._most:
            self._try_thread()
        unclaimed = [True]  # a thread that begins, or the stop that takes the job back, pops it
        self._jobs.put((request, done, unclaimed))
        return partial(_claim, unclaimed)

    async def end(self, request: Any) -> bool:
        # A thread cannot be ended; waiting requests get another one.
        self._most += 1
        self._try_thread()
        return False

    def close(self) -> None:
        for _ in range(self._threads):
            self._jobs.put(None)

    def _try_thread(self) -> None:
        try:
            self._start_thread()
        except RuntimeError as error:
            if not self._refused:
                fields = {"threads": self._threads, "reason": str(error)}
                log.warning("the system gives no more threads; requests wait for those there are", extra=fields)
            self._refused = True
        else:
            self._refused = False

    def _start_thread(self) -> None:
        threading.Thread(target=self._work, name=f"osrdyne handler {self._threads}", daemon=True).start()
        self._threads += 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._do(*job)
            del job  # which would stay as long as the thread waits

    def _do(self, request: Any, done: Done, unclaimed: list[bool]) -> None:
        try:
            outcome = self._run(request) if _claim(unclaimed) else None
        except BaseException as error:
            log.error("a handler's outcome cannot be read", exc_info=error)
            outcome = Outcome(ERROR, reason=f"the worker cannot read the outcome: {type(error).__name__}")
        finally:
            with self._counting:
                self._unfinished -= 1
        if outcome is not None:
            self._handover.put(partial(done, outcome))


def _claim(unclaimed: list[bool]) -> bool:
    try:
        return unclaimed.pop()
    except IndexError:
        return False


class InExecutor:
    """Runs a plain handler in an executor of the user's; with processes, handler and answer must be picklable."""

    def __init__(self, run: Run, executor: concurrent.futures.Executor) -> None:
        self._run = run
        self._executor = executor
        self._handover = ThreadBridge(asyncio.get_running_loop())

    def start(self, request: Any, done: Done) -> Withdraw:
        try:
            future = self._executor.submit(self._run, request)
        except RuntimeError as error:  # broken or shut down
            done(self._failed(error))
            return _too_late

        taken_back = False

        def finished(_: concurrent.futures.Future[Outcome]) -> None:
            if future.cancelled() and taken_back:
                return
            # Else it was cancelled by the user, who shut the executor down with `cancel_futures`.
            error = concurrent.futures.CancelledError() if future.cancelled() else future.exception()
            self._handover.put(partial(done, self._failed(error) if error else future.result()))

        def take_back() -> bool:
            nonlocal taken_back
            if not future.done():
                taken_back = True
                taken_back = future.cancel()
            return taken_back

        future.add_done_callback(finished)
        return take_back

    async def end(self, request: Any) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: the executor belongs to the user."""

    def _failed(self, error: BaseException) -> Outcome:
        log.error("the executor failed", exc_info=error)
        return Outcome(ERROR, reason=f"the worker's executor failed: {type(error).__name__}")
