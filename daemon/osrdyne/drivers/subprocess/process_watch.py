"""Watching worker processes: exits are noticed at once, and a stop that takes too long is ended.

Works for processes that a former daemon started. Holds one descriptor for each worker; closing it ends no worker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from osrdyne.drivers.base import WorkerEnd
from osrdyne.drivers.subprocess import control
from osrdyne.drivers.subprocess.records import ProcessRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """A watched worker has ended. `how` is for a person; `killed` when it outlasted the grace."""

    name: str
    record: ProcessRecord
    how: str
    end: WorkerEnd
    killed: bool


@dataclass(slots=True)
class _Watch:
    record: ProcessRecord
    pidfd: int
    kill_timer: asyncio.TimerHandle | None = None
    killed: bool = False


class ProcessWatch:
    """The workers that this daemon watches, by group name. `on_exit` is called once for each exit.

    `grace` is how long a worker may take to stop, in seconds.
    """

    def __init__(self, grace: float, on_exit: Callable[[ProcessExit], None]) -> None:
        self._grace = grace
        self._on_exit = on_exit
        self._watches: dict[str, _Watch] = {}

    def is_watching(self, name: str, record: ProcessRecord) -> bool:
        """Return whether exactly this record's worker is watched, in the state of the record."""
        watch = self._watches.get(name)
        return watch is not None and watch.record == record

    def records(self) -> dict[str, ProcessRecord]:
        """Return the records of all watched workers."""
        return {name: watch.record for name, watch in self._watches.items()}

    def watch(self, name: str, record: ProcessRecord) -> bool:
        """Watch the worker of a record that has a pid; False when it has gone or no descriptor is free.

        A worker that is stopping is killed when its grace is over, counted from when it was asked to stop.
        """
        self.forget(name)
        if record.identity is None:
            return False
        try:
            pidfd = control.open_pidfd(record.identity)
        except OSError as error:
            log.warning(
                "worker cannot be watched; its exit is noticed at the next listing",
                extra={"key": record.key, "pid": record.pid, "reason": error.strerror},
            )
            return False
        if pidfd is None:
            return False
        watch = self._watches[name] = _Watch(record, pidfd)
        asyncio.get_running_loop().add_reader(pidfd, self._exited, name)
        self._arm(watch)
        return True

    def terminate(self, name: str) -> ProcessRecord | None:
        """Ask a watched worker to stop; return its record as it is from now on, None when none is watched."""
        watch = self._watches.get(name)
        if watch is None:
            return None
        control.send_signal(watch.pidfd, signal.SIGTERM)
        watch.record = dataclasses.replace(watch.record, stopping_since=control.clock())
        self._arm(watch)
        return watch.record

    def forget(self, name: str) -> None:
        """Stop watching; the worker runs on."""
        watch = self._watches.pop(name, None)
        if watch is None:
            return
        asyncio.get_running_loop().remove_reader(watch.pidfd)
        os.close(watch.pidfd)
        if watch.kill_timer is not None:
            watch.kill_timer.cancel()

    def close(self) -> None:
        """Forget every worker."""
        for name in list(self._watches):
            self.forget(name)

    def _arm(self, watch: _Watch) -> None:
        since = watch.record.stopping_since
        if since is not None:
            left = max(0.0, self._grace - (control.clock() - since))
            watch.kill_timer = asyncio.get_running_loop().call_later(left, self._kill, watch)

    def _kill(self, watch: _Watch) -> None:
        watch.killed = True
        control.send_signal(watch.pidfd, signal.SIGKILL)

    def _exited(self, name: str) -> None:
        watch = self._watches[name]
        how, end = control.reap(watch.pidfd)
        self.forget(name)
        self._on_exit(ProcessExit(name, watch.record, how, end, watch.killed))
