"""Log files of workers: one a group, appended by a small program of its own, so that no daemon has to run for it.

The file is named as the group; its first line names the key. The worker writes to a pipe, and `cat` copies that to the
file. The kernel refuses `cat` to write beyond the limit (RLIMIT_FSIZE), however fast the worker is. A shell, which has
waited for that, copies the file to `.log.1`, empties it, and starts the next `cat`. What the first had read and not
written is lost: 128 KiB at most. Both run before the worker does: a process that is refused is then a start that fails.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import resource
import subprocess
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from osrdyne.drivers import redaction

_SUFFIX = ".log"
_OLD_SUFFIX = ".log.1"
#: Names of logs of groups, also of those that earlier versions wrote. What has another name is never removed.
_OURS = re.compile(r"[a-z0-9-]+-[0-9a-f]{20}([0-9a-f]{12})?\.log")

#: How much of a log's end is searched for its last line.
_TAIL_BYTES = 4096

#: Takes over when `cat`, whose standard error it reads as descriptor 0, cannot write or has ended. Gets the pipe as
#: descriptor 2, the path, and the limit in units of 512 bytes. Without room for a copy, the log stays and the older one
#: is given up. Where no process can be made, what the worker writes is dropped; else its next write would fail. It ends
#: when the last process with the worker's output has ended, or when there is no `cat`.
_SUCCESSOR = """
ulimit -S -f "$2"; trap '' XFSZ TERM INT HUP QUIT
dropped='{"osrdyne": "worker", "dropped": "all that follows, because the system refused a process to empty this log"}'
trap 'ulimit -S -f unlimited; printf "\\n%s\\n" "$dropped" >> "$1"; exec cat <&3 > /dev/null' EXIT
full() { if cp "$1" "$1.1"; then printf '%s\n' "$HEADING" > "$1"; else : > "$1.1"; fi; }
exec 3<&2 2> /dev/null
if read -r _; then full "$1"; fi
exec <&3
until cat || [ $? -gt 125 ]; do full "$1"; done
trap - EXIT
"""
#: What `ulimit -f` counts in (POSIX).
_BLOCK = 512

#: Begins the lines that are ours in a worker's log.
_HEAD = '{"osrdyne": "worker"'


class Logs:
    """The logs of one pool and instance in `directory`, at most `limit` bytes each plus one older copy."""

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        # Nothing here can write more, and without a privilege a limit cannot be raised.
        self._limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        #: Pids of our children that write logs, so that those that ended are reaped.
        self._writers: set[int] = set()

    def path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"

    def open(self, name: str, heading: Mapping[str, object]) -> int:
        """Return a pipe to a group's log, after one line that says who writes now.

        Raises OSError. The caller closes it.
        """
        self._trim(self.path(name))
        log = self._locked(name)
        try:
            os.write(log, _line(heading))
            return self._pipe_to(log, name, heading)
        finally:
            os.close(log)

    def _locked(self, name: str) -> int:
        """Return a group's log, with a lock that is held as long as something writes there: see `_unwritten`."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            log = os.open(self.path(name), flags, 0o600)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(log, fcntl.LOCK_SH)
            if os.fstat(log).st_nlink:
                return log
            os.close(log)  # `tidy` removed it meanwhile

    def _pipe_to(self, log: int, name: str, heading: Mapping[str, object]) -> int:
        self._reap()
        successor = ["sh", "-c", _SUCCESSOR, "osrdyne-log", str(self.path(name)), str(self._limit // _BLOCK)]
        reading, writing = os.pipe2(os.O_CLOEXEC)
        hearing, saying = os.pipe2(os.O_CLOEXEC)
        try:
            writer = self._start(["cat"], (reading, log, saying), heading)
            resource.prlimit(writer, resource.RLIMIT_FSIZE, (self._limit // _BLOCK * _BLOCK,) * 2)
            self._start(successor, (hearing, log, reading), heading)
        except OSError:
            os.close(writing)  # which ends what was started
            raise
        finally:
            for descriptor in (reading, hearing, saying):
                os.close(descriptor)
        return writing

    def _start(self, command: list[str], descriptors: tuple[int, int, int], heading: Mapping[str, object]) -> int:
        """Start what outlives this object, with these as its descriptors 0 to 2; return its pid."""
        # Other accounts see a command line, and no environment.
        environment = {b"PATH": os.environb.get(b"PATH", os.defpath.encode()), b"HEADING": _line(heading).rstrip()}
        process = subprocess.Popen(
            command,
            stdin=descriptors[0],
            stdout=descriptors[1],
            stderr=descriptors[2],
            cwd="/",
            env=environment,
            start_new_session=True,
            restore_signals=False,  # SIGXFSZ stays ignored: a write that goes too far is an error
        )
        process.returncode = 0  # we reap it ourselves
        self._writers.add(process.pid)
        return process.pid

    def is_written(self, name: str) -> bool:
        """Return whether something may still write to a group's log: its worker, or what copies the pipe."""
        try:
            with self._unwritten(name) as unwritten:
                return not unwritten
        except OSError:
            return False

    @contextlib.contextmanager
    def _unwritten(self, name: str) -> Iterator[bool]:
        """Have whether nothing writes to a group's log, and let nothing begin within. Raises OSError."""
        try:
            log = self.path(name).open("rb")
        except PermissionError:  # the log of another user: this daemon starts workers as its own
            yield True
            return
        with log:
            unwritten = True
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:  # or a file system without locks
                unwritten = not isinstance(error, BlockingIOError)
            yield unwritten

    def _reap(self) -> None:
        for pid in list(self._writers):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._writers.discard(pid)

    def last_lines(self, name: str, worker_id: str, secrets: set[str]) -> tuple[str, ...]:
        """Return what a worker of a group wrote last, as an error may show it: none of its successor."""
        try:
            with self.path(name).open("rb") as file:
                start = file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
                lines = file.read().decode("utf-8", errors="replace").splitlines()
        except OSError:
            return ()
        heads = [number for number, line in enumerate(lines) if line.startswith(_HEAD)]
        begin = next((number for number in reversed(heads) if worker_id in lines[number]), -1)
        end = next((number for number in heads if number > begin), len(lines))
        return redaction.last_lines(lines[begin + 1 : end], secrets, without_begin=begin < 0 < start)

    def tidy(self, running: Mapping[str, Mapping[str, object]], keep: int) -> None:
        """Hold every log to its limit and the number of logs of groups that no longer run to `keep`.

        `running` maps the names of groups that run to their headings, repeated in a log that was emptied.
        A running writer holds its log to the limit of its start; this is for a lower one, and for workers from before.
        Errors of the file system are left to the next call.
        """
        self._reap()
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
                if _OURS.fullmatch(entry.name) and entry.name.removesuffix(_SUFFIX) not in running
            ]
        for _, name in sorted(ended, reverse=True)[keep:]:
            with contextlib.suppress(OSError), self._unwritten(name) as unwritten:
                if unwritten:
                    self.path(name).unlink()
                    self.path(name).with_suffix(_OLD_SUFFIX).unlink(missing_ok=True)


def _line(heading: Mapping[str, object]) -> bytes:
    # Characters as they are, so that a key can be searched for; line breaks in it are escaped.
    text = json.dumps({"osrdyne": "worker", **heading}, ensure_ascii=False)
    return f"{text}\n".encode()
