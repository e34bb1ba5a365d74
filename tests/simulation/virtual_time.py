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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar
from unittest import mock

T = TypeVar("T")

#: Wall clock at virtual time 0, in milliseconds since the Unix epoch.
EPOCH_MS = 1_750_000_000_000


class Stalled(Exception):
    """Nothing is left that could ever happen, and the run has not ended."""


class _NumberedTask(asyncio.Task[Any]):
    """A task that sets order by number."""

    def __init__(self, number: int, *arguments: Any, **options: Any) -> None:
        self._number = number
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self._number


class _Idle:
    """Stands for the selector: instead of waiting for I/O it moves the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> tuple[()]:
        if timeout is None:
            raise Stalled
        if timeout > 0:
            self._loop.now += timeout
        return ()


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop that never waits. `now` is its clock, in seconds from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._selector = _Idle(self)
        #: Errors that nobody handled: a callback that raised, for example.
        self.complaints: list[str] = []
        numbers = count(1)

        def numbered(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> _NumberedTask:
            return _NumberedTask(next(numbers), coroutine, loop=loop, **options)

        self.set_task_factory(numbered)
        self.set_exception_handler(VirtualLoop._complain)

    def time(self) -> float:
        return self.now

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nothing waits that had to be woken."""

    @staticmethod
    def _complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        assert isinstance(loop, VirtualLoop)
        message = str(context.get("message"))
        # What a killed program never looked at is nobody's error.
        if "never retrieved" not in message and "was destroyed" not in message:
            loop.complaints.append(f"{message}: {context.get('exception')!r}")


@dataclass(slots=True)
class Clock:
    """A machine's wall clock: how far it is from the true one, in seconds."""

    skew: float = 0.0


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

    before = random.getstate()
    random.seed(seed)
    try:
        with mock.patch.object(secrets, "token_hex", token_hex), mock.patch.object(time, "time_ns", time_ns):
            yield
    finally:
        random.setstate(before)


def run(seed: int, program: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a program under virtual time. What it leaves running is dropped."""
    loop = VirtualLoop()
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
