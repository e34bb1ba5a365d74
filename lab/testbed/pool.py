"""A pool for tests: its topology on a vhost, one user a role, and a daemon as a real process."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from osrdyne_pool.broker import management_json
from osrdyne_pool.broker.management import ManagementRefused
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Topology, Users, topology
from osrdyne_protocol.names import PoolNames
from osrdyne_runtime.settings_text import to_toml
from testbed.broker import Broker
from testbed.waiting import PATIENCE_SECONDS, until

#: How late a broker's totals may be here, in seconds: three times what was measured for the lowered intervals.
STATISTICS_INTERVAL = 0.75


def apply(broker: Broker, vhost: str, declared: Topology, passwords: Mapping[str, str]) -> None:
    """Put a topology on a vhost, as infrastructure code would."""
    for request in management_json.requests(declared, vhost):
        body = {**request.body, "password": passwords[request.path[1]]} if request.path[0] == "users" else request.body
        broker.management.call(request.method, *request.path, body=body)


@dataclass
class Pool:
    """One pool on one vhost. `users` have random names and passwords, because users belong to the broker."""

    broker: Broker
    vhost: str
    settings: PoolSettings
    users: Users
    passwords: dict[str, str]
    names: PoolNames = field(init=False)
    #: Delivery limits of the pool's own queues that are not those of the product, which take a minute to reach.
    delivery_limits: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = PoolNames(self.settings.name)

    @classmethod
    def on(cls, broker: Broker, vhost: str, **settings: Any) -> Self:
        """Apply a pool to a vhost. `settings` are those of `PoolSettings`; delays are short by default."""
        values = {"name": "core", "unbind_delay": 600.0, "stop_delay": 600.0, **settings}
        parsed = PoolSettings.from_mapping(values)
        tag = secrets.token_hex(4)
        roles = ("client", "worker", "daemon", "monitor", "operator", "pipeline")
        users = Users(*(f"{parsed.name}-{role}-{tag}" for role in roles))
        passwords = {getattr(users, role): secrets.token_hex(16) for role in roles}
        pool = cls(broker, vhost, parsed, users, passwords)
        try:
            pool.apply()
        except ManagementRefused as error:
            # RabbitMQ 4.0 can crash while it declares a queue, and answers with that (rabbit_quorum_queue:handle_tick).
            if "'EXIT'" not in str(error):
                raise
            pool.restore()
        return pool

    def apply(self) -> None:
        apply(self.broker, self.vhost, topology(self.settings, self.users), self.passwords)
        for queue, limit in self.delivery_limits.items():
            self.limit_deliveries(queue, limit)

    def limit_deliveries(self, queue: str, limit: int) -> None:
        """Let what cannot be delivered from one of the pool's own queues be moved on sooner."""
        self.delivery_limits[queue] = limit
        policy = self.broker.management.get("policies", self.vhost, queue)
        definition = policy["definition"] | {"delivery-limit": limit}
        self.broker.management.put("policies", self.vhost, queue, body=policy | {"definition": definition})

    def restore(self) -> None:
        """Apply the topology again; a broker in the middle of a change answers with an error, and is asked again."""

        def applied() -> bool:
            try:
                self.apply()
            except ManagementRefused:
                return False
            return True

        until(applied, what="the topology")

    def uri(self, user: str) -> str:
        """AMQP address of this vhost for one of the pool's users."""
        return self.broker.amqp_uri(user, self.passwords[user], self.vhost)

    @property
    def client_uri(self) -> str:
        return self.uri(self.users.client)

    def remove_users(self) -> None:
        for name in self.passwords:
            self.broker.management.delete("users", name)

    def depth(self, queue: str) -> int | None:
        """Messages in a queue, ready and unacknowledged; None when there is no such queue."""
        found = self.broker.management.queue(self.vhost, queue)
        return None if found is None else int(found.get("messages", 0))

    def queues(self) -> set[str]:
        return {queue["name"] for queue in self.broker.management.get("queues", self.vhost)}


