"""A Go toolchain that is new enough: the machine's own, else one from the Go module proxy, kept in the cache."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from testbed import apt

#: The oldest Go that builds all of the modules.
OLDEST = (1, 26, 6)
#: What is fetched where the machine's is older.
FETCHED = "1.26.6"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class GoMissing(RuntimeError):
    """No toolchain could be had; the text says why and what to do."""


@cache
def go(folder: Path) -> str:
    """Path of a `go` that is new enough; what has to be fetched is kept in `folder`. Raises NoGo."""
    own = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    if own and version(own) >= OLDEST:
        return own
    architecture = ARCHITECTURES.get(os.uname().machine)
    if architecture is None:
        raise GoMissing(
            f"no Go toolchain for {os.uname().machine} is known here; install Go {_dotted(OLDEST)} or later"
        )
    kept = folder / f"go{FETCHED}.linux-{architecture}"
    folder.mkdir(parents=True, exist_ok=True)
    with kept.with_name(f"{kept.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _fetch(own or _install(), kept)
    return str(kept / "bin/go")


def version(program: str) -> tuple[int, ...]:
    """The version that a `go` says it has; () when it says none."""
    output = subprocess.run([program, "version"], check=False, capture_output=True, text=True, env=environment()).stdout
    found = re.search(r"\bgo(\d+(?:\.\d+)+)", output)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def environment() -> dict[str, str]:
    """For `go`: static programs, made of exactly what go.mod and go.sum name."""
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _install() -> str:
    """Debian's own Go, which is too old to build anything here, but fetches modules."""
    try:
        apt.install("golang-go", why=f"Go; {_dotted(OLDEST)} or later would do without")
    except apt.NotInstalled as error:
        raise GoMissing(str(error)) from error
    own = shutil.which("go")
    if own is None:
        raise GoMissing(f"golang-go brought no `go`; install Go {_dotted(OLDEST)} or later")
    return own


def _fetch(program: str, kept: Path) -> None:
    """The toolchain is published as a module, whose files have lost their right to be executed."""
    module = f"golang.org/toolchain@v0.0.1-{kept.name}"
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [program, "mod", "download", "-json", module],
            check=False,
            capture_output=True,
            text=True,
            cwd=empty,
            env={**environment(), "GOFLAGS": "-mod=mod"},
        )
    if done.returncode:
        raise GoMissing(
            f"{module} could not be fetched; install Go {_dotted(OLDEST)} or later: {done.stdout}{done.stderr}"
        )
    part = Path(tempfile.mkdtemp(prefix=f"{kept.name}-", dir=kept.parent))
    try:
        shutil.copytree(json.loads(done.stdout)["Dir"], part / "go")
        # The cache of modules is read-only, and so is its copy.
        for path in (part / "go").rglob("*"):
            programs = path.parent.name == "bin" or "pkg/tool" in str(path)
            path.chmod(0o755 if path.is_dir() or programs else 0o644)
        (part / "go").chmod(0o755)
        (part / "go").rename(kept)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in numbers)
