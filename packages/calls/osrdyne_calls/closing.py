"""How long the end of something may take, whatever its peer does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

#: Seconds that `close` takes at most, unless its caller says otherwise.
CLOSE_SECONDS = 1.0

#: What goes on without its caller.
_left: set[asyncio.Future[Any]] = set()


async def in_time(work: Coroutine[Any, Any, object], seconds: float) -> bool:
    """Do what ends something, and wait `seconds` at most; return whether it is done. Raises what it raises by then."""
    task = asyncio.get_running_loop().create_task(work, name="osrdyne: the end of a connection")
    leave(task)
    await asyncio.wait([task], timeout=max(0.0, seconds))
    if task.done():
        task.result()
    return task.done()


def leave(task: asyncio.Future[Any]) -> None:
    """Let a task go on without its caller. It is cancelled with its loop.

    So whatever waits in it has a bound of its own, and cuts its connection when it is cancelled.
    """
    _left.add(task)
    task.add_done_callback(_over)


def _over(task: asyncio.Future[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # its caller may be gone