@dataclass
class DaemonProcess:
    """A daemon as users run it: `osrdyne daemon --settings FILE`, in a directory of the test's."""

    pool: Pool
    directory: Path
    settings: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    number: int = 0
    #: What is run: the command itself, or a program that stands for it.
    module: str = "osrdyne.cli"
    #: Further arguments of the command.
    arguments: list[str] = field(default_factory=list)
    #: Variables of the process beside PATH and HOME.
    variables: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        pool: Pool,
        directory: Path,
        *,
        worker: list[str] | None = None,
        environment: Mapping[str, str] | None = None,
        **tables: dict[str, Any],
    ) -> DaemonProcess:
        """Prepare a daemon of driver `subprocess` with this worker command, or of driver `noop` without one."""
        user = pool.users.daemon
        password = pool.passwords[user]
        management = pool.broker.management_url.replace("://", f"://{quote(user)}:{quote(password)}@")
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in (
            ("amqp", pool.uri(user)),
            ("management", management),
            ("worker", pool.uri(pool.users.worker)),
        ):
            file = directory / f"{name}.uri"
            file.touch(mode=0o600)
            file.write_text(text)
        driver: dict[str, Any] = {"kind": "noop"}
        if worker is not None:
            driver = {
                "kind": "subprocess",
                "worker_amqp_uri_file": str(directory / "worker.uri"),
                "state_directory": str(directory / "state"),
                "template": {"command": worker, "environment": dict(environment or {})},
            }
        chosen = pool.settings
        settings = {
            "pool": {
                name: getattr(chosen, name)
                for name in (
                    "name",
                    "instance",
                    "unbind_delay",
                    "stop_delay",
                    "message_ttl",
                    "orphan_ttl",
                    "delivery_limit",
                    "consumer_timeout",
                    "keys",
                    "start_failures",
                    "worker_reasons",
                )
            }
            | {"limits": asdict(chosen.limits)},
            "broker": {
                "amqp_uri_file": str(directory / "amqp.uri"),
                "management_uri_file": str(directory / "management.uri"),
                "statistics_interval": STATISTICS_INTERVAL,
                **tables.pop("broker", {}),
            },
            "driver": {**driver, **tables.pop("driver", {})},
            "status": {"port": 0},
            "intervals": {
                "queue_listing": 0.5,
                "recheck": 1.0,
                "debounce": 0.2,
                **tables.pop("intervals", {}),
            },
            **tables,
        }
        return cls(pool, directory, settings)

    def start(self, *, ready: bool = True) -> DaemonProcess:
        """Start the process; by default wait until it leads."""
        file = self.directory / "settings.toml"
        file.write_text(to_toml(self.settings))
        self.number += 1
        log = (self.directory / f"daemon-{self.number}.log").open("wb")
        with log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    self.module,
                    "daemon",
                    "--settings",
                    str(file),
                    "--json",
                    *self.arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **self.variables},
            )
        if ready:
            self.wait_for("leading")
        return self

    def wait_for(self, state: str, *, timeout: float = PATIENCE_SECONDS) -> None:
        def holds() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"daemon ended:\n{self.log()}"
            try:
                status = self.status()
            except OSError:
                return False
            if status["state"] == state:
                return True
            # A certificate that is refused stays so: waiting longer does not help.
            assert "certificate" not in (status["detail"] or ""), status["detail"]
            return False

        try:
            until(holds, within=timeout, what=f"daemon state {state}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None

    def log(self) -> str:
        return (self.directory / f"daemon-{self.number}.log").read_text()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]

    @property
    def url(self) -> str:
        for line in self.lines():
            if line["message"] == "status served":
                return f"http://127.0.0.1:{line['port']}"
        raise OSError("the daemon does not serve its status yet")

    def get(self, path: str) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url + path, timeout=60) as answer:
            return str(answer.read().decode())

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.get("/status")))

    def key(self, key: str) -> dict[str, Any] | None:
        return next((listed for listed in self.status()["keys"] if listed["key"] == key), None)

    def metric(self, name: str) -> float:
        """Return the value of a series, by its name with its labels as the page of metrics has it; 0 without it."""
        values = [line.split()[-1] for line in self.get("/metrics").splitlines() if line.startswith(f"{name} ")]
        return float(values[0]) if values else 0.0

    def sessions_ended(self) -> int:
        """Return how many sessions on the broker ended or could not begin."""
        return int(self.metric("osrdyne_sessions_ended_total"))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal the daemon and wait for its end."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE_SECONDS)

    def worker_pids(self) -> list[int]:
        """Processes with an address of this pool's worker user, whose name is random, in their environment."""
        return [pid for pid in _pids() if self._is_worker(pid)]

    def close(self) -> None:
        """Leave nothing running: the daemon first, then the workers that outlive it, and what is to become one."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        until(lambda: not self._kill_left_over(), what="end of the workers")

    def _kill_left_over(self) -> list[int]:
        # In this order: what is not a copy of the daemon any more has its own environment by now.
        left = [pid for pid in _pids() if self._is_copy_of_daemon(pid) or self._is_worker(pid)]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def _is_worker(self, pid: int) -> bool:
        user = f"://{self.pool.users.worker}".encode()
        return any(word.startswith(b"WORKER_AMQP_URI=") and user in word for word in _words(pid, "environ"))

    def _is_copy_of_daemon(self, pid: int) -> bool:
        """Whether it is the daemon, or forked from it to become a worker, which it is once its program is another."""
        return str(self.directory / "settings.toml").encode() in _words(pid, "cmdline")


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _words(pid: int, file: str) -> list[bytes]:
    """What a file of a process's holds, none where the process has gone."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\0")
    except OSError:
        return []
