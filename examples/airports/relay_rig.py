"""Everything that `make demo-relay` runs on: a Redis, two nodes of the relay, and workers that poll at each."""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from examples.airports.relay_worker import POOL
from osrdyne_runtime.settings_text import to_toml
from testbed.ports import PortBlock
from testbed.redis import RedisServer
from testbed.waiting import until

ROOT = Path(__file__).parents[2]
#: Seconds: a node or worker that died is noticed within a quarter of a minute, so that the demo is short. An outage of
#: Redis is survived for as long as it is by default.
TIMINGS_SECONDS = {
    "beat_every": 2.0,
    "server_gone_after": 12.0,
    "caller_gone_after": 16.0,
    "look_every": 5.0,
    "retry_for": 30.0,
}
#: Requests that one client may have in hand: as many as come in while Redis stands still.
MOST = 4096


class Rig:
    """`with Rig(directory, airports) as rig:`. Half of the airports are served at each node."""

    def __init__(self, directory: Path, airports: Sequence[str]) -> None:
        self._directory = directory
        self._airports = airports
        self._ports = PortBlock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._nodes: list[subprocess.Popen[bytes]] = []
        self.redis = RedisServer()
        #: Addresses of the nodes.
        self.urls = [f"http://127.0.0.1:{self._ports.first + number}" for number in range(2)]
        self.tokens = {name: secrets.token_urlsafe(32) for name in ("worker", "caller")}

    def __enter__(self) -> Self:
        try:
            self.redis.start()
            self._write_access()
            self._nodes = [self._node(number) for number in range(2)]
            for number in range(2):
                until(lambda number=number: self._is_ready(number), what=f"node {number}")  # type: ignore[misc]
                # Its own node first; when that dies, the other one.
                urls = ",".join([self.urls[number], self.urls[1 - number]])
                words = [urls, str(self._token_file("worker")), str(self._runs(number)), *self._airports[number::2]]
                self._start("worker", number, ["-m", "examples.airports.relay_worker", *words])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leave nothing running."""
        for process in self._processes:
            process.kill()
            process.wait()
        self.redis.close()
        self._ports.release()

    def kill_node(self, number: int) -> None:
        """End a node by SIGKILL."""
        self._nodes[number].kill()
        self._nodes[number].wait()

    def runs(self) -> list[int]:
        """Return the number of the request of each run."""
        texts = [file.read_text() for number in range(2) if (file := self._runs(number)).exists()]
        return [int(line) for text in texts for line in text.splitlines()]

    def _node(self, number: int) -> subprocess.Popen[bytes]:
        serve = {"port": self._ports.first + number, "access_file": str(self._directory / "access.toml"), "grace": 5.0}
        redis = {"url_file": str(self.redis.address_file)}
        file = self._directory / f"node-{number}.toml"
        file.write_text(
            to_toml(
                {"relay": {"redis": redis, "timings": TIMINGS_SECONDS, "serve": {**serve, "worker_gone_after": 12.0}}}
            )
        )
        return self._start("node", number, ["-m", "osrdyne.cli", "relay", "serve", "--settings", str(file)])

    def _write_access(self) -> None:
        pattern = [f"{POOL}/*"]
        grants: Mapping[str, Mapping[str, Any]] = {"worker": {"serve": pattern}, "caller": {"call": pattern}}
        clients = {}
        for name, grant in grants.items():
            hashed = hashlib.sha256(self.tokens[name].encode()).hexdigest()
            clients[name] = {"token_sha256": hashed, "most": MOST, **grant}
            file = self._token_file(name)
            file.touch(mode=0o600)
            file.write_text(self.tokens[name])
        (self._directory / "access.toml").write_text(to_toml({"clients": clients}))

    def _start(self, what: str, number: int, words: list[str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with (self._directory / f"{what}-{number}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    def _is_ready(self, number: int) -> bool:
        if self._nodes[number].poll() is not None:
            raise OSError(f"node {number} ended: {(self._directory / f'node-{number}.log').read_text()[-2000:]}")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with suppress(urllib.error.URLError, ConnectionError):
            return bool(opener.open(f"{self.urls[number]}/readyz", timeout=10).status == 200)
        return False

    def _token_file(self, name: str) -> Path:
        return self._directory / f"{name}.token"

    def _runs(self, number: int) -> Path:
        return self._directory / f"runs-{number}"
