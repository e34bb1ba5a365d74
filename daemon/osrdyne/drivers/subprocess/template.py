"""The template that infrastructure code declares for workers that run as processes.

It is checked when it is created: a value that no process can start with is an error that names the setting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from osrdyne_protocol import keys, worker_environment
from osrdyne_protocol.errors import SettingsError
from osrdyne_runtime.settings.model import Seconds

#: Variables that the driver sets for each worker.
WORKER_VARIABLES = worker_environment.VARIABLES

#: Least bytes of a log: its heading fits, and some lines.
LEAST_LOG = 8192

#: A worker that was asked to stop may take this long beyond the consumer timeout, in seconds: the broker
#: takes a request from a worker that held it longer than that timeout, so more waiting gains nothing.
GRACE_MARGIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SubprocessTemplate:
    """How every worker of a pool is started; the driver adds the six WORKER_* variables and nothing else."""

    # Read by pydantic when it parses this from settings: an unknown field is an error.
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    #: Program and arguments; no shell is involved. A wrapper must `exec` the worker: only this process is
    #: asked to stop, and what is left of its process group when it ends is killed.
    command: tuple[str, ...]
    #: Variables beside WORKER_* and the few that are passed on from the daemon. May hold credentials.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Absolute path; None for the daemon's own working directory.
    working_directory: Path | None = None
    #: Seconds between SIGTERM and SIGKILL; None for the pool's consumer timeout plus `GRACE_MARGIN_SECONDS`.
    stop_grace: Seconds | None = None
    #: Absolute path of a directory for logs; None for a directory beside the records.
    log_directory: Path | None = None
    #: Longest log of a group, in bytes, to the next lower 512; one older copy of this size is kept.
    log_limit: int = 10_000_000
    #: How many logs of groups that no longer run are kept.
    log_files: int = 1000

    def __post_init__(self) -> None:
        """Raises `SettingsError` for a value that no process can start with, or that would hide a driver's variable."""
        if not self.command or not self.command[0]:
            raise SettingsError("driver.template.command", "names no program; give program and arguments as a list")
        if any("\0" in part for part in self.command):
            raise SettingsError("driver.template.command", "holds NUL, which no process can be given")
        for name, text in self.environment.items():
            # The value is not shown: it may be a credential.
            if not name or "=" in name or "\0" in name + text:
                raise SettingsError(
                    "driver.template.environment", f"{name!r} is not a variable that a process can be given"
                )
            if name in WORKER_VARIABLES:
                raise SettingsError(
                    f"driver.template.environment.{name}", "is set for each worker; choose another name"
                )
        if self.log_limit < LEAST_LOG:
            raise SettingsError("driver.template.log_limit", f"is less than {LEAST_LOG} bytes; give it more")
        for setting in ("working_directory", "log_directory"):
            path = getattr(self, setting)
            if path is not None and not path.is_absolute():
                raise SettingsError(f"driver.template.{setting}", f"{str(path)!r} is not an absolute path")

    def hash(self, consumer_timeout_ms: int) -> str:
        """Short hash of the worker's template; other changes restart no group.

        The pool's consumer timeout is part of it, because a running worker uses the one from its start.
        """
        directory = str(self.working_directory) if self.working_directory else ""
        what = [list(self.command), sorted(self.environment.items()), directory, consumer_timeout_ms]
        return keys.digest(json.dumps(what))[:16]
