"""Engines over a fork of their process: the fork begins with connections of its own.

Two processes on one connection to PostgreSQL read each other's answers. SQLite is worse: the library in the fork takes
the locks of its parent for its own, so that a file which was open has none there. What the fork commits is lost when
its parent closes the file (seen, and www.sqlite.org/howtocorrupt.html, section 2.6). So connections to SQLite that rest
are closed before a fork, and `sqlite_queue` refuses a file that was open all the same, by a transaction of another
thread for example.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.pool import QueuePool

from osrdyne_jobs.database import sqlite_queue
from osrdyne_runtime.forks import OwnerProcess, keep

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
#: Held during a fork: while one thread closes connections for its fork, another thread's would find them open.
_forking = threading.Lock()


def follow(engine: Engine) -> None:
    """Have an engine make new connections in each fork of this process."""
    _engines.add(engine)
    if not engine.dialect.is_async:
        _close_what_was_in_use(engine)


def _close_what_was_in_use(engine: Engine) -> None:
    """Close a connection when it comes back to a pool that was replaced meanwhile, and so would never close it."""

    @event.listens_for(engine, "connect")
    def opens(_: Any, record: Any) -> None:
        record.info["pool"], record.info["home"] = engine.pool, OwnerProcess()

    @event.listens_for(engine, "checkin")
    def comes_back(connection: Any, record: Any) -> None:
        replaced = connection is not None and record.info["pool"] is not engine.pool
        if replaced and record.info["home"].is_here:
            record.invalidate()


def _pooled() -> list[Engine]:
    # A database in memory has one connection, which is all there is of it; a fork has a copy.
    return [engine for engine in _engines if isinstance(engine.pool, QueuePool)]


def _before() -> None:
    _forking.acquire()
    for engine in _pooled():
        # What belongs to asyncio can only be closed on its loop.
        if engine.dialect.name == "sqlite" and not engine.dialect.is_async:
            engine.dispose()


def _in_fork() -> None:
    _forking.release()
    sqlite_queue.in_fork()
    for engine in _pooled():
        keep(engine.pool)
        engine.dispose(close=False)


os.register_at_fork(before=_before, after_in_parent=_forking.release, after_in_child=_in_fork)
