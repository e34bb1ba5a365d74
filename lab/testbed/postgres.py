"""A real PostgreSQL for tests, each with data, a port and a password of its own.

It is the newest server that the machine has, or Debian's where it has none. PostgreSQL refuses to run as root: there it
runs as `postgres` or `nobody`. Between it and the test process stands a process of ours (`python -m testbed.postgres
DIRECTORY`), which watches its standard input: when that closes, it ends the server and removes the data. So both are
gone when the test process is, even by SIGKILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.parse
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from testbed import ROOT, apt
from testbed.dockerd import runs
from testbed.ports import PortBlock
from testbed.started import StartedEngine
from testbed.suite import only_in_test_all
from testbed.waiting import PATIENCE_SECONDS, until

#: Where Debian's packages put servers, in a folder for each version.
SERVERS = Path("/usr/lib/postgresql")
#: Read when Debian's package is installed: it would make a database cluster of its own.
NO_CLUSTER = Path("/etc/postgresql-common/createcluster.d/osrdyne.conf")
ADMIN = "osrdyne_admin"
#: `fsync`: tests kill the server and look for what it has confirmed. `dynamic_shared_memory_type`: what a killed server
#: leaves is in its folder, not in /dev/shm.
SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
fsync = on
dynamic_shared_memory_type = mmap
shared_buffers = 32MB
"""
#: The line of `postmaster.pid` that names the shared memory, and the command of shmctl that removes it.
MEMORY_LINE, IPC_RMID = 6, 0


class PostgresFailed(RuntimeError):
    """The server or psql did not do what was asked; the text says why."""


def install() -> None:
    """Install Debian's server where there is none, without the database cluster that the package makes by itself."""
    if newest():
        return
    apt.install("postgresql", why="PostgreSQL", settings={NO_CLUSTER: "create_main_cluster = false"})


def newest() -> Path | None:
    """The folder with the programs of the machine's newest server."""
    found = [server.parent for server in SERVERS.glob("*/bin/postgres")]
    return max(found, key=lambda folder: float(folder.parent.name), default=None)


def program(name: str) -> str:
    """The path of one of its programs."""
    if not (folder := newest()):
        raise PostgresFailed(f"there is no server in {SERVERS}: `make engines` installs one")
    return str(folder / name)


