"""Packages of the system that engines need: installed by apt where they are missing, one installation at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

#: Only one process reads package lists or installs at a time: a second `apt-get update` fails instead of waiting.
LOCK = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "osrdyne/apt.lock"


class NotInstalled(RuntimeError):
    """apt could not install a package; the text says which and why."""


def install(*packages: str, why: str) -> None:
    """Install packages, and say so on standard error. Raises NotInstalled."""
    if not shutil.which("apt-get"):
        raise NotInstalled(f"{why}: there is no apt-get here; install {' '.join(packages)} by hand")
    superuser = [] if os.geteuid() == 0 else ["sudo", "-n"]
    command = [*superuser, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(LOCK, os.O_RDONLY | os.O_CREAT, 0o666)
    with os.fdopen(descriptor) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(f"{why}: apt installs {' '.join(packages)}", file=sys.stderr, flush=True)
        # A mirror that is away for a moment is no reason to give up.
        for last in (False, True):
            _run([*command, "update"])
            done = _run([*command, "install", "-y", "--no-install-recommends", *packages])
            if done.returncode == 0:
                return
            if last:
                raise NotInstalled(f"{why}: apt-get could not install {' '.join(packages)}: {done.stderr[-800:]}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
