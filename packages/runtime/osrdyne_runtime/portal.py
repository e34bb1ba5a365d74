"""The way from threads to an event loop, and a loop in a thread of its own for them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

from osrdyne_protocol.errors import OsrdyneError
from osrdyne_runtime import log_lines
from osrdyne_runtime.forks import OwnerProcess, keep

log = log_lines.logger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Seconds that `close` waits for the thread beyond the end of its context. It needs them only where something blocks
#: the loop.
CLOSE_SECONDS = 60.0


class ThreadBridge:
    """A queue of actions that run in a loop's thread, in order, with one wake-up for all that wait.

    `put` is for any thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._actions: deque[Callable[[], None]] = deque()
        self._woken = False

    def put(self, action: Callable[[], None]) -> None:
        """Run `action`, which must not raise, in the loop's thread soon. Does nothing when the loop has ended."""
        self._actions.append(action)
        if not self._woken:
            try:
                self._woken = True
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self.drain)
            except BaseException:  # by Ctrl-C: the next action has to wake the loop
                self._woken = False
                raise

    def drain(self) -> None:
        """Run the waiting actions."""
        self._woken = False
        with suppress(IndexError):
            while True:
                self._actions.popleft()()


class _Loop(asyncio.SelectorEventLoop):
    """Does what blocks, such as to resolve a name, in daemon threads.

    An executor takes no more work once the main thread has ended, although others go on. The end of a program, and that
    of the loop, would wait for its threads.
    """

    def run_in_executor(
        self, executor: concurrent.futures.Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Call a function in a thread; return the future of its result."""
        if executor is not None:
            return super().run_in_executor(executor, func, *args)
        return asyncio.wrap_future(in_daemon_thread(partial(func, *args)), loop=self)


def in_daemon_thread(work: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Do what blocks in a thread that holds up no end: neither that of a program nor that of a loop."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def do() -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it belongs to the future
                future.set_exception(error)

    threading.Thread(target=do, name="osrdyne blocking", daemon=True).start()
    return future


class Portal:
    """Runs a context on a loop in a thread of its own; any number of threads have work done there.

    It is opened once. In a fork of the process that opened it all raises OtherProcess, and its end does nothing.
    """

    def __init__(self, name: str, closed: Callable[[str], OsrdyneError]) -> None:
        """`name`: what the portal is for, as in "bus". `closed`: makes the error of work that finds it closed."""
        self._name = name
        self._closed = closed
        # Held while work is handed over, so that none comes after the end. A signal or a finalizer may come meanwhile.
        self._lock = threading.RLock()
        self._home: OwnerProcess | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False
        #: Ends what the thread does.
        self._cancel: Callable[[], object] | None = None
        #: While work is taken.
        self._bridge: ThreadBridge | None = None

    @property
    def is_open(self) -> bool:
        """Whether work is taken."""
        return self._bridge is not None

    @property
    def is_running(self) -> bool:
        """Whether there is the thread, in this process."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_own_thread(self) -> bool:
        """Whether this is the thread of the loop, where nothing may wait for the loop."""
        return threading.current_thread() is self._thread and self._is_here

    @property
    def _is_here(self) -> bool:
        return self._home is None or self._home.is_here

    def open(self, context: AbstractAsyncContextManager[object]) -> None:
        """Start the thread, and enter `context` there. Raises what that raises."""
        self.check_here()
        if self._home is not None:
            raise self._closed(f"this {self._name} was opened before; make another one")
        self._home = OwnerProcess()
        opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        thread = threading.Thread(target=self._run, args=(context, opened), name=f"osrdyne {self._name}", daemon=True)
        try:
            thread.start()
            self._thread = thread
            opened.result()
        except BaseException:  # by Ctrl-C, for example
            self.close()
            raise

    def check_here(self) -> None:
        """Raise OtherProcess in a fork of the process that opened it."""
        if self._home is not None:
            self._home.check(f"this {self._name}")

    def put(self, action: Callable[[], None]) -> None:
        """Run `action`, which must not raise, on the loop soon."""
        self.check_here()  # before the lock, which a thread of the other process may have held
        with self._lock:
            if self._bridge is None:
                raise self._closed(f"the {self._name} is closed; open one with `with`")
            self._bridge.put(action)

    def start(self, work: Coroutine[Any, Any, T], future: concurrent.futures.Future[T]) -> None:
        """Begin a coroutine on the loop; `future` gets what comes of it. Cancelling either cancels the other.

        The caller makes the future, so that it has it wherever it is interrupted.
        """
        try:
            self.put(partial(_begin, work, future, contextvars.copy_context()))
        except OsrdyneError:
            work.close()
            raise

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop, and return what it returns.

        It is cancelled when the wait ends otherwise: by Ctrl-C, or after `timeout` seconds with TimeoutError.
        """
        if self.is_own_thread:
            work.close()
            raise RuntimeError(f"this thread runs the loop of the {self._name}, and cannot wait for it: use `await`")
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            self.start(work, future)
            return self.result(future, timeout)
        except BaseException:
            future.cancel()
            raise

    def result(self, future: concurrent.futures.Future[T], timeout: float | None = None) -> T:
        """Wait for the future of `start`. Raises what came of the work, and TimeoutError."""
        try:
            error = future.exception(timeout)
        except concurrent.futures.CancelledError:
            raise self._closed(f"the {self._name} was closed meanwhile") from None
        if error is not None:  # `result` takes one whose truth is false for none
            try:
                raise error
            finally:
                del error  # which holds this frame
        return future.result()

    def close(self, timeout: float = 0.0) -> None:
        """Cancel what runs, leave the context, and end the thread. Safe to repeat; the loop's thread does not wait.

        `timeout`: seconds that the context may take for its end. A thread that has not ended a minute after that is
        left behind, with a warning: something blocks its loop.
        """
        self.stop()
        if not self.ends(timeout + CLOSE_SECONDS) and not self.is_own_thread:
            log.warning(
                "a thread does not end, and is left behind: something blocks its loop", extra={"of": self._name}
            )

    def stop(self) -> None:
        """Begin to close, and do not wait."""
        if not self._is_here:
            keep(self)
            return
        with self._lock:
            if self._cancel is not None and not self._stopped:
                self._cancel()
            self._stopped, self._bridge = True, None

    def ends(self, within: float) -> bool:
        """Wait `within` seconds for the end of the thread; return whether this process has it no more."""
        if self._thread is None or not self._is_here:
            return True
        if not self.is_own_thread:
            self._thread.join(min(within, threading.TIMEOUT_MAX))
        return not self._thread.is_alive()

    def _run(self, context: AbstractAsyncContextManager[object], opened: concurrent.futures.Future[None]) -> None:
        self._thread = threading.current_thread()
        try:
            with asyncio.Runner(loop_factory=_Loop) as runner:
                runner.run(self._serve(context, opened))
        except BaseException as error:
            ended = isinstance(error, asyncio.CancelledError)
            if not opened.done():
                opened.set_exception(self._closed(f"the {self._name} was closed meanwhile") if ended else error)
            elif not ended:
                log.error("a thread ended with an error", exc_info=error, extra={"of": self._name})

    async def _serve(
        self, context: AbstractAsyncContextManager[object], opened: concurrent.futures.Future[None]
    ) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with self._lock:
            if self._stopped:  # before this thread came so far
                raise asyncio.CancelledError
            self._cancel = partial(loop.call_soon_threadsafe, _cancel_once, task)
        try:
            async with context:
                with self._lock:
                    if not self._stopped:
                        self._bridge = ThreadBridge(loop)
                        opened.set_result(None)
                if task.cancelling():  # by `stop`, and entering has not ended by it
                    raise asyncio.CancelledError
                try:
                    await loop.create_future()  # until `stop` cancels it, which may be on its way
                finally:
                    self._bridge = None
        finally:
            with self._lock:
                self._cancel = None


def _cancel_once(task: asyncio.Task[Any]) -> None:
    if not task.cancelling():  # or its end would be cut short
        task.cancel()


def _begin(work: Coroutine[Any, Any, T], future: concurrent.futures.Future[T], context: contextvars.Context) -> None:
    if future.cancelled():
        work.close()
        return
    loop = asyncio.get_running_loop()
    task = loop.create_task(work, context=context)

    def ended(_: asyncio.Task[T]) -> None:
        with suppress(concurrent.futures.InvalidStateError):  # it was cancelled at the same time
            if task.cancelled():
                future.cancel()
            elif (error := task.exception()) is not None:  # whose truth may be false
                future.set_exception(error)
            else:
                future.set_result(task.result())

    def cancelled(_: concurrent.futures.Future[T]) -> None:
        if future.cancelled():
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(task.cancel)

    task.add_done_callback(ended)
    future.add_done_callback(cancelled)
