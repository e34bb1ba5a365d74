"""The environment files that units read at each start, one for each group, and the record in them for later daemons.

A file holds the broker credential: only its owner can read it. Its first line is a comment with our record, the key
included; the rest is in the format of systemd.exec(5), `EnvironmentFile=`. Files are replaced, never changed in place.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from osrdyne.drivers import private_place
from osrdyne.errors import DriverError
from osrdyne_protocol import foreign_json, keys, names

log = logging.getLogger(__name__)

_SUFFIX = ".env"
_HEAD = "# osrdyne "

#: Characters that need a backslash within double quotes; any other character stands for itself, line breaks too.
_ESCAPED = re.compile(r'(["\\$`])')


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """The record of one group in its environment file."""

    key: str
    pool: str
    instance: str
    worker_id: str
    #: Hash of the template that it was started from.
    template: str

    @property
    def name(self) -> str:
        """Name of the group's instance of the template unit, and of its file."""
        return names.engine_name(self.pool, self.instance, self.key)


def render(record: UnitRecord, environment: Mapping[str, str]) -> str:
    """Return the text of a file from which systemd reads exactly this environment."""
    head = _HEAD + json.dumps(asdict(record), ensure_ascii=False)
    lines = [f'{name}="{_ESCAPED.sub(chr(92) + chr(92) + chr(92) + "1", text)}"' for name, text in environment.items()]
    return "\n".join([head, *lines, ""])


def parse(text: str) -> UnitRecord:
    """Return the record in a file. Raises ValueError for a file that the driver never wrote."""
    # Not splitlines: a key may hold characters that Python takes for the end of a line.
    head = text.split("\n", 1)[0]
    if not head.startswith(_HEAD):
        raise ValueError("its first line is not ours")
    values = foreign_json.read(head.removeprefix(_HEAD))
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise ValueError("its first line is not ours")
    try:
        record = UnitRecord(**values)
    except TypeError as error:
        raise ValueError(str(error)) from error
    keys.decode(record.key)
    return record


class EnvironmentFiles:
    """The files of one pool and instance; others may keep theirs in the same directory."""

    def __init__(self, directory: Path, pool: str, instance: str) -> None:
        """Raises `DriverError` when the directory cannot be used, or is open to others."""
        # Units read what is there, and it holds the workers' credential.
        self._directory = private_place.make(directory, 0o077)
        self._pool = pool
        self._instance = instance
        #: Name to (inode, modification time), text, and record, None for a file that is not ours to read.
        self._cache: dict[str, tuple[tuple[int, int], str, UnitRecord | None]] = {}
        #: Names of our files that are not those of their keys: an earlier version had others.
        self.other_names: set[str] = set()

    def read_all(self) -> dict[str, UnitRecord]:
        """Return every record by name. Reads only files that changed since the last call."""
        try:
            with os.scandir(self._directory) as entries:
                found = [entry.name.removesuffix(_SUFFIX) for entry in entries if entry.name.endswith(_SUFFIX)]
        except OSError as error:
            raise DriverError(f"cannot list {self._directory}: {error.strerror}") from error
        for name in self._cache.keys() - set(found):
            del self._cache[name]
        records = {name: self.read(name) for name in found}
        return {name: record for name, record in records.items() if record is not None}

    def read(self, name: str) -> UnitRecord | None:
        """Return one record as it is on disk now, None where there is none of this pool and instance."""
        path = self._path(name)
        try:
            status = path.stat()
            mark = (status.st_ino, status.st_mtime_ns)
            cached = self._cache.get(name)
            if cached is None or cached[0] != mark:
                text = path.read_bytes().decode()
                self._cache[name] = cached = (mark, text, self._ours(name, text))
        except FileNotFoundError:
            self._cache.pop(name, None)
            return None
        except OSError as error:
            raise DriverError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            self._cache[name] = (mark, "", None)
            log.warning("unreadable environment file passed over", extra={"path": str(path), "reason": str(error)})
            return None
        return cached[2]

    def write(self, record: UnitRecord, environment: Mapping[str, str]) -> None:
        """Replace a group's file at once. Raises `DriverError`, and the former file stays."""
        path, text = self._path(record.name), render(record, environment)
        temporary = path.with_suffix(".tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "wb") as file:
                file.write(text.encode())
            temporary.replace(path)
        except OSError as error:
            raise DriverError(
                f"cannot write {path}: {error.strerror}; a unit cannot be started without its environment file"
            ) from error

    def is_as(self, record: UnitRecord, environment: Mapping[str, str]) -> bool:
        """Return whether the file, as read last, equals what would be written now."""
        cached = self._cache.get(record.name)
        return cached is not None and cached[1] == render(record, environment)

    def remove(self, record: UnitRecord) -> None:
        """Remove the file of one start; a file that has since been written for another start stays."""
        current = self.read(record.name)
        if current is not None and current.worker_id == record.worker_id:
            self._path(record.name).unlink(missing_ok=True)
            self._cache.pop(record.name, None)

    def remove_other(self, name: str) -> None:
        """Remove a file of `other_names`, whose group has ended."""
        self._path(name).unlink(missing_ok=True)
        self.other_names.discard(name)
        log.info("environment file of an earlier version removed", extra={"path": str(self._path(name))})

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"

    def _ours(self, name: str, text: str) -> UnitRecord | None:
        self.other_names.discard(name)
        record = parse(text)
        if (record.pool, record.instance) != (self._pool, self._instance):
            return None
        if record.name != name:
            self.other_names.add(name)
            raise ValueError("it was written for another key")
        return record
