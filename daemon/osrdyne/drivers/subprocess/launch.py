"""Starting one worker process: its environment, its log, and the error when it cannot be started.

Reads the template and, of the daemon's environment, a short list; writes the heading of the log. Holds the
broker credential only while a process is being started and to keep it out of errors.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from osrdyne.drivers import private_place, redaction
from osrdyne.drivers.subprocess import control
from osrdyne.drivers.subprocess.output_files import Logs
from osrdyne.drivers.subprocess.records import ProcessRecord
from osrdyne.drivers.subprocess.template import SubprocessTemplate
from osrdyne.errors import DriverError
from osrdyne_protocol.errors import SettingsError
from osrdyne_protocol.names import PoolNames
from osrdyne_protocol.worker_environment import WorkerEnvironment

#: What a worker inherits of the daemon's environment, beside `LC_*`: nothing that could be a credential.
PASSED_ON = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR"}
)

#: Between looks for the last lines of a worker that has ended: a second together.
_LAST_LINES_PAUSES = (0.005,) * 20 + (0.1,) * 9

#: What to do about a refusal that is not about the command itself.
_REMEDIES = {
    errno.EAGAIN: "raise the limit of processes (TasksMax of the unit, ulimit -u) or start fewer at once",
    errno.ENOMEM: "free memory, or allow fewer groups at once",
    errno.EMFILE: "raise the limit of open files (LimitNOFILE of the unit, ulimit -n)",
    errno.ENOSPC: "free space where logs and records are kept",
    errno.E2BIG: "shorten the command or the environment of the template",
    errno.ENOEXEC: "name an interpreter in the file's first line, or put one first in the command",
}


class Launcher:
    """Starts workers of one pool from one template. `worker_amqp_uri` is called at each start."""

    def __init__(
        self,
        template: SubprocessTemplate,
        worker_amqp_uri: Callable[[], str],
        log_directory: Path,
        worker_amqp_uri_file: Path | None = None,
        consumer_timeout_ms: int | None = None,
    ) -> None:
        self._template = template
        self._worker_amqp_uri = worker_amqp_uri
        self._worker_amqp_uri_file = None if worker_amqp_uri_file is None else str(worker_amqp_uri_file.absolute())
        self._consumer_timeout_ms = consumer_timeout_ms
        self._logs = Logs(private_place.make(log_directory, 0o022), template.log_limit)
        # One start at a time. The thread is made now: at a limit of processes, a start must fail and not stay queued.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="start")
        try:
            self._thread.submit(int).result()
        except RuntimeError as error:
            raise DriverError(f"cannot start a thread; {_REMEDIES[errno.EAGAIN]}") from error

    async def launch(self, name: str, record: ProcessRecord) -> control.Identity:
        """Start the worker of `record`. Raises `DriverError` that says what failed and what to do.

        Waits in a thread until the program runs: on a busy machine that takes tens of milliseconds.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._launch, name, record, self._environment(record))

    def close(self) -> None:
        """End the thread. Call it when no start is under way."""
        self._thread.shutdown(wait=False)

    def _launch(self, name: str, record: ProcessRecord, environment: dict[str, str]) -> control.Identity:
        try:
            output = self._logs.open(name, heading(record))
        except OSError as error:
            path = self._logs.path(name)
            raise DriverError(f"cannot write the log {path}: {error.strerror}; {_remedy(error)}") from error
        try:
            return control.spawn(
                self._template.command,
                environment=environment,
                directory=self._template.working_directory,
                output=output,
            )
        except OSError as error:
            raise DriverError(
                f"cannot start a worker for key {record.key!r}: {self._reason(error, environment)}"
            ) from error
        finally:
            os.close(output)

    def log(self, name: str) -> str:
        """Return where a group's log is."""
        return str(self._logs.path(name))

    def last_lines(self, name: str, worker_id: str) -> tuple[str, ...]:
        """Return what a worker of a group wrote last, with the broker's password struck out."""
        try:
            secrets = redaction.passwords(self._worker_amqp_uri())
        except (SettingsError, ValueError):
            # What cannot be struck out is not shown.
            return ()
        return self._logs.last_lines(name, worker_id, secrets)

    async def until_written(self, name: str) -> None:
        """Wait until all that an ended worker wrote is in its log; at most a second, as others may have its output."""
        for pause in _LAST_LINES_PAUSES:
            if not self._logs.is_written(name):
                return
            await asyncio.sleep(pause)

    def tidy(self, running: dict[str, ProcessRecord]) -> None:
        """Keep logs within their limits. Raises OSError."""
        self._logs.tidy({name: heading(record) for name, record in running.items()}, self._template.log_files)

    def _environment(self, record: ProcessRecord) -> dict[str, str]:
        try:
            amqp_uri = self._worker_amqp_uri()
        except SettingsError as error:
            raise DriverError(f"cannot start a worker for key {record.key!r}: {error}") from error
        inherited = os.environ.items()
        passed = {name: text for name, text in inherited if name in PASSED_ON or name.startswith("LC_")}
        pool = PoolNames(record.pool)
        worker = WorkerEnvironment(
            id=record.worker_id,
            key=record.key,
            pool=record.pool,
            requests_queue=pool.request_queue(record.key),
            activity_exchange=pool.activity_exchange,
            amqp_uri=amqp_uri,
            amqp_uri_file=self._worker_amqp_uri_file,
            consumer_timeout_ms=self._consumer_timeout_ms,
        )
        return {**passed, **self._template.environment, **worker.to_environ()}

    def _reason(self, error: OSError, environment: dict[str, str]) -> str:
        command, directory = self._template.command[0], self._template.working_directory
        if directory is not None and error.filename == directory:
            return f"working_directory {directory}: {error.strerror}; create it or name another"
        if isinstance(error, FileNotFoundError):
            where = "" if "/" in command else f" in PATH={environment.get('PATH', os.defpath)}"
            return f"command {command!r} or its interpreter was not found{where}; install it or name another"
        if isinstance(error, PermissionError):
            return f"command {command!r} may not be run by this user; chmod +x it or name another"
        return f"{error.strerror}; {_remedy(error)}"


def heading(record: ProcessRecord) -> dict[str, object]:
    """Return the heading of a worker's lines in a log: who it is, and nothing that changes while it runs."""
    return {
        "key": record.key,
        "pool": record.pool,
        "instance": record.instance,
        "worker_id": record.worker_id,
        "started": record.started_at,
    }


def _remedy(error: OSError) -> str:
    return _REMEDIES.get(error.errno or 0, "check the driver's settings and the system's log")
