"""Virtual time: an event loop without I/O whose clock jumps to the next timer, and the same order in every run.

What asyncio keeps in sets (the tasks of a group) is ordered by identity, which differs from run to run: tasks of
this loop are ordered by number instead. Randomness and wall clock of the code under test come from the seed.
"""

from __future__ import annotations

import asyncio
import gc
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, TypeVar
from unittest import mock

T = TypeVar("T")

#: Wall clock at virtual time 0, in milliseconds since the Unix epoch.
EPOCH_MS = 1_750_000_000_000

#: As in asyncio: cancelled timers are removed when there are more than so many timers and half of them are cancelled;
#: a wait is a day at most, in seconds.
_MANY, _HALF, _LONGEST_WAIT = 100, 0.5, 86400.0


#: Turns of the loop at one time after which a run counts as an endless loop. The most that a seed needs is some dozens.
_MOST_TURNS = 100_000


class RunStalled(Exception):
    """The run does not end: nothing is left that could ever happen, or it goes round without waiting for time."""


class _NumberedTask(asyncio.Task[Any]):
    """A task that sets order by number."""

    def __init__(self, number: int, *arguments: Any, **options: Any) -> None:
        self._number = number
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self._number


class _Call(asyncio.Handle):
    """A handle without what asyncio keeps for debugging."""

    __slots__ = ()
    _callback: Any
    _args: Any
    _context: Context

    def __init__(self, callback: Callable[..., Any], arguments: tuple[Any, ...], context: Context | None) -> None:
        self._callback = callback
        self._args = arguments
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None


