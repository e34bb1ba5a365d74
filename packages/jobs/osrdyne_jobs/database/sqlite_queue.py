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
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Self

from osrdyne_protocol.errors import OtherProcess
from osrdyne_runtime.forks import keep

#: Begins a transaction that writes.
BEGIN = "BEGIN IMMEDIATE"
#: Has a file keep its changes in a log beside it, so that readers and a writer do not wait for each other.
WRITE_AHEAD_LOG = "PRAGMA journal_mode = WAL"
#: What the name of the queue's file adds to that of the database.
SUFFIX = "-queue"
#: Errors that pass when another connection has ended its transaction, or has recovered a file.
_MAY_PASS = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY, sqlite3.SQLITE_BUSY_TIMEOUT)
#: Seconds between two tries of the writer whose turn it is, and of those that switch to the log.
RETRY_SECONDS = 0.0005


class PlaceInQueue:
    """One writer's place in the queue at a file, which it keeps open."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._descriptor: int | None = None
        self._closes: weakref.finalize[Any, Any] | None = None

    @contextmanager
    def turn(self, patience: float) -> Iterator[None]:
        """Wait for this writer's turn, for so many seconds at most; let the next one have its turn at the end."""
        descriptor = self._descriptor
        if descriptor is None:
            try:
                descriptor = self._descriptor = os.open(self._file, os.O_RDONLY | os.O_CREAT, 0o644)
            except OSError:
                yield
                return
            self._closes = weakref.finalize(self, os.close, descriptor)
        locked = False
        try:
            locked = _lock(descriptor, patience)
        finally:
            if not locked:
                # The thread that still waits for it closes it, or has done so.
                if self._closes is not None:
                    self._closes.detach()
                self._descriptor = None
        if not locked:
            yield
            return
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Leave the queue. A later turn comes back."""
        if self._closes is not None:
            self._closes()
        self._descriptor = None


def _lock(descriptor: int, patience: float) -> bool:
    """Lock a file; return whether it succeeded in time. If not, and if this raises, the file is closed, perhaps later.

    A lock of the kernel's has a queue, or a bound of time, but not both. So a thread waits, and closes the file when
    its turn comes too late.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    else:
        return True
    given: concurrent.futures.Future[None] = concurrent.futures.Future()

    def wait() -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if given.set_running_or_notify_cancel():
            given.set_result(None)
        else:
            os.close(descriptor)

    try:
        threading.Thread(target=wait, name="osrdyne jobs: queue", daemon=True).start()
    except BaseException:
        os.close(descriptor)
        raise
    try:
        given.result(patience)
    except TimeoutError:
        pass
    except BaseException:  # by Ctrl-C, for example
        if not given.cancel():
            os.close(descriptor)  # it is locked
        raise
    return not given.cancel()


#: Connections to files that are open.
_open: weakref.WeakSet[QueuedConnection] = weakref.WeakSet()
#: Files that were open when this process was forked.
_forbidden: set[str] = set()


def in_fork() -> None:
    """Note, in a fork, the files that were open: nothing is safe there, not even to close them."""
    for connection in list(_open):
        keep(connection)
        _forbidden.add(connection.file)
        if connection.queue is not None:
            # Its lock stays that of the parent, and must not outlive it here.
            connection.queue.close()
    _open.clear()


class QueuedConnection(sqlite3.Connection):
    """A connection to a SQLite file that waits for its turn before it begins to write."""

    def __init__(self, database: str, timeout: float = 5.0, **options: Any) -> None:
        if os.path.realpath(database) in _forbidden:
            raise OtherProcess(
                f"the SQLite file {database} was open when this process was forked, which SQLite does not allow: fork "
                "while no transaction is under way and no AsyncJobClient is open, or start this process afresh "
                "(docs/howto/forks.md)"
            )
        # SQLite's own pauses grow: it would often rest when the writer before this one has ended.
        super().__init__(database, timeout=0.0, **options)
        #: Seconds for which it waits for its turn, and then for SQLite.
        self.patience = timeout
        #: None for a database in memory, which has one writer.
        self.queue: PlaceInQueue | None = None
        self.file = ""
        if path := self.execute("PRAGMA database_list").fetchone()[2]:
            self.queue = PlaceInQueue(path + SUFFIX)
            self.file = os.path.realpath(path)
            _open.add(self)

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or _Cursor)

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        return self.cursor().execute(sql, parameters)  # the one of C takes no cursor of ours

    def close(self) -> None:
        super().close()
        _open.discard(self)
        if self.queue is not None:
            self.queue.close()


class _Cursor(sqlite3.Cursor):
    connection: QueuedConnection

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        """Do what it says. A parameter of `BEGIN` is for how many seconds it waits, where that is less."""
        queue, patience = self.connection.queue, self.connection.patience
        if sql != BEGIN:
            return self._execute(sql, parameters, None)
        patience = min(patience, *parameters) if parameters else patience
        until = time.monotonic() + patience
        with nullcontext() if queue is None else queue.turn(patience):
            return self._execute(sql, (), until)

    def _execute(self, sql: str, parameters: Any, until: float | None) -> Self:
        """Execute a statement, again and again while others keep it from being executed, as long as patience lasts."""
        while True:
            try:
                return super().execute(sql, parameters)
            except sqlite3.OperationalError as error:
                # A transaction that has read what another one changed since can never write.
                if error.sqlite_errorcode not in _MAY_PASS:
                    raise
                now = time.monotonic()
                until = now + self.connection.patience if until is None else until
                if now >= until:
                    raise
            time.sleep(RETRY_SECONDS)
