"""Settings of the machine's kernel that engines need while they run.

The last of several engines puts back what was before the first, also when one of them was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
WATCHERS = Path("/proc/sys/fs/inotify/max_user_instances")
#: Every systemd, containerd and kubelet takes some tens; the kernel's default of 128 is for all of them together.
ENOUGH_WATCHERS = 2048


@contextlib.contextmanager
def changed(setting: Path, wanted: Callable[[str], str], notes: Path = Path("/run")) -> Iterator[None]:
    """Let a setting be what `wanted` makes of what it was before the first engine. Needs root.

    The note beside it holds that former value; each engine holds a shared lock on it.
    """
    note = notes / f"osrdyne-{setting.name}"
    with note.open("a") as file:
        _join(file, note, setting)
        try:
            setting.write_text(wanted(note.read_text()))
            yield
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                setting.write_text(note.read_text())
                note.write_text("")


@contextlib.contextmanager
def forwarding() -> Iterator[None]:
    """Lets this machine forward packets."""
    with changed(FORWARD, lambda _: "1"):
        yield


@contextlib.contextmanager
def enough_watchers() -> Iterator[None]:
    """Lets programs of this machine watch as many files as several engines together do (inotify(7))."""
    with changed(WATCHERS, lambda before: str(max(int(before), ENOUGH_WATCHERS))):
        yield


def _join(file: TextIO, note: Path, setting: Path) -> None:
    """Takes a share of the lock; the first process notes what was before."""
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # An engine that was killed has left its note: that is what was before.
            note.write_text(note.read_text() or setting.read_text())
        fcntl.flock(file, fcntl.LOCK_SH)
        if note.read_text():
            return
