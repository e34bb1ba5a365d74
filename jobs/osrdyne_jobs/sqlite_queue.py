"""Writers of one SQLite file wait in a queue.

SQLite lets one process write at a time. Those that wait look again after pauses that grow to a tenth of a second. With
many processes the newest ones win, and a lease may end while its renewal waits. Here a writer first takes a lock of a
file beside the database, and holds it until its transaction has begun. So one process at a time waits for SQLite, and
the kernel hands the lock on to those that wait, about in their order.

With 95 processes that write without a rest, the longest wait on two cores was 0.6 s, which was 7.9 s, at the same
number of transactions a second.

The lock keeps nothing consistent: where it cannot be had, the writer waits for SQLite as all programs do.
"""

from __future__ import annotations

import concurrent.futures
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

#: Begins a transaction that writes.
BEGIN = "BEGIN IMMEDIATE"
#: Has a file keep its changes in a log beside it, so that readers and a writer do not wait for each other.
WRITE_AHEAD_LOG = "PRAGMA journal_mode = WAL"
#: What the name of the queue's file adds to that of the database.
SUFFIX = "-queue"
#: Seconds between two tries of the writer whose turn it is, and of those that switch to the log.
PAUSE = 0.0005


@contextmanager
def turn(file: str, patience: float) -> Iterator[None]:
    """Wait for this writer's turn, for so many seconds at most, and let the next one have its turn at the end."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CREAT, 0o644)
    except OSError:
        yield
        return
    if not _lock(descriptor, patience):
        yield
        return
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, patience: float) -> bool:
    """Lock a file; return whether it succeeded in time. If not, the file is closed later.

    A lock of the kernel's has a queue, or a bound of time, but not both. So a thread waits, and closes the file when
    its turn comes too late.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    else:
        return True
    given: concurrent.futures.Future[None] = concurrent.futures.Future()

    def wait() -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if given.set_running_or_notify_cancel():
            given.set_result(None)
        else:
            os.close(descriptor)

    threading.Thread(target=wait, name="osrdyne jobs: queue", daemon=True).start()
    try:
        given.result(patience)
    except TimeoutError:
        pass
    finally:
        late = given.cancel()
    return not late


class QueuedConnection(sqlite3.Connection):
    """A connection to a SQLite file that waits for its turn before it begins to write."""

    def __init__(self, database: str, timeout: float = 5.0, **options: Any) -> None:
        super().__init__(database, timeout=timeout, **options)
        #: Seconds for which it waits for its turn, and then for SQLite.
        self.patience = timeout
        path = self.execute("PRAGMA database_list").fetchone()[2]
        #: None for a database in memory, which has one writer.
        self.queue = path + SUFFIX if path else None

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or _Cursor)

    def wait_for_others(self, seconds: float) -> None:
        """Let statements wait so long for other connections."""
        self.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}").close()


class _Cursor(sqlite3.Cursor):
    connection: QueuedConnection

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        connection = self.connection
        if sql == WRITE_AHEAD_LOG:
            # While another connection writes to a new file, SQLite refuses this at once, however long it may wait.
            return self._repeat(sql)
        if sql != BEGIN or connection.queue is None:
            return super().execute(sql, parameters)
        with turn(connection.queue, connection.patience):
            # SQLite's own pauses grow: it would often rest when the writer before this one has ended.
            connection.wait_for_others(0.0)
            try:
                return self._repeat(sql)
            finally:
                connection.wait_for_others(connection.patience)

    def _repeat(self, sql: str) -> Self:
        """Execute a statement again and again while others keep it from being executed, as long as patience lasts."""
        until = time.monotonic() + self.connection.patience
        while True:
            try:
                return super().execute(sql)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                    raise
            time.sleep(PAUSE)