class Timer(asyncio.TimerHandle):
    """The same with a time."""

    __slots__ = ()
    _loop: VirtualLoop
    _callback: Any
    _args: Any
    _context: Context
    _scheduled: bool

    def __init__(
        self,
        loop: VirtualLoop,
        when: float,
        callback: Callable[..., Any],
        arguments: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        self._loop = loop
        self._when = when
        self._callback = callback
        self._args = arguments
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._scheduled = True

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None
            self._loop.cancelled_timers += self._scheduled


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop that never waits. `now` is its clock, in seconds from 0."""

    # What asyncio's own loop has, and its stubs leave out.
    _ready: deque[Any]
    _stopping: bool
    _clock_resolution: float

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        #: The timers as a heap. Pairs are compared in C, which handles are not.
        self._timers: list[tuple[float, Timer]] = []
        self.cancelled_timers = 0
        #: Processes that stand still.
        self._standing = 0
        #: Errors that were not handled: a callback that raised, for example.
        self.complaints: list[str] = []
        numbers = count(1)

        def numbered(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> _NumberedTask:
            return _NumberedTask(next(numbers), coroutine, loop=loop, **options)

        self.set_task_factory(numbered)
        self.set_exception_handler(VirtualLoop._complain)

    def time(self) -> float:
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Call:
        call = _Call(callback, args, context)
        self._ready.append(call)
        return call

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Timer:
        timer = Timer(self, when, callback, args, context)
        heappush(self._timers, (when, timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Timer:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Run until the loop is stopped, in asyncio's own order, that of timers of the same time included."""
        ready = self._ready
        moved_at, turns = self.now, 0
        while True:
            turns += 1
            if self.now > moved_at:
                moved_at, turns = self.now, 0
            elif turns > _MOST_TURNS:
                raise RunStalled(f"the clock stood still at {self.now} for {_MOST_TURNS} turns of the loop")
            if self.cancelled_timers:
                self._forget_cancelled()
            timers = self._timers
            if not ready and not self._stopping:
                if not timers:
                    raise RunStalled("nothing is left that could happen")
                # Instead of waiting for I/O the clock moves.
                wait = min(timers[0][0] - self.now, _LONGEST_WAIT)
                if wait > 0:
                    self.now += wait
            end = self.now + self._clock_resolution
            while timers and timers[0][0] < end:
                timer = heappop(timers)[1]
                timer._scheduled = False
                ready.append(timer)
                # A real clock has reached the time of a timer soon after it fires: one that is set again must not find
                # the clock where it was.
                self.now = max(self.now, timer._when)
            self._run_ready()
            if self._stopping:
                return

    def _run_ready(self) -> None:
        ready = self._ready
        for _ in range(len(ready)):
            call = ready.popleft()
            if self._standing and (clock := call._context.get(_clock)) is not None and clock.kept is not None:
                clock.kept.append(call)
            elif not call._cancelled:
                try:
                    call._context.run(call._callback, *call._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - whatever a callback raises
                    self.call_exception_handler({"message": "Exception in a callback", "exception": error})

    def stand_still(self, clock: Clock) -> None:
        """Run nothing of the process that has this clock until `go_on`, as after SIGSTOP, or on a busy machine."""
        if clock.kept is None:
            clock.kept = []
            self._standing += 1

    def go_on(self, clock: Clock) -> None:
        """Let it run again. As in asyncio, what has arrived meanwhile comes before the timers that are due."""
        kept, clock.kept = clock.kept, None
        if kept is not None:
            self._standing -= 1
            self._ready.extend(sorted(kept, key=_is_own_timer))

    def _forget_cancelled(self) -> None:
        timers, cancelled = self._timers, self.cancelled_timers
        if len(timers) > _MANY and cancelled / len(timers) > _HALF:
            for _, timer in timers:
                timer._scheduled = not timer._cancelled
            self._timers = [timer for timer in timers if timer[1]._scheduled]
            heapify(self._timers)
            self.cancelled_timers = 0
            return
        while timers and timers[0][1]._cancelled:
            self.cancelled_timers -= 1
            heappop(timers)[1]._scheduled = False

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nothing waits that had to be woken."""

    @staticmethod
    def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        assert isinstance(loop, VirtualLoop)
        message = str(context.get("message"))
        # What a killed program never looked at is not an error.
        if "never retrieved" not in message and "was destroyed" not in message:
            loop.complaints.append(f"{message}: {context.get('exception')!r}")


def _is_own_timer(call: _Call | Timer) -> bool:
    """Return whether a process itself set this call's time; of what is sent to it, its way decides."""
    return isinstance(call, Timer) and getattr(call._callback, "__name__", "") != "arrive"


@dataclass(slots=True)
class Clock:
    """A machine's wall clock: how far it is from the true one, in seconds."""

    skew: float = 0.0
    #: What its process would have run; None while that does not stand still.
    kept: list[_Call | Timer] | None = None


_TRUE_CLOCK = Clock()
_clock: ContextVar[Clock] = ContextVar("clock", default=_TRUE_CLOCK)


def context_of(clock: Clock) -> Context:
    """Return a context whose tasks, and tasks of theirs, read this wall clock."""
    context = Context()
    context.run(_clock.set, clock)
    return context


@contextmanager
def _seeded(loop: VirtualLoop, seed: int) -> Iterator[None]:
    tokens = random.Random(f"tokens {seed}")

    def token_hex(size: int = 32) -> str:
        return f"{tokens.getrandbits(8 * size):0{2 * size}x}"

    def time_ns() -> int:
        return EPOCH_MS * 10**6 + int((loop.now + _clock.get().skew) * 1e9)

    def seconds() -> float:
        return time_ns() / 1e9

    before = random.getstate()
    random.seed(seed)
    try:
        with (
            mock.patch.object(secrets, "token_hex", token_hex),
            mock.patch.object(time, "time_ns", time_ns),
            mock.patch.object(time, "time", seconds),
        ):
            yield
    finally:
        random.setstate(before)


def run(seed: int, program: Callable[[], Coroutine[Any, Any, T]], make: Callable[[], VirtualLoop] = VirtualLoop) -> T:
    """Run a program under virtual time, on the loop that `make` returns. What it leaves running is dropped."""
    loop = make()
    collecting = gc.isenabled()
    # When garbage is found must not decide anything, and takes a fifth of the time.
    gc.disable()
    try:
        with _seeded(loop, seed):
            asyncio.set_event_loop(loop)
            return loop.run_until_complete(program())
    finally:
        _drop_tasks(loop)
        asyncio.set_event_loop(None)
        loop.close()
        if collecting:
            gc.enable()


def _drop_tasks(loop: VirtualLoop) -> None:
    left = sorted(asyncio.all_tasks(loop), key=hash)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
