"""Bare machines: root file systems of Debian with Python, git and make, and nothing else of what the project needs.

A machine is a copy of such a root in namespaces of its own. All that runs in it ends with it, and the copy is removed.
It has this machine's network, because packages come over it, and no systemd.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed import ROOT, package_sources
from testbed.broker import run_tool
from testbed.go_builds import cache
from testbed.started import StartedEngine

#: What the README asks for, and what the way to packages needs.
PACKAGES = ("python3", "git", "make", "ca-certificates")
#: Where the checkout is, in the machine.
CHECKOUT = "/srv/osrdyne"
#: The home of who runs the commands, in the machine.
HOME = "/root"
#: Where what commands print is, in the machine.
_RESULTS = "results"
_VARIABLES = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": HOME,
    "LANG": "C.UTF-8",
}


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    command: str
    #: Exit status; None where it was ended because it took too long.
    code: int | None
    seconds: float
    output: str


class BareMachine(StartedEngine):
    """A machine of a release of Debian, with a clone of this checkout's last commit, as root."""

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self._folder: Path | None = None
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> Path:
        """The root file system, while the machine is there."""
        assert self._folder is not None
        return self._folder / "root"

    def start(self) -> None:
        """Make the root file system, and the clone in it."""
        kept = cache() / "machines"
        kept.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{self.suite}-", dir=kept))
        _as_root("cp", "--archive", bare_root(self.suite), str(self.root))
        overlay = self._folder / "overlay"
        overlay.mkdir()
        package_sources.of_apt(overlay, self.suite)
        package_sources.of_pip(overlay)
        package_sources.certificates(overlay)
        shutil.copy("/etc/resolv.conf", overlay / "etc")
        (overlay / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        (overlay / _RESULTS).mkdir()
        _as_root("cp", "--recursive", "--remove-destination", f"{overlay}/.", str(self.root))
        _as_root("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), f"{self.root}{CHECKOUT}")

    def run(self, *commands: str, limit: float) -> Iterator[Outcome]:
        """Run commands of a shell one after the other, in the checkout, and yield how each ended.

        What one leaves running, the next finds. A command that takes longer than `limit` seconds ends all.
        """
        results = self.root / _RESULTS
        lines = [f"cd {CHECKOUT}"]
        for number, command in enumerate(commands):
            result = f"/{_RESULTS}/{number}"
            lines.append(f"sh -c {shlex.quote(command)} </dev/null >{result}.log 2>&1; echo $? >{result}.new")
            lines.append(f"mv {result}.new {result}.code")
        self._running = subprocess.Popen(_superuser(*self._inside("\n".join(lines))), start_new_session=True)
        for number, command in enumerate(commands):
            started = time.monotonic()
            code = self._wait(results / f"{number}.code", limit)
            output = _as_root("cat", str(results / f"{number}.log"))
            yield Outcome(command, code, time.monotonic() - started, output)
            if code is None:
                return

    def size(self, path: str) -> int:
        """Return the bytes that a folder of the machine takes on the disk; 0 where it is missing."""
        counted = subprocess.run(
            _superuser("du", "--summarize", "--one-file-system", "--block-size=1", f"{self.root}{path}"),
            check=False,
            capture_output=True,
            text=True,
        )
        return int(counted.stdout.split()[0]) if counted.returncode == 0 else 0

    def close(self) -> None:
        """End all that runs in the machine, and remove it."""
        if self._running is not None and self._running.poll() is None:
            # `unshare` takes all processes of its namespace with it.
            _as_root("kill", "-KILL", "--", f"-{self._running.pid}")
            self._running.wait()
        if self._folder is not None:
            _as_root("rm", "--recursive", "--force", "--one-file-system", str(self._folder))
            self._folder = None

    def _wait(self, code: Path, limit: float) -> int | None:
        """Wait until a command has ended; None where it takes too long."""
        assert self._running is not None
        deadline = time.monotonic() + limit
        while not code.exists():
            if self._running.poll() is not None and not code.exists():
                raise RuntimeError(f"the machine {self.suite} ended with status {self._running.returncode}")
            if time.monotonic() > deadline:
                _as_root("kill", "-KILL", "--", f"-{self._running.pid}")
                return None
            time.sleep(0.2)
        return int(code.read_text())

    def _inside(self, script: str) -> list[str]:
        """Return what runs a script in the machine, in namespaces of its own."""
        root = shlex.quote(str(self.root))
        variables = shlex.join(f"{name}={value}" for name, value in _VARIABLES.items())
        mounts = f"""
            set -e
            mount --make-rprivate /
            mount --bind {root} {root}
            mount --rbind /dev {root}/dev
            mount --rbind /sys {root}/sys
            mount -t proc proc {root}/proc
            exec chroot {root} env -i {variables} sh -c {shlex.quote(script)}
        """
        # A pipe would not do as a leash: what is left running has it, too.
        return ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=SIGKILL", "sh", "-c", mounts]


def bare_root(suite: str) -> str:
    """The root file system that machines of a release are copies of, made on the first call on this machine."""
    recipe = ["--suite", suite, "--name", "bare", "--packages", ",".join(PACKAGES)]
    return str(json.loads(run_tool("install", *recipe))["root"])


def _superuser(*command: str) -> list[str]:
    return [*([] if os.geteuid() == 0 else ["sudo", "-n"]), *command]


def _as_root(*command: str) -> str:
    return subprocess.run(_superuser(*command), check=True, capture_output=True, text=True).stdout
