"""Records of worker processes on disk, so that the next daemon finds what this one started.

One file a group, named by its engine name, in a directory of one pool and instance; written by rename, so
that a reader sees an old or a new record and never half of one. Power loss is not guarded against: it ends
the workers too. No record holds a credential.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from osrdyne.drivers import private_place
from osrdyne.drivers.subprocess import control
from osrdyne.errors import DriverError
from osrdyne_protocol import foreign_json, keys, names

log = logging.getLogger(__name__)

_SUFFIX = ".json"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One worker. Without pid it is an intent: written before the process starts, completed after it."""

    key: str
    pool: str
    instance: str
    worker_id: str
    #: Hash of the template it was started from.
    template: str
    boot_id: str
    #: Seconds since boot (`control.clock`) of the start.
    started: float
    #: The same for a person: local time with offset.
    started_at: str
    pid: int | None = None
    #: Start time in clock ticks since boot; with pid and boot id, the identity of the process.
    start_ticks: int | None = None
    #: Seconds since boot of the request to stop; None without one.
    stopping_since: float | None = None

    @property
    def identity(self) -> control.Identity | None:
        """The identity of this worker's process; None for an intent."""
        if self.pid is None or self.start_ticks is None:
            return None
        return control.Identity(self.boot_id, self.pid, self.start_ticks)


class Records:
    """The records of one pool and instance. Several daemons may hold one; changes are made under `locked`."""

    def __init__(self, state_dir: Path, pool: str, instance: str) -> None:
        private_place.make(state_dir, 0o022)
        #: Directory of this pool and instance.
        self.directory = private_place.make(state_dir / names.engine_name(pool, instance, ""), 0o022)
        self._pool = pool
        self._instance = instance
        #: Name to (inode, modification time) and what was read then.
        self._cache: dict[str, tuple[tuple[int, int], ProcessRecord]] = {}

    def name(self, key: str) -> str:
        """Return the name of a key's group: of its record and of its log."""
        return names.engine_name(self._pool, self._instance, key)

    def running_elsewhere(self) -> list[int]:
        """Return the pids of our workers whose records are in other directories: an earlier version had others."""
        found = []
        for path in self.directory.parent.glob(f"*/*{_SUFFIX}"):
            if path.parent != self.directory:
                with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
                    record = _record(foreign_json.read(path.read_bytes()))
                    ours = (record.pool, record.instance) == (self._pool, self._instance)
                    if ours and record.pid is not None and control.is_alive(record.identity):
                        found.append(record.pid)
        return found

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other daemons from changing records meanwhile; raises `DriverError` while one does.

        Never waits, so that a daemon that hangs cannot hang this one. A process that is being started holds the
        lock too until its program runs: the next holder finds every process that was meant to start.
        """
        try:
            descriptor = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DriverError(f"cannot lock {self.directory}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise DriverError(f"another daemon is starting or stopping a worker in {self.directory}") from error
        try:
            yield
        finally:
            os.close(descriptor)

    def read_all(self) -> dict[str, ProcessRecord]:
        """Return every record by group name. Reads only files that changed since the last call."""
        try:
            with os.scandir(self.directory) as entries:
                found = {entry.name: entry.stat() for entry in entries if entry.name.endswith(_SUFFIX)}
        except OSError as error:
            raise DriverError(f"cannot list {self.directory}: {error.strerror}") from error
        records: dict[str, ProcessRecord] = {}
        for file, status in found.items():
            name = file.removesuffix(_SUFFIX)
            mark = (status.st_ino, status.st_mtime_ns)
            cached = self._cache.get(name)
            record = cached[1] if cached and cached[0] == mark else self._parse(name)
            if record is not None:
                self._cache[name] = (mark, record)
                records[name] = record
        for name in self._cache.keys() - records.keys():
            del self._cache[name]
        return records

    def read(self, name: str) -> ProcessRecord | None:
        """Return one group's record as it is on disk now. Raises `DriverError` when that cannot be known."""
        return self._parse(name)

    def write(self, record: ProcessRecord) -> None:
        """Replace a group's record at once. Raises `DriverError`, and the old record stays."""
        path = self._path(self.name(record.key))
        temporary = path.with_suffix(".tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(asdict(record), file)
            temporary.replace(path)
        except OSError as error:
            raise DriverError(
                f"cannot write {path}: {error.strerror}; without it a restart would lose the worker"
            ) from error

    def remove(self, record: ProcessRecord) -> None:
        """Remove the record of one worker; a record that has since come to mean another worker stays."""
        name = self.name(record.key)
        current = self._parse(name)
        if current is not None and current.worker_id == record.worker_id:
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}{_SUFFIX}"

    def _parse(self, name: str) -> ProcessRecord | None:
        path = self._path(name)
        try:
            record = _record(foreign_json.read(path.read_bytes()))
            if self.name(record.key) != name:
                raise ValueError("it belongs to another pool, instance or key")
        except FileNotFoundError:
            return None
        except (*_BAD_FILE, ValueError, TypeError, KeyError, AttributeError) as error:
            # Put aside for a person: an unreadable record must not decide which process gets a signal.
            with contextlib.suppress(OSError):
                path.replace(path.with_suffix(".unreadable"))
            log.warning("unreadable worker record put aside", extra={"path": str(path), "reason": str(error)})
            return None
        except OSError as error:
            # No free descriptor, or a failing disk: the worker may still run.
            raise DriverError(f"cannot read {path}: {error.strerror}") from error
        return record


def _record(values: dict[str, Any]) -> ProcessRecord:
    """Return a record from what was read; raises ValueError or TypeError for what we never wrote."""
    for name, value in values.items():
        kinds = _KINDS.get(name, (str,))
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}")
    keys.decode(values["key"])
    return ProcessRecord(**values)


#: What is wrong with a file itself, and does not pass.
_BAD_FILE = (PermissionError, IsADirectoryError)

#: Types of a record's fields that are not text.
_KINDS: Mapping[str, tuple[type, ...]] = {
    "started": (float, int),
    "pid": (int, NoneType),
    "start_ticks": (int, NoneType),
    "stopping_since": (float, int, NoneType),
}
