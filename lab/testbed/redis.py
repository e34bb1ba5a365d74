"""A real Redis for tests, each with a port, a directory and a password of its own; it keeps nothing on disk.

It is `redis-server`, or `valkey-server` where the machine has only that. Between it and the test process stands a
process of ours (`python -m testbed.redis DIRECTORY`), which watches its standard input: when that closes, it ends the
server and removes the directory. So both are gone when the test process is, even by SIGKILL.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from testbed import ROOT, apt
from testbed.ports import PortBlock
from testbed.started import StartedEngine
from testbed.waiting import PATIENCE_SECONDS, until

#: Programs, and the packages of Debian that have them.
SERVERS = {"redis-server": "redis-server", "valkey-server": "valkey-server"}
#: `proto-max-bulk-len` bounds what a stranger can have a node read; see docs/howto/relay-nodes.md.
SETTINGS = """
bind 127.0.0.1
port {port}
dir {directory}
save ""
appendonly no
proto-max-bulk-len 16777216
requirepass {password}
"""


class RedisFailed(RuntimeError):
    """The server did not start; the text has its log."""


def program() -> str | None:
    """The path of the machine's server."""
    return next(filter(None, map(shutil.which, SERVERS)), None)


def install() -> None:
    """Install Debian's server where there is none."""
    if program():
        return
    try:
        apt.install(SERVERS["redis-server"], why="Redis")
    except apt.NotInstalled:
        apt.install(SERVERS["valkey-server"], why="Redis")


def as_image() -> tuple[dict[str, Path], list[str]]:
    """Return the files of an image that runs this machine's server, by absolute path, and its command.

    With the libraries and the loader of this machine: the image's own may be of another release.
    """
    server = program()
    if server is None:
        raise RedisFailed("this machine has no Redis: install redis-server")
    listed = subprocess.run(["ldd", server], check=True, capture_output=True, text=True).stdout
    libraries = [Path(found) for found in re.findall(r"(?:=> |^\s*)(/\S+)", listed, re.MULTILINE)]
    (loader,) = (library for library in libraries if library.name.startswith("ld-"))
    folder = "/opt/redis"
    files = {f"{folder}/{file.name}": file.resolve() for file in (Path(server), *libraries)}
    return files, [f"{folder}/{loader.name}", "--library-path", folder, f"{folder}/{Path(server).name}"]


class RedisServer(StartedEngine):
    """One Redis. `with RedisServer() as server:` starts it and leaves nothing behind."""

    def __init__(self, *settings: str) -> None:
        """`settings`: further lines of its configuration, in which TLS_PORT stands for that port."""
        self._ports = PortBlock()
        self.directory = Path(tempfile.mkdtemp(prefix="osrdyne-redis-"))
        self.port = self._ports.first
        #: For TLS, where the settings have it.
        self.tls_port = self._ports.first + 1
        #: Of the user `default`, who may do everything.
        self.password = secrets.token_hex(16)
        self._keeper: subprocess.Popen[bytes] | None = None
        text = SETTINGS.format(port=self.port, directory=self.directory, password=self.password)
        own = "\n".join(settings).replace("TLS_PORT", str(self.tls_port))
        (self.directory / "redis.conf").write_text(f"{text}{own}\n")
        (self.directory / "address").write_text(f"redis://:{self.password}@127.0.0.1:{self.port}/0\n")

    @property
    def address_file(self) -> Path:
        """A file with the address and the password of the user `default`."""
        return self.directory / "address"

    def start(self) -> None:
        """Start the server without data, and return when it answers. Does nothing when it runs."""
        if self.is_running:
            return
        self._reap()
        log = self.directory / "log"
        with log.open("ab") as output:
            # A pipe as standard input: it closes when this process ends, however that happens.
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "testbed.redis", str(self.directory)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        until(lambda: not self.is_running or self._answers(), every=0.02, what=f"Redis in {self.directory}")
        if not self.is_running:
            self._reap()
            raise RedisFailed(f"Redis did not start: {log.read_text(errors='replace')[-1500:]}")

    def kill(self) -> None:
        """End the server by SIGKILL; all its data is gone. Does nothing when it does not run."""
        if self._keeper is not None and self.is_running:
            self._server().kill()
            self._keeper.wait(timeout=PATIENCE_SECONDS)
        self._reap()

    def stand_still(self) -> None:
        """Stop its process: connections stay open, and nothing is answered."""
        self._server().suspend()

    def go_on(self) -> None:
        """Let its process go on, with what it has received meanwhile."""
        self._server().resume()

    def run(self, *words: str | int, user: str | None = None, password: str | None = None) -> Any:
        """Execute a command over a connection of its own, and return the answer; without a user, as `default`."""
        import redis

        with redis.Redis(
            port=self.port,
            username=user,
            password=password or self.password,
            socket_timeout=PATIENCE_SECONDS,
            protocol=2,
        ) as client:
            return client.execute_command(*words)

    @property
    def is_running(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def close(self) -> None:
        """End the server at once, and remove its directory."""
        self._reap()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._ports.release()

    def _server(self) -> psutil.Process:
        assert self._keeper is not None
        (server,) = psutil.Process(self._keeper.pid).children()
        return server

    def _answers(self) -> bool:
        import redis

        with suppress(redis.RedisError):
            return bool(self.run("PING"))
        return False

    def _reap(self) -> None:
        """Let the process that keeps the server end; with it ends a server that still runs."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._keeper.wait(timeout=PATIENCE_SECONDS)
            self._keeper = None


def keep(directory: Path) -> None:
    """Run the server to its end. When standard input closes before that, end it and remove the directory."""
    server = subprocess.Popen([str(program()), str(directory / "redis.conf")], stdin=subprocess.DEVNULL)
    ended = os.pidfd_open(server.pid)
    ready, _, _ = select.select([ended, sys.stdin], [], [])
    if sys.stdin in ready:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
    server.wait()


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
