"""Folders of programs and packages that are made once a machine: `folder("node", made_from, make)`.

A folder is named after what it is made from. It is made under another name first, so that what was cut short is never
taken for a whole one. Who wants the same meanwhile waits.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.go_builds import BuildFailed, cache


def folder(purpose: str, made_from: bytes, make: Callable[[Path], None]) -> Path:
    """Return the folder, filled by `make` unless it is there. Raises what `make` raises."""
    kept = cache() / purpose
    target = kept / hashlib.sha256(made_from).hexdigest()[:12]
    kept.mkdir(parents=True, exist_ok=True)
    with Path(f"{target}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            part = Path(tempfile.mkdtemp(prefix="part-", dir=kept))
            try:
                make(part)
                part.chmod(0o755)
                part.rename(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return target


def install(
    requirements: Path, target: Path, what: str, *options: str, environment: Mapping[str, str] | None = None
) -> None:
    """Install the packages of a requirements file, which pins them by hash, into a folder. Raises BuildFailed.

    `what` names them in the error.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", *options, "install", "--no-deps"]
    run([*pip, "--require-hashes", "--target", str(target), "-r", str(requirements)], target.parent, what, environment)


def run(command: list[str], at: Path, what: str, environment: Mapping[str, str] | None = None) -> None:
    """Run a command that makes something. Raises BuildFailed with the end of its output."""
    done = subprocess.run(
        command, check=False, cwd=at, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise BuildFailed(f"{what} could not be made: {(done.stdout + done.stderr)[-1500:]}")
