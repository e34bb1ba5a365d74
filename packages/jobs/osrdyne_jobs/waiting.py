"""How a process waits for what is away when it starts, and for the signal that ends it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from osrdyne_jobs.database.engines import reason
from osrdyne_runtime import log_lines, program
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.portal import in_daemon_thread

log = log_lines.logger(__name__)

T = TypeVar("T")

#: Seconds between two attempts to reach what is away.
RETRY_SECONDS = 1.0
#: Seconds for what is under way at the signal. A transaction that is cut is rolled back.
STOP_SECONDS = 5.0


async def until_signal(work: Callable[[threading.Event], object]) -> None:
    """Do work in a thread, and set its event at a signal. A signal handler in the waiting thread could hang it.

    Work that waits for a database when the signal comes has `STOP_SECONDS` to end, and goes on without this.
    """
    stop, stopped = threading.Event(), asyncio.Event()

    def on_signal() -> None:
        stop.set()
        stopped.set()

    program.on_stop_signal(on_signal)
    done = asyncio.wrap_future(in_daemon_thread(partial(work, stop)))
    signalled = asyncio.ensure_future(stopped.wait())
    await asyncio.wait((done, signalled), return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    await asyncio.wait((done,), timeout=STOP_SECONDS)
    if done.done():
        done.result()
    else:
        log.warning("ended while the database did not answer", extra={"seconds": STOP_SECONDS})


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
