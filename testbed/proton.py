"""qpid-proton for the tests of the bus: `folder()` is what to put on the path of Python.

It comes as C sources without wheels. So it is compiled once a machine and a version of Python, and is not in .venv, as
`make test` compiles nothing. Cold, on two quiet cores: under a minute. Where the machine has no C compiler, apt
installs one. It is compiled without Cyrus SASL and OpenSSL, whatever the machine has: the bus needs neither of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from testbed import apt
from testbed.go_builds import BuildFailed, cache
from testbed.suite import only_in_test_all

SOURCES = Path(__file__).with_suffix(".txt")


def folder() -> Path:
    """Return the folder with the packages `proton` and `cproton`, built unless it is there.

    Raises BuildFailed and apt.NotInstalled.
    """
    only_in_test_all("qpid-proton, which is compiled,")
    kept = cache() / "proton"
    made_from = SOURCES.read_bytes() + sys.version.encode() + Path(__file__).read_bytes()
    target = kept / hashlib.sha256(made_from).hexdigest()[:12]
    kept.mkdir(parents=True, exist_ok=True)
    with Path(f"{target}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _build(kept, target)
    return target


def _build(kept: Path, target: Path) -> None:
    if not shutil.which("cc"):
        apt.install("gcc", "libc6-dev", why="qpid-proton is compiled")
    print("qpid-proton is compiled, in about a minute", file=sys.stderr, flush=True)
    part = Path(tempfile.mkdtemp(prefix="part-", dir=kept))
    # Not from pip's cache: what was compiled in another way is kept there under the same name.
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "install", "--no-deps"]
    try:
        done = subprocess.run(
            [*pip, "--require-hashes", "--target", str(part), "-r", str(SOURCES)],
            check=False,
            # So pkg-config finds no libraries.
            env={**os.environ, "PKG_CONFIG_LIBDIR": str(part), "PKG_CONFIG_PATH": ""},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise BuildFailed(f"qpid-proton could not be compiled: {(done.stdout + done.stderr)[-1500:]}")
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
