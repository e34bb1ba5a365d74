"""Log files of workers: one a group, appended by the worker itself, so that no daemon has to run for it.

The file is named as the group; its first line names the key. A file that outgrows its limit is copied to
`.log.1` and emptied while the worker writes on: lines of that moment can be lost, the disk cannot fill.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Set
from pathlib import Path

from osrdyne.drivers import redaction

_SUFFIX = ".log"
_OLD_SUFFIX = ".log.1"

#: How much of a log's end is searched for its last line.
_TAIL_BYTES = 4096

#: Begins the lines that are ours in a worker's log.
_HEAD = '{"osrdyne": "worker"'


class Logs:
    """The logs of one pool and instance in `directory`, at most `limit` bytes each plus one older copy."""

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._limit = limit

    def path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"

    def open(self, name: str, heading: Mapping[str, object]) -> int:
        """Return a descriptor that appends to a group's log, after one line that says who writes now.

        Raises OSError. The caller closes it.
        """
        self._trim(self.path(name))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path(name), flags, 0o600)
        try:
            os.write(descriptor, _line(heading))
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def last_line(self, name: str, secrets: set[str]) -> str:
        """Return the last line that is not blank, as an error may show it; empty when there is none."""
        try:
            with self.path(name).open("rb") as file:
                start = file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
                lines = file.read().decode("utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        number = next((number for number in reversed(range(len(lines))) if lines[number].strip()), None)
        if number is None or lines[number].startswith(_HEAD):
            return ""
        return redaction.shown(lines[number], secrets, without_begin=number == 0 and start > 0)

    def tidy(self, running: Mapping[str, Mapping[str, object]], keep: int) -> None:
        """Hold every log to its limit and the number of logs of groups that no longer run to `keep`.

        `running` maps the names of groups that run to their headings, repeated in a log that was emptied.
        Errors of the file system are left to the next call.
        """
        for name, heading in running.items():
            path = self.path(name)
            if self._trim(path):
                with path.open("ab") as file:
                    file.write(_line(heading))
        self._prune(running.keys(), keep)

    def _trim(self, path: Path) -> bool:
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return False
        if size <= self._limit:
            return False
        with path.open("r+b") as file:
            file.seek(size - self._limit)
            old = path.with_suffix(_OLD_SUFFIX)
            descriptor = os.open(old, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "wb") as copy:
                os.sendfile(copy.fileno(), file.fileno(), size - self._limit, self._limit)
            file.truncate(0)
        return True

    def _prune(self, running: Set[str], keep: int) -> None:
        with os.scandir(self._directory) as entries:
            ended = [
                (entry.stat().st_mtime, entry.name.removesuffix(_SUFFIX))
                for entry in entries
                if entry.name.endswith(_SUFFIX) and entry.name.removesuffix(_SUFFIX) not in running
            ]
        for _, name in sorted(ended, reverse=True)[keep:]:
            self.path(name).unlink(missing_ok=True)
            self.path(name).with_suffix(_OLD_SUFFIX).unlink(missing_ok=True)


def _line(heading: Mapping[str, object]) -> bytes:
    # Characters as they are, so that a key can be searched for; line breaks in it are escaped.
    text = json.dumps({"osrdyne": "worker", **heading}, ensure_ascii=False)
    return f"{text}\n".encode()
