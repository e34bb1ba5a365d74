"""The driver for workers that are processes of this machine: one a group, and they outlive the daemon.

Reads the template and the records of earlier daemons; writes records and log files; starts, watches and stops
processes. Never restarts a worker that has crashed: it reports the exit, and the group loop decides.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import dataclasses
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

from osrdyne.drivers.base import Change, Group, GroupState
from osrdyne.drivers.left_over import LeftOver
from osrdyne.drivers.subprocess import control
from osrdyne.drivers.subprocess.holding import DirectoryLock
from osrdyne.drivers.subprocess.launch import Launcher
from osrdyne.drivers.subprocess.process_watch import ProcessExit, ProcessWatch
from osrdyne.drivers.subprocess.records import ProcessRecord, Records
from osrdyne.drivers.subprocess.reports import ExitReports, fields
from osrdyne.drivers.subprocess.template import GRACE_MARGIN_SECONDS, SubprocessTemplate
from osrdyne.drivers.unread import UnreadChanges
from osrdyne.errors import DriverError
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import milliseconds

__all__ = ["SubprocessDriver", "SubprocessTemplate"]

log = logging.getLogger(__name__)

#: Time between two checks of the sizes of log files, which a listing makes.
_TIDY_INTERVAL_SECONDS = 10.0


class SubprocessDriver:
    """Workers as processes. Use it from one event loop; two daemons on one state directory do no harm."""

    owns_workers = True

    def __init__(
        self,
        pool: PoolSettings,
        template: SubprocessTemplate,
        worker_amqp_uri: Callable[[], str],
        state_dir: Path,
        *,
        worker_amqp_uri_file: Path | None = None,
    ) -> None:
        """Raises `DriverError` when `state_dir` cannot be used or is open to others.

        `worker_amqp_uri` is called at each start; its result goes into the worker's environment only. Workers also get
        the path `worker_amqp_uri_file`, where a running one finds a changed password.
        """
        timeout = milliseconds(pool.consumer_timeout)
        self.template = template.hash(timeout)
        self._pool = pool
        self._records = Records(state_dir, pool.name, pool.instance)
        home = self._records.directory
        self._holding = DirectoryLock(home)
        logs = template.log_directory / home.name if template.log_directory else home / "logs"
        self._launcher = Launcher(template, worker_amqp_uri, logs, worker_amqp_uri_file, timeout)
        self._grace = (
            pool.consumer_timeout + GRACE_MARGIN_SECONDS if template.stop_grace is None else template.stop_grace
        )
        self._processes = ProcessWatch(self._grace, self._on_exit)
        #: Groups whose start was requested while their worker was stopping: the next worker follows it.
        self._start_again: set[str] = set()
        self._unread = UnreadChanges()
        #: Held while records and processes change, also while a thread waits for a process that is being started.
        self._changing = asyncio.Lock()
        #: Starts that are under way.
        self._starts: set[asyncio.Task[None]] = set()
        self._reports = ExitReports(self._launcher, self._unread, self._grace, self._follow)
        #: Ids of workers whose end is reported and whose record is still there.
        self._reported_ids: set[str] = set()
        #: When logs were last held to their limit, in seconds of `control.clock`.
        self._tidied_at: float | None = None
        LeftOver("kill").report(map(str, self._records.running_elsewhere()))
        control.raise_open_files()

    async def start(self, key: str) -> None:
        """Start a worker unless one runs. While the former is stopping, the next follows when it is gone."""
        # A start that its caller gives up goes on, so that the record gets the pid of the process.
        start = asyncio.create_task(self._start(key))
        self._starts.add(start)
        start.add_done_callback(self._starts.discard)
        await asyncio.shield(start)

    async def stop(self, key: str) -> None:
        """Send SIGTERM once; what still runs when the grace is over is killed, by this daemon or the next."""
        name = self._records.name(key)
        async with self._changing:
            self._stop(key, name)

    def _stop(self, key: str, name: str) -> None:
        with self._records.locked():
            self._start_again.discard(name)
            record = self._settle(name)
            if record is None or record.stopping_since is not None:
                return
            stopping = self._processes.terminate(name)
            if stopping is None:
                raise DriverError(
                    f"cannot stop the worker of key {key!r}: no free descriptor; raise the daemon's LimitNOFILE"
                )
            self._records.write(stopping)
        log.info("worker asked to stop", extra=fields(stopping))

    async def list(self) -> builtins.list[Group]:
        """Return the groups of our pool and instance; records whose process has gone are cleaned up."""
        records = self._records.read_all()
        self._restore_missing(records)
        true_now = {name: self._look(name, record) for name, record in records.items()}
        running = {name: record for name, record in true_now.items() if record is not None}
        await self._tidy(running)
        return [_group(record) for record in running.values()]

    def changes(self) -> AsyncIterator[Change]:
        """Yield the exits of workers, with an error for an unrequested exit. Returns when the driver is closed."""
        return self._unread.until_end()

    async def close(self) -> None:
        """Finish the starts that are under way, stop watching, and report what has ended. The workers run on."""
        self._start_again.clear()
        await asyncio.gather(*self._starts, self._reports.finish(), return_exceptions=True)
        self._processes.close()
        await self._reports.finish()
        self._launcher.close()
        self._unread.end()
        self._holding.close()

    async def _start(self, key: str) -> None:
        name = self._records.name(key)
        async with self._changing:
            with self._records.locked():
                record = self._settle(name)
                if record is None:
                    await self._spawn(key, name)
                elif record.stopping_since is not None:
                    self._start_again.add(name)

    async def _spawn(self, key: str, name: str) -> None:
        record = ProcessRecord(
            key=key,
            pool=self._pool.name,
            instance=self._pool.instance,
            worker_id=f"{name}-{secrets.token_hex(8)}",
            template=self.template,
            boot_id=control.boot_id(),
            started=control.clock(),
            started_at=datetime.now(UTC).astimezone().isoformat(timespec="milliseconds"),
        )
        # Written before the process exists: a daemon that dies in between leaves no worker unknown.
        self._records.write(record)
        try:
            identity = await self._launcher.launch(name, record)
        except DriverError:
            self._records.remove(record)
            raise
        record = dataclasses.replace(record, pid=identity.pid, start_ticks=identity.start_ticks)
        self._processes.watch(name, record)
        self._records.write(record)
        log.info("worker started", extra=fields(record))

    def _look(self, name: str, record: ProcessRecord) -> ProcessRecord | None:
        """Return the present record of a group, None when its worker has gone."""
        if self._processes.is_watching(name, record):
            return record
        try:
            with self._records.locked():
                return self._settle(name)
        except DriverError:
            # Another daemon or a start of ours changes records, or the disk is full: the record stays for now.
            with contextlib.suppress(OSError):
                return record if record.identity is None or control.is_alive(record.identity) else None
            return record

    def _settle(self, name: str) -> ProcessRecord | None:
        """Make the record, the process and the watch agree; return the record of the worker, if any.

        Under `locked`: a record without pid then comes from a daemon that died while starting a worker. Raises
        `DriverError` when running processes cannot be read: no record is removed then.
        """
        try:
            return self._settled(name)
        except OSError as error:
            raise DriverError(
                f"cannot see which workers run: {error.strerror}; raise the daemon's LimitNOFILE if files run out"
            ) from error

    def _settled(self, name: str) -> ProcessRecord | None:
        record = self._records.read(name)
        if record is None or self._processes.is_watching(name, record):
            return record
        if record.identity is None:
            found = control.find_worker(record.worker_id)
            if found is None:
                self._records.remove(record)
                return None
            record = dataclasses.replace(record, pid=found.pid, start_ticks=found.start_ticks)
            self._records.write(record)
        # An uncollected exit is watched too, and reported at once like any other.
        if self._processes.watch(name, record) or control.is_alive(record.identity):
            return record
        if record.worker_id in self._reported_ids:
            self._reported_ids.discard(record.worker_id)
        else:
            self._reports.unseen(name, record)
        self._records.remove(record)
        _kill_left_over(record)
        return None

    def _restore_missing(self, records: dict[str, ProcessRecord]) -> None:
        """Write records again that were removed while their worker lives: it would be started twice."""
        for name, record in self._processes.records().items():
            with contextlib.suppress(OSError):  # watched as it is, and looked at again at the next listing
                if name in records or not control.is_alive(record.identity):
                    continue
            log.warning("record of a live worker was missing", extra=fields(record))
            with contextlib.suppress(DriverError):
                self._records.write(record)
            records[name] = record

    def _on_exit(self, ended: ProcessExit) -> None:
        record = ended.record
        _kill_left_over(record)
        try:
            with self._records.locked():
                self._records.remove(record)
        except DriverError:  # another daemon or a start of ours holds the lock: the next listing removes the record
            self._reported_ids.add(record.worker_id)
        self._reports.begin(ended)

    async def _follow(self, ended: ProcessExit) -> None:
        """Start the next worker of a group whose start was requested while this one was stopping."""
        if ended.name in self._start_again:
            self._start_again.discard(ended.name)
            try:
                await self._start(ended.record.key)
            except DriverError as refusal:
                self._unread.refused(ended.record.key, refusal)

    async def _tidy(self, running: dict[str, ProcessRecord]) -> None:
        now = control.clock()
        if self._tidied_at is not None and now - self._tidied_at < _TIDY_INTERVAL_SECONDS:
            return
        self._tidied_at = now
        try:
            await asyncio.to_thread(self._launcher.tidy, running)
        except OSError as error:
            log.warning("logs of workers cannot be held to their limit", extra={"reason": str(error)})


def _kill_left_over(record: ProcessRecord) -> None:
    if record.pid is not None and record.boot_id == control.boot_id():
        try:
            killed = control.kill_left_over(record.pid, record.worker_id)
        except OSError as error:
            log.warning(
                "what a worker left behind cannot be looked for", extra={**fields(record), "reason": str(error)}
            )
            return
        if killed:
            log.warning("processes that a worker left behind were killed", extra={**fields(record), "count": killed})


def _group(record: ProcessRecord) -> Group:
    if record.stopping_since is not None:
        state = GroupState.STOPPING
    else:
        state = GroupState.STARTING if record.pid is None else GroupState.RUNNING
    return Group(record.key, state, workers=0 if record.pid is None else 1, template=record.template)
