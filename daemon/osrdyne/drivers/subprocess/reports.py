"""What is said of the exit of a process: how it ended and its last lines, in the order of the exits of its group."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from osrdyne.drivers.base import Change, How, WorkerEnd
from osrdyne.drivers.in_turn import TasksInTurn, Turn
from osrdyne.drivers.subprocess import control
from osrdyne.drivers.subprocess.launch import Launcher
from osrdyne.drivers.subprocess.process_watch import ProcessExit
from osrdyne.drivers.subprocess.records import ProcessRecord
from osrdyne.drivers.unread import UnreadChanges

log = logging.getLogger(__name__)


class ExitReports:
    """Reports of exits. Each waits for what the worker still writes, and for the report before it."""

    def __init__(
        self, launcher: Launcher, unread: UnreadChanges, grace: float, then: Callable[[ProcessExit], Awaitable[None]]
    ) -> None:
        """`grace` is what a worker has after SIGTERM, in seconds. `then` is awaited when an exit has been reported."""
        self._launcher = launcher
        self._unread = unread
        self._grace = grace
        self._then = then
        self._reports = TasksInTurn()

    def begin(self, ended: ProcessExit) -> None:
        """Report an exit that was seen now."""
        seconds = control.clock() - ended.record.started
        self._reports.begin(ended.name, partial(self._report, ended, seconds))

    async def finish(self) -> None:
        """Wait for the reports that have begun."""
        await self._reports.finish()

    def unseen(self, name: str, record: ProcessRecord) -> None:
        """Report a worker that ended while no daemon watched it."""
        log.info("worker had ended while no daemon watched it", extra=fields(record))
        self._unread.tell(Change(record.key, None, self._end(name, record, WorkerEnd(How.UNKNOWN))))

    async def _report(self, ended: ProcessExit, seconds: float, turn: Turn) -> None:
        record = ended.record
        requested = record.stopping_since is not None
        if ended.killed or not requested:
            await self._launcher.until_written(ended.name)
        end = self._end(ended.name, record, ended.end, seconds=seconds)
        if requested:
            end = dataclasses.replace(end, how=How.STOPPED, code=None)
        await turn()
        error = self._error(ended, end)
        log.log(
            logging.INFO if error is None else logging.WARNING,
            "worker ended",
            extra={**fields(record), "how": ended.how, "error": error},
        )
        self._unread.tell(Change(record.key, error, end))
        await self._then(ended)

    def _end(self, name: str, record: ProcessRecord, end: WorkerEnd, *, seconds: float | None = None) -> WorkerEnd:
        """Return the end of a worker with all that is known of it."""
        return dataclasses.replace(
            end,
            worker_id=record.worker_id,
            seconds=seconds,
            output=self._launcher.last_lines(name, record.worker_id),
            log=self._launcher.log(name),
        )

    def _error(self, ended: ProcessExit, end: WorkerEnd) -> str | None:
        """Return what a person should know of an exit, None for a requested one."""
        if ended.killed:
            return (
                f"worker did not end within {self._grace:g} s of SIGTERM and was killed; "
                f"what it held goes back to its queue{end.trace}"
            )
        return None if end.how is How.STOPPED else f"worker {ended.how} after {end.seconds:.1f} s{end.trace}"


def fields(record: ProcessRecord) -> dict[str, object]:
    """Return what a log message says of a worker."""
    return {"key": record.key, "pid": record.pid, "worker_id": record.worker_id}