class Postgres(StartedEngine):
    """One PostgreSQL, with its data in a directory of its own. `with Postgres() as server:` starts it and leaves
    nothing behind.
    """

    admin = ADMIN

    def __init__(self) -> None:
        only_in_test_all("PostgreSQL")
        self._ports = PortBlock()
        self.directory = Path(tempfile.mkdtemp(prefix="osrdyne-postgres-"))
        self.port = self._ports.first
        #: Password of the administrator, generated for this server.
        self.admin_password = secrets.token_hex(16)
        self._keeper: subprocess.Popen[bytes] | None = None
        try:
            configure(self.directory, self.port, self.admin_password)
        except BaseException:
            self.close()
            raise

    def url(self, database: str, user: str | None = None, password: str | None = None) -> str:
        """URL of a database for SQLAlchemy; without a user or a password, the administrator's."""
        parts = (user or ADMIN, password or self.admin_password, database)
        name, secret, path = (urllib.parse.quote(part, safe="") for part in parts)
        return f"postgresql+psycopg://{name}:{secret}@127.0.0.1:{self.port}/{path}"

    def start(self) -> None:
        """Start the server with the data that it had, and return when it answers. Does nothing when it runs."""
        if self.is_running:
            return
        self._reap()
        log = self.directory / "log"
        with log.open("ab") as output:
            # A pipe as standard input: it closes when this process ends, however that happens.
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "testbed.postgres", str(self.directory)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        until(lambda: not self.is_running or self._answers(), every=0.1, what=f"PostgreSQL in {self.directory}")
        if not self.is_running:
            self._reap()
            raise PostgresFailed(f"PostgreSQL did not start: {log.read_text(errors='replace')[-1500:]}")

    def stop(self) -> None:
        """End the server in good order, as `systemctl stop` does. Does nothing when it does not run."""
        if self._keeper is not None and self.is_running:
            for server in psutil.Process(self._keeper.pid).children():
                server.send_signal(signal.SIGINT)
            self._keeper.wait(timeout=PATIENCE_SECONDS)
        self._reap()

    def kill(self) -> None:
        """End the server and all its processes at once, by SIGKILL. Does nothing when it does not run."""
        if self._keeper is not None and self.is_running:
            end_at_once(psutil.Process(self._keeper.pid))
            self._keeper.wait(timeout=PATIENCE_SECONDS)
        self._reap()

    def back_up(self, to: Path) -> None:
        """Copy the files of a server that does not run, in place of an earlier back-up."""
        shutil.rmtree(to, ignore_errors=True)  # or `cp` would copy into it
        self._copy(self.directory / "data", to)

    def restore(self, backup: Path) -> None:
        """Put the files of a back-up in place of those of a server that does not run."""
        data = self.directory / "data"
        shutil.rmtree(data)
        self._copy(backup, data)

    def _copy(self, source: Path, target: Path) -> None:
        subprocess.run(["cp", "--archive", str(source), str(target)], check=True, stdin=subprocess.DEVNULL)

    @property
    def is_running(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def psql(
        self, statement: str, database: str = "postgres", user: str | None = None, password: str | None = None
    ) -> str:
        """What psql prints for a statement: a line for each row, with `|` between columns."""
        where = ["--host=127.0.0.1", f"--port={self.port}", f"--username={user or ADMIN}", f"--dbname={database}"]
        done = subprocess.run(
            [program("psql"), "--no-psqlrc", "--no-align", "--tuples-only", "--quiet", *where, "--command", statement],
            env=environment(PGPASSWORD=password or self.admin_password),
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise PostgresFailed(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    def create_database(self, name: str) -> None:
        """Make an empty database."""
        self.psql(f"CREATE DATABASE {quoted(name)}")

    def drop_database(self, name: str) -> None:
        """Remove a database, and end the connections to it."""
        self.psql(f"DROP DATABASE {quoted(name)} WITH (FORCE)")

    def close(self) -> None:
        """End the server at once, and remove its data."""
        self._reap()
        if self.directory.exists():
            clear(self.directory)
        self._ports.release()

    def _answers(self) -> bool:
        with contextlib.suppress(PostgresFailed):
            return self.psql("SELECT 1") == "1"
        return False

    def _reap(self) -> None:
        """Let the process that keeps the server end; with it ends a server that still runs."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._keeper.wait(timeout=PATIENCE_SECONDS)
            self._keeper = None


def configure(directory: Path, port: int, password: str) -> None:
    """Make the data of a server that listens on this port of loopback, for an administrator with this password."""
    data, secret = directory / "data", directory / "password"
    account = unprivileged()
    secret.touch(0o600)
    secret.write_text(password)
    if account:
        for path in (directory, secret):
            os.chown(path, account["user"], account["group"])
    login = ["--username", ADMIN, "--pwfile", str(secret), "--auth", "scram-sha-256"]
    done = subprocess.run(
        [program("initdb"), "--pgdata", str(data), *login, "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"],
        cwd=directory,
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        **account,
    )
    if done.returncode:
        raise PostgresFailed(f"initdb: {done.stderr.strip()}")
    with (data / "postgresql.conf").open("a") as settings:
        settings.write(SETTINGS.format(port=port))


def unprivileged() -> dict[str, Any]:
    """The account that runs the server, as arguments of `subprocess`; none where this is not root."""
    if os.geteuid() != 0:
        return {}
    accounts = {account.pw_name: account for account in pwd.getpwall()}
    account = accounts.get("postgres") or accounts["nobody"]
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def environment(**more: str) -> dict[str, str]:
    """Our environment without what would lead PostgreSQL's programs elsewhere; messages in English."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**ours, "LC_ALL": "C.UTF-8", **more}


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def keep(directory: Path) -> None:
    """Run the server to its end. When standard input closes before that, end it and remove the directory."""
    server = subprocess.Popen(
        [program("postgres"), "-D", str(directory / "data")],
        cwd=directory,
        env=environment(),
        stdin=subprocess.DEVNULL,
        **unprivileged(),
    )
    ended = os.pidfd_open(server.pid)
    ready, _, _ = select.select([ended, sys.stdin], [], [])
    if sys.stdin in ready:
        end_at_once(psutil.Process())
        clear(directory)
    server.wait()


def end_at_once(keeper: psutil.Process) -> None:
    """End the server below this process by SIGKILL, with all its processes; each of these has a session of its own.

    The server is stopped before they are listed, so that it starts no more of them.
    """
    for server in keeper.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            server.suspend()
            until(partial(stands, server), every=0.01, what="the server's stop")
    processes = keeper.children(recursive=True)
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    until(lambda: not any(map(runs, processes)), every=0.01, what="the end of the server's processes")


def stands(process: psutil.Process) -> bool:
    """Whether it is stopped, or has ended."""
    return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)


def clear(directory: Path) -> None:
    """Remove what a server that has ended leaves: its data, and after a SIGKILL a segment of shared memory."""
    pid_file = directory / "data/postmaster.pid"
    lines = pid_file.read_text().splitlines() if pid_file.exists() else []
    if len(lines) > MEMORY_LINE and (named := lines[MEMORY_LINE].split()):
        ctypes.CDLL(None).shmctl(int(named[1]), IPC_RMID, None)
    shutil.rmtree(directory)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
