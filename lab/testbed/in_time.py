"""Whether what waits for a peer ends in its timeout and one second, however slow this machine is meanwhile.

What the machine takes is measured in the same run, and left out: how late it wakes what sleeps, and how long the same
takes that waits for no peer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from testbed.command_line import CommandResult, osrdyne
from testbed.waiting import PATIENCE_SECONDS

T = TypeVar("T")

#: Seconds over its timeout that anything may take.
OVER_SECONDS = 1.0
_TICK_SECONDS = 0.02


class Late(AssertionError):
    """Something took longer than it may."""


class _Lateness:
    """How many seconds, in all, this machine was late to wake a thread that sleeps for a moment again and again."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._is_over = threading.Event()

    def measure(self) -> None:
        while True:
            began = time.monotonic()
            if self._is_over.wait(_TICK_SECONDS):
                return
            self.seconds += max(0.0, time.monotonic() - began - _TICK_SECONDS)

    def end(self) -> None:
        self._is_over.set()


@contextmanager
def _takes(timeout: float, alone: Callable[[], float]) -> Iterator[None]:
    """Check how long a block takes. `alone`, asked after it, is how many seconds the same takes without a peer."""
    lateness = _Lateness()
    thread = threading.Thread(target=lateness.measure, daemon=True)
    thread.start()
    began = time.monotonic()
    try:
        yield
    finally:
        took = time.monotonic() - began
        lateness.end()
        thread.join()
        without = alone()
        if took > timeout + OVER_SECONDS + lateness.seconds + without:
            raise Late(
                f"it took {took:.2f} s, which is more than its {timeout:g} s and {OVER_SECONDS:g} s; this machine was "
                f"{lateness.seconds:.2f} s late meanwhile, and without a peer it takes {without:.2f} s"
            )


async def in_time(work: Awaitable[T], timeout: float, *, alone: float = 0.0) -> T:
    """Wait for what may take its timeout, a second, and the seconds that it takes alone. Raises Late after more."""
    with _takes(timeout, lambda: alone):
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await work


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long something takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


async def command_in_time(
    words: list[str], variables: Mapping[str, str], timeout: float, *, alone: Callable[[], object]
) -> CommandResult:
    """Run `osrdyne WORDS` as `in_time`. `alone` is the same where nothing listens.

    It is run before, so that all is imported, and after: the load of the machine may have changed.
    """

    def run() -> CommandResult:
        before = seconds_of(alone)
        with _takes(timeout, lambda: max(before, seconds_of(alone))):
            return osrdyne(*words, variables=variables)

    async with asyncio.timeout(PATIENCE_SECONDS):
        return await asyncio.to_thread(run)
