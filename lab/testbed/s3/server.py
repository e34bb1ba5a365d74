"""One S3 server with a port, a folder, keys and a bucket of its own.

Between it and the test process stands a process of ours (`python -m testbed.s3.server FOLDER COMMAND...`), which
watches its standard input: when that closes, it ends the server and removes the folder.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from testbed import ROOT
from testbed.go_builds import Recipe, built
from testbed.pem import Certificate
from testbed.ports import PortBlock
from testbed.started import StartedEngine
from testbed.waiting import PATIENCE_SECONDS, until

RECIPE = Recipe(Path(__file__).parent / "gateway", {"versitygw": "github.com/versity/versitygw/cmd/versitygw"})
BUCKET = "streams"


def program() -> Path:
    """Return the server, built unless it is there: five minutes on two cores. Raises BuildFailed and NoGo."""
    return built("s3", RECIPE) / "versitygw"


class S3Failed(RuntimeError):
    """The server did not start; the text has its log."""


class S3Server(StartedEngine):
    """`with S3Server() as server:` starts one and leaves nothing behind."""

    def __init__(self, certificate: Certificate | None = None, *, read_only: bool = False) -> None:
        """With a certificate it speaks TLS. One that is read-only refuses all writes."""
        self._read_only = read_only
        self._ports = PortBlock()
        self._certificate = certificate
        self.folder = Path(tempfile.mkdtemp(prefix="osrdyne-s3-"))
        #: Has the objects of the bucket, as files.
        self.bucket = self.folder / "data" / BUCKET
        self.bucket.mkdir(parents=True)
        self.endpoint = f"http{'s' if certificate else ''}://127.0.0.1:{self._ports.first}"
        #: Files with the id of the key, and the secret key.
        self.access_key_file, self.secret_key_file = self.folder / "id", self.folder / "secret"
        self.access_key_file.write_text(f"{secrets.token_hex(8)}\n")
        self.secret_key_file.write_text(f"{secrets.token_hex(16)}\n")
        self._keeper: subprocess.Popen[bytes] | None = None

    def settings(self, **more: str) -> dict[str, str]:
        """Return what `streams.s3` holds for a node."""
        return {
            "endpoint": self.endpoint,
            "bucket": BUCKET,
            "access_key_file": str(self.access_key_file),
            "secret_key_file": str(self.secret_key_file),
            **more,
        }

    def start(self) -> None:
        # Attributes of objects are kept beside them: not every file system of a test has extended attributes.
        (self.folder / "beside").mkdir()
        command = [str(program()), "--port", self.endpoint.partition("//")[2]]
        if self._certificate is not None:
            command += ["--cert", str(self._certificate.certfile), "--key", str(self._certificate.keyfile)]
        if self._read_only:
            command.append("--readonly")
        command += ["posix", "--sidecar", str(self.folder / "beside"), str(self.folder / "data")]
        keys = {
            "ROOT_ACCESS_KEY": self.access_key_file.read_text().strip(),
            "ROOT_SECRET_KEY": self.secret_key_file.read_text().strip(),
        }
        log = self.folder / "log"
        with log.open("ab") as output:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "testbed.s3.server", str(self.folder), *command],
                cwd=ROOT,
                env={**os.environ, **keys},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        until(lambda: not self._runs or self._listens(), every=0.05, what=f"an S3 server in {self.folder}")
        if not self._runs:
            raise S3Failed(f"the S3 server did not start: {log.read_text(errors='replace')[-1500:]}")

    def parts(self) -> list[Path]:
        """Return the parts of objects that are not whole, as files."""
        return [path for path in (self.bucket / ".sgwtmp").rglob("*") if path.is_file()]

    @property
    def _runs(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._ports.first)):
            return True
        return False

    def close(self) -> None:
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            self._keeper.wait(timeout=PATIENCE_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._ports.release()


def keep(folder: Path, command: list[str]) -> None:
    """Run the server until it ends or standard input closes."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    ended = os.pidfd_open(server.pid)
    ready, _, _ = select.select([ended, sys.stdin], [], [])
    if sys.stdin in ready:
        server.send_signal(signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
    server.wait()


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2:])
