"""A Docker engine of a test's own, which it may kill, freeze and start again.

Its containers use this machine's network: it has no bridge and changes no packet filter, so that nothing but its
directory is to be removed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from testbed import ROOT
from testbed.docker import Docker, _as_root
from testbed.started import StartedEngine
from testbed.waiting import PATIENCE_SECONDS, until


class OwnDockerd(StartedEngine):
    """`with OwnDockerd() as engine:` starts it and leaves nothing behind."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self.directory = Path(tempfile.mkdtemp(prefix="osrdyne-own-docker-"))
        self.directory.chmod(0o711)
        self.host = f"unix://{self.directory}/docker.sock"
        self.docker = Docker(self.host)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it with the containers that it had, and returns when it answers."""
        folder = self.directory
        paths = [f"--data-root={folder}/data", f"--exec-root={folder}/run", f"--pidfile={folder}/pid"]
        network = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        # After SIGKILL, it would take the process that has this number now for its own containerd.
        subprocess.run(_as_root("rm", "-f", str(folder / "run/containerd/containerd.pid")), check=True)
        environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                _as_root("dockerd", *paths, *network, *self._options, f"--host={self.host}", f"--group={os.getgid()}"),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self.docker.answers, every=0.2, what=f"dockerd in {folder}")

    def signal(self, number: int) -> None:
        """Sends the engine itself a signal; returns when it has ended or is frozen, where that is what it is for."""
        assert self._process is not None
        pid = (self.directory / "pid").read_text()
        subprocess.run(_as_root("kill", f"-{number}", pid), check=True)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._process.wait(timeout=PATIENCE_SECONDS)
        if number == signal.SIGSTOP:
            threads = Path(f"/proc/{pid}/task")
            until(lambda: all("\tT (" in (path / "status").read_text() for path in threads.iterdir()), every=0.01)

    def __enter__(self) -> OwnDockerd:
        installing = "from testbed import dockerd; dockerd.install()"
        subprocess.run(_as_root(sys.executable, "-c", installing), cwd=ROOT, check=True)
        return super().__enter__()

    def close(self) -> None:
        """Ends it and its containers at once, and removes its data."""
        assert self._process is not None
        if self._process.poll() is None:
            self.signal(signal.SIGCONT)
            if left := self.docker("ps", "--all", "--quiet").split():
                self.docker("rm", "--force", "--volumes", *left)
            self.signal(signal.SIGTERM)
        clear(self.directory)


def clear(directory: Path) -> None:
    """`dockerd.clear` with root's rights."""
    clearing = "import sys, pathlib; from testbed import dockerd; dockerd.clear(pathlib.Path(sys.argv[1]))"
    subprocess.run(_as_root(sys.executable, "-c", clearing, str(directory)), cwd=ROOT, check=True)
