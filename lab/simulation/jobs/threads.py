"""What stands in for `threading`, `time` and `concurrent.futures` in the product's modules: the same, in virtual time.

Only what those modules use is there. Anything else that they begin to use is an AttributeError in every seed.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from osrdyne_jobs import redo, worker
from simulation.jobs.scheduler import ProcessKilled, Scheduler, Thread

Future = concurrent.futures.Future[Any]


@contextmanager
def in_virtual_time(scheduler: Scheduler) -> Iterator[None]:
    """Let worker and redo wait and read the time by a scheduler."""
    time = SimpleNamespace(monotonic=scheduler.monotonic, sleep=scheduler.sleep)
    futures = SimpleNamespace(
        wait=lambda futures, timeout=None: wait_for(scheduler, futures, timeout),
        ThreadPoolExecutor=lambda threads, thread_name_prefix: Executor(scheduler, threads, thread_name_prefix),
    )
    threads = SimpleNamespace(
        Event=lambda: Event(scheduler),
        Semaphore=lambda free: Semaphore(scheduler, free),
        Thread=lambda **options: JoinableThread(scheduler, **options),
        # The product holds it only where it does not wait, so that no other thread finds it taken.
        Lock=threading.Lock,
    )
    with ExitStack() as patches:
        for module in (worker, redo):
            patches.enter_context(mock.patch.object(module, "time", time))
            patches.enter_context(mock.patch.object(module, "concurrent", SimpleNamespace(futures=futures)))
        patches.enter_context(mock.patch.object(worker, "threading", threads))
        yield


class _Waiters:
    """Threads that wait for one thing."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._threads: list[Thread] = []

    def wait(self, timeout: float | None) -> bool:
        """Wait for `wake_one` or `wake_all`. Returns False where the time was over first."""
        thread = self._scheduler.me()
        self._threads.append(thread)
        try:
            return self._scheduler.park(timeout)
        finally:
            if thread in self._threads:
                self._threads.remove(thread)

    def wake_all(self) -> None:
        while self._threads:
            self._scheduler.wake(self._threads.pop(0))


class Event:
    """A `threading.Event`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._set = False
        self._waiters = _Waiters(scheduler)

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._waiters.wake_all()

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._waiters.wait(timeout)
        return self._set


class Semaphore:
    """A `threading.Semaphore`."""

    def __init__(self, scheduler: Scheduler, free: int) -> None:
        self._scheduler = scheduler
        self._free = free
        self._waiters = _Waiters(scheduler)

    def acquire(self, timeout: float | None = None) -> bool:
        until = None if timeout is None else self._scheduler.now + timeout
        while not self._free:
            left = None if until is None else until - self._scheduler.now
            if left is not None and left <= 0:
                return False
            self._waiters.wait(left)
        self._free -= 1
        return True

    def release(self) -> None:
        self._free += 1
        self._waiters.wake_all()  # the first of them may be killed, or stand still, before it goes on


class JoinableThread:
    """A `threading.Thread` of the process that makes it."""

    def __init__(self, scheduler: Scheduler, *, target: Callable[[], object], name: str, daemon: bool) -> None:
        self._scheduler = scheduler
        self._target = target
        self._name = name
        self._over = Event(scheduler)

    def start(self) -> None:
        self._scheduler.thread(self._scheduler.me().process, self._name, self._run)

    def join(self, timeout: float | None = None) -> None:
        self._over.wait(timeout)

    def _run(self) -> None:
        self._target()
        self._over.set()


class Executor:
    """A `ThreadPoolExecutor`. Each call has a thread of its own; at most `threads` run at once."""

    def __init__(self, scheduler: Scheduler, threads: int, name: str) -> None:
        self._scheduler = scheduler
        self._name = name
        self._free = Semaphore(scheduler, threads)
        self._closed = False
        self._pending: list[Future] = []

    def submit(self, call: Callable[..., object], *arguments: Any) -> Future:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future = concurrent.futures.Future()
        self._pending.append(future)
        self._scheduler.thread(self._scheduler.me().process, self._name, lambda: self._do(future, call, arguments))
        return future

    def shutdown(self, *, wait: bool) -> None:
        self._closed = True
        if wait:
            wait_for(self._scheduler, list(self._pending), None)

    def _do(self, future: Future, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._free.acquire()
        try:
            result = call(*arguments)
        except ProcessKilled:
            raise
        except BaseException as error:  # noqa: BLE001 - as ThreadPoolExecutor does
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            self._pending.remove(future)
            self._free.release()


def wait_for(scheduler: Scheduler, futures: Iterable[Future], timeout: float | None) -> None:
    """Wait until all futures are done, as `concurrent.futures.wait` does."""
    waiters = _Waiters(scheduler)
    pending = [future for future in futures if not future.done()]
    for future in pending:
        future.add_done_callback(lambda _: waiters.wake_all())
    until = None if timeout is None else scheduler.now + timeout
    while any(not future.done() for future in pending):
        remaining = None if until is None else until - scheduler.now
        if remaining is not None and remaining <= 0:
            return
        waiters.wait(remaining)
