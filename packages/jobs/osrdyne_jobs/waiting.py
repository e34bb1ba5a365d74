"""How a process waits for what is away when it starts, and for the signal that ends it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from osrdyne_jobs.database.engines import reason
from osrdyne_runtime import program
from osrdyne_runtime.outages import OutageLog

T = TypeVar("T")

#: Seconds between two attempts to reach what is away.
RETRY_SECONDS = 1.0


async def until_signal(work: Callable[[threading.Event], object]) -> None:
    """Do work in a thread, and set its event at a signal. A signal handler in the waiting thread could hang it."""
    stop = threading.Event()
    program.on_stop_signal(stop.set)
    await asyncio.to_thread(work, stop)


def reached(
    reach: Callable[[], T],
    outage: OutageLog,
    stop: threading.Event,
    *,
    away: type[Exception] = SQLAlchemyError,
    unless: tuple[type[Exception], ...] = (),
) -> T | None:
    """Return what `reach` does, once it works, or None when `stop` is set.

    `away` says that it does not work yet, unless it is one of `unless`. Raises these, and all others.
    """
    while not stop.is_set():
        try:
            found = reach()
        except unless:
            raise
        except away as error:
            why = reason(error) if isinstance(error, SQLAlchemyError) else str(error)
            outage.failed(why, time.monotonic())
        else:
            outage.over(time.monotonic())
            return found
        stop.wait(RETRY_SECONDS)
    return None
