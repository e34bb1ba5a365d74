"""Verbs over processes of this machine: spawn, recognise, watch, signal, reap.

A process is recognised by boot, pid and start time together, and signalled through a pidfd that was opened
before that check, so that a pid that the kernel has given to another process is never signalled.
See proc(5), pidfd_open(2), credentials(7).
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from osrdyne.drivers.base import How, WorkerEnd
from osrdyne_protocol import worker_environment

#: Fields of /proc/PID/stat after the command's name: state, process group, session, start time (proc(5)).
_STATE, _GROUP, _SESSION, _START_TICKS = 0, 2, 3, 19

#: Errors of /proc for a process that belongs to another user, or has ended.
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a process among all that ever ran on this machine."""

    boot_id: str
    pid: int
    #: Start time in clock ticks since boot.
    start_ticks: int


@functools.cache
def boot_id() -> str:
    """Return the kernel's random id of this boot; start times of another boot mean nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def clock() -> float:
    """Return seconds since boot, suspended time included: a clock that one daemon hands on to the next."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def spawn(command: Sequence[str], *, environment: Mapping[str, str], directory: Path | None, output: int) -> Identity:
    """Start a process in a session of its own, standard input /dev/null, output and errors to a descriptor.

    Returns once the program runs; raises the OSError of fork, chdir or exec. Call it in a thread: it waits until the
    kernel has given the new process a turn. The interpreter's lock is held for the first part of that (vfork).
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=directory,
        # UTF-8 whatever the daemon's locale: a key must arrive as it was sent.
        env={name.encode(): value.encode() for name, value in environment.items()},
        start_new_session=True,
    )
    # It outlives this object, and we reap it ourselves: no warning, no wait.
    process.returncode = 0
    _restore_open_files(process.pid)
    try:
        fields = _stat(process.pid)
    except OSError:
        # Without an identity, no daemon would find it again.
        process.kill()
        os.waitpid(process.pid, 0)
        raise
    return Identity(boot_id(), process.pid, int(fields[_START_TICKS]) if fields else 0)


def is_alive(identity: Identity | None) -> bool:
    """Return whether exactly this process runs; a zombie does not. Raises OSError when that cannot be known."""
    if identity is None or identity.boot_id != boot_id():
        return False
    fields = _stat(identity.pid)
    return fields is not None and fields[_STATE] not in ("Z", "X") and int(fields[_START_TICKS]) == identity.start_ticks


def open_pidfd(identity: Identity) -> int | None:
    """Return a descriptor of exactly this process, readable once it has exited; None when it is gone.

    Works for processes that are not our children. Raises OSError when no descriptor is free.
    """
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    try:
        # Checked after opening: from here on the descriptor cannot come to mean another process.
        fields = _stat(identity.pid)
    except OSError:
        os.close(descriptor)
        raise
    if identity.boot_id == boot_id() and fields and int(fields[_START_TICKS]) == identity.start_ticks:
        return descriptor
    os.close(descriptor)
    return None


def send_signal(pidfd: int, number: signal.Signals) -> None:
    """Signal the process; one that is gone already is not an error."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def reap(pidfd: int) -> tuple[str, WorkerEnd]:
    """Collect an exited process and return how it ended, for a person and as a value.

    The status of a process that another daemon started went to the process that adopted it, and is not known here.
    """
    try:
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return "ended (status unknown: a former daemon had started it)", WorkerEnd(How.UNKNOWN)
    if ended is None:
        return "ended", WorkerEnd(How.UNKNOWN)
    if ended.si_code == os.CLD_EXITED:
        return f"exited with status {ended.si_status}", WorkerEnd(How.EXIT, ended.si_status)
    name = signal.Signals(ended.si_status).name if ended.si_status in set(signal.Signals) else "signal"
    hint = ", perhaps by the kernel for want of memory" if ended.si_status == signal.SIGKILL else ""
    return f"was killed by {name} ({ended.si_status}{hint})", WorkerEnd(How.SIGNAL, ended.si_status)


def find_worker(worker_id: str) -> Identity | None:
    """Return the process that was started with this WORKER_ID and leads its session; None when there is none.

    Reads every process: only for a daemon that died between starting a worker and writing down its pid. Raises OSError
    when that cannot be known.
    """
    for pid in _pids():
        fields = _stat(pid)
        if fields and int(fields[_SESSION]) == pid and _has_worker_id(pid, worker_id):
            return Identity(boot_id(), pid, int(fields[_START_TICKS]))
    return None


def kill_left_over(group: int, worker_id: str) -> int:
    """Kill what a worker that has ended left behind in its process group; return how many were signalled.

    Only processes that inherited this WORKER_ID: the group's number may have been reused by now. Raises OSError when
    the search fails.
    """
    signalled: set[int] = set()
    while _group_exists(group):
        found = {pid for pid in _pids() if _is_member(pid, group) and _has_worker_id(pid, worker_id)}
        # Repeat until no new process is found: a member may have forked meanwhile.
        if found <= signalled:
            break
        for pid in found - signalled:
            _kill(pid, worker_id)
        signalled |= found
    return len(signalled)


def raise_open_files() -> None:
    """Raise this process's limit of open files to what the system allows: each watched worker costs one.

    Workers keep the limit that we were started with: a program that uses select(2) relies on a low one.
    """
    _, hard = _inherited_open_files()
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@functools.cache
def _inherited_open_files() -> tuple[int, int]:
    """Return the soft and hard limit of open files as they were when first asked for."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _restore_open_files(pid: int) -> None:
    with contextlib.suppress(OSError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _inherited_open_files())


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name, which may itself hold blanks and parentheses.

    None for a process that is gone, or hidden from us. Raises OSError when that cannot be known: no free descriptor.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except _GONE:
        return None
    return text.rpartition(")")[2].split()


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _is_member(pid: int, group: int) -> bool:
    fields = _stat(pid)
    return fields is not None and int(fields[_GROUP]) == group and fields[_STATE] not in ("Z", "X")


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _kill(pid: int, worker_id: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            # Looked at again behind the descriptor: the pid may have passed on since the listing.
            if _has_worker_id(pid, worker_id):
                send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def _has_worker_id(pid: int, worker_id: str) -> bool:
    wanted = f"{worker_environment.WORKER_ID}={worker_id}".encode()
    try:
        return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except _GONE:
        return False
