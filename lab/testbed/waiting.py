"""Waiting for a condition of the real world, instead of sleeping for a time that is hoped to do."""

from __future__ import annotations

import asyncio
import inspect
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, overload

Found = TypeVar("Found")
#: Seconds that a test waits for what has to happen. Only a hang reaches it: waiting for what comes costs nothing.
PATIENCE_SECONDS = 180.0


def until(
    found: Callable[[], Found | None], *, within: float = PATIENCE_SECONDS, every: float = 0.05, what: str = ""
) -> Found:
    """Call `found` until it returns something true, and return that.

    Raises AssertionError after `within` seconds, which says `what` was waited for.
    """
    deadline = time.monotonic() + within
    while not (result := found()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what or found}, last result {result!r}")
        time.sleep(every)
    return result


@overload
async def until_async(found: Callable[[], Awaitable[Found]], *, within: float = PATIENCE_SECONDS) -> Found: ...


@overload
async def until_async(found: Callable[[], Found], *, within: float = PATIENCE_SECONDS) -> Found: ...


async def until_async(found: Callable[[], Any], *, within: float = PATIENCE_SECONDS) -> Any:
    """The same on an event loop, also on one in virtual time; the condition may be awaitable.

    Raises TimeoutError after `within` seconds of the loop.
    """
    async with asyncio.timeout(within):
        while True:
            result = found()
            if inspect.isawaitable(result):
                result = await result
            if result:
                return result
            await asyncio.sleep(0.01)


async def until_in_thread(found: Callable[[], Found | None], *, within: float = PATIENCE_SECONDS) -> Found:
    """The same for a condition that blocks: it runs in a thread, and the loop goes on."""
    return await asyncio.to_thread(until, found, within=within)


def hears(process: int) -> bool:
    """Return whether a process catches SIGTERM, by its id."""
    caught = int(Path(f"/proc/{process}/status").read_text().partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)
