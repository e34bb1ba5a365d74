"""Waiting for a condition of the real world, instead of sleeping for a time that is hoped to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

Found = TypeVar("Found")
#: Seconds that a test waits for what has to happen. Only a hang reaches it: waiting for what comes costs nothing.
PATIENCE = 180.0


def until(found: Callable[[], Found | None], *, within: float = PATIENCE, every: float = 0.05, what: str = "") -> Found:
    """Call `found` until it returns something true, and return that.

    Raises AssertionError after `within` seconds, which says `what` was waited for.
    """
    deadline = time.monotonic() + within
    while not (result := found()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what or found}, last result {result!r}")
        time.sleep(every)
    return result


async def until_async(found: Callable[[], Awaitable[Found]], *, within: float = PATIENCE) -> Found:
    """The same for a condition that is awaited. Raises TimeoutError after `within` seconds."""
    async with asyncio.timeout(within):
        while not (result := await found()):  # noqa: ASYNC110 -- nobody sets an event of ours
            await asyncio.sleep(0.01)
        return result
