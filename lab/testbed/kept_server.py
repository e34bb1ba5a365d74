"""A server for tests, with ports and a directory of its own, which ends when the test process does.

Between it and the test process stands a process of ours (`python -m testbed.kept_server DIRECTORY COMMAND...`), which
watches its standard input: when that closes, it ends the server and removes the directory. So both are gone when the
test process is, even by SIGKILL.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
from abc import abstractmethod
from pathlib import Path

from testbed import ROOT
from testbed.ports import PortBlock
from testbed.started import StartedEngine
from testbed.waiting import PATIENCE_SECONDS, until


class ServerFailed(RuntimeError):
    """The server did not start; the text has its log."""


class KeptServer(StartedEngine):
    """One server. A `with` block starts it, and leaves nothing behind."""

    def __init__(self, kind: str) -> None:
        self._ports = PortBlock()
        self.directory = Path(tempfile.mkdtemp(prefix=f"osrdyne-{kind}-"))
        self.port = self._ports.first
        self._keeper: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Write what the server reads into its directory, and return what starts it."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it is ready."""

    def start(self) -> None:
        """Start the server without data, and return when it answers."""
        log = self.directory / "log"
        command = self.command()
        with log.open("ab") as output:
            # A pipe as standard input: it closes when this process ends, however that happens.
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "testbed.kept_server", str(self.directory), *command],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        keeper = self._keeper
        until(lambda: keeper.poll() is not None or self.answers(), every=0.1, what=f"a server in {self.directory}")
        if keeper.poll() is not None:
            raise ServerFailed(f"the server did not start: {log.read_text(errors='replace')[-3000:]}")

    def close(self) -> None:
        """End the server at once, and remove its directory."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._keeper.wait(timeout=PATIENCE_SECONDS)
            self._keeper = None
        shutil.rmtree(self.directory, ignore_errors=True)
        self._ports.release()


def keep(directory: Path, command: list[str]) -> None:
    """Run the server to its end. When standard input closes before that, end it and remove the directory."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=directory)
    ended = os.pidfd_open(server.pid)
    ready, _, _ = select.select([ended, sys.stdin], [], [])
    if sys.stdin in ready:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
    server.wait()


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2:])
