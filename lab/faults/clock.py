"""The wall clock that one process sees, shifted by the distribution's libfaketime; the machine's clock stays.

The package is fetched once, without being installed, and unpacked into the user's cache; no right of root is needed.
The monotonic clock of the process is left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PACKAGE = "libfaketime"
#: The variant for programs with threads.
LIBRARY = "libfaketimeMT.so.1"
SHARED_MEMORY = Path("/dev/shm")


class NoClock(RuntimeError):
    """The library could not be fetched; the text says why."""


class Clock:
    """The wall clock of the processes that get `variables` in their environment."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / "clock"
        self._library = library()
        self.shift(0)

    @property
    def variables(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            # Older and newer name of the same thing.
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Its mend for waits of an older C library makes waits of today's ones a second late.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
        }

    def shift(self, seconds: int) -> None:
        """Let the clock be so many seconds ahead of the machine's from now on."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.rename(self._file)

    @staticmethod
    def tidy(pid: int) -> None:
        """Remove what the library leaves of a process that was killed."""
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            (SHARED_MEMORY / name).unlink(missing_ok=True)


def library() -> Path:
    """Return the library, fetched when it is asked for the first time. Raises NoClock."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "osrdyne"
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / PACKAGE
    with (cache / f"{PACKAGE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _fetch(cache, target)
    found = next(target.rglob(LIBRARY), None)
    if found is None:
        raise NoClock(f"{target} holds no {LIBRARY}; remove it and try again")
    return found


def _fetch(cache: Path, target: Path) -> None:
    part = Path(tempfile.mkdtemp(prefix=f"{PACKAGE}-", dir=cache))
    # Fetched as the present user; the warning that apt's own user cannot write here means nothing.
    quiet = ["-qq", "-o", "APT::Sandbox::User=root"]
    try:
        _run(["apt-get", *quiet, "download", PACKAGE], part)
        package = next(part.glob("*.deb"))
        _run(["dpkg-deb", "-x", str(package), str(part / "tree")], part)
        (part / "tree").rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _run(command: list[str], directory: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=directory, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise NoClock(f"{command[0]} is missing: the shifted clock needs Debian's or Ubuntu's {PACKAGE}") from None
    if done.returncode:
        raise NoClock(f"{' '.join(command)}: {done.stderr.strip()}; `apt-get update` may help")
