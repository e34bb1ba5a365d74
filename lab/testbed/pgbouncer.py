"""A real PgBouncer before a PostgreSQL, which gives each transaction any of its few connections."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import urllib.parse
from pathlib import Path
from typing import Self

from testbed import apt
from testbed.ports import PortBlock
from testbed.postgres import ADMIN, Postgres, PostgresFailed, environment, unprivileged
from testbed.suite import only_in_test_all
from testbed.waiting import PATIENCE_SECONDS, until

#: Connections to the server: fewer than clients, so that these meet the statements of each other.
POOL = 3
_SETTINGS = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = plain
auth_file = {users}
pool_mode = transaction
default_pool_size = {pool}
"""


_PATH = "/usr/sbin:/usr/bin:/usr/local/bin"


def install() -> None:
    """Install Debian's package where there is none."""
    if shutil.which("pgbouncer", path=_PATH) is None:
        apt.install("pgbouncer", why="PgBouncer")


def program() -> str:
    """The path of the program."""
    found = shutil.which("pgbouncer", path=_PATH)
    if found is None:
        raise PostgresFailed("there is no pgbouncer: `make engines` installs one")
    return found


class PgBouncer:
    """Use it with `with`: it leaves nothing behind."""

    def __init__(self, server: Postgres) -> None:
        only_in_test_all("PgBouncer")
        self._server = server
        self._ports = PortBlock()
        self.port = self._ports.first
        self.directory = Path(tempfile.mkdtemp(prefix="osrdyne-pgbouncer-"))

    def __enter__(self) -> Self:
        users, settings = self.directory / "users", self.directory / "settings"
        users.write_text(f'"{ADMIN}" "{self._server.admin_password}"\n')
        settings.write_text(_SETTINGS.format(server=self._server.port, port=self.port, users=users, pool=POOL))
        account = unprivileged()
        if account:
            for path in (self.directory, users, settings):
                os.chown(path, account["user"], account["group"])
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [program(), str(settings)],
                env=environment(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **account,
            )
        until(lambda: self._process.poll() is not None or self._listens(), what="PgBouncer")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)
        shutil.rmtree(self.directory)
        self._ports.release()

    def url(self, database: str, parameters: str = "") -> str:
        """Address of a database for the administrator, with these parameters."""
        secret = urllib.parse.quote(self._server.admin_password, safe="")
        return f"postgresql://{ADMIN}:{secret}@127.0.0.1:{self.port}/{database}{parameters}"

    def _listens(self) -> bool:
        return "process up" in (self.directory / "log").read_text(errors="replace")
