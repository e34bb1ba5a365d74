"""Everything that one run stands on: broker, proxy, pool, daemons and clients, each a process that may be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from faults import load, timing
from faults.clock import Clock
from faults.journal import Journals
from faults.ledger import Ledger
from faults.proxy import Proxy
from osrdyne_pool.broker.management import ManagementRefused
from osrdyne_pool.topology import Topology, topology
from osrdyne_protocol import names
from testbed import ROOT
from testbed.broker import Broker
from testbed.lost_queue import is_lost
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until

WORKER = [sys.executable, "-I", "-S", "-E", str(ROOT / "lab/faults/worker.py")]
#: Clients of a run: name, and the program that it is.
CLIENTS = {"library-a": "library_load", "library-b": "library_load", "plain-a": "plain_load"}
VHOST = "faults"


@dataclass
class ProxiedPool(Pool):
    """A pool whose daemon, workers and clients reach the broker through the proxy, each by a port of its own."""

    ports: dict[str, int] = field(default_factory=dict)

    def uri(self, user: str) -> str:
        role = next(role for role in ("daemon", "worker", "client", "monitor") if getattr(self.users, role) == user)
        address = super().uri(user)
        port = self.ports.get(role, self.broker.amqp_port)
        address = address.replace(f"127.0.0.1:{self.broker.amqp_port}", f"127.0.0.1:{port}")
        return f"{address}?heartbeat={timing.HEARTBEAT_SECONDS:.0f}"

    @property
    def declared(self) -> Topology:
        return topology(self.settings, self.users)


@dataclass
class LoadClient:
    """One client as a process; killed and started again it is another one, with a new log and a new reply queue."""

    name: str
    process: subprocess.Popen[str]

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end is noticed elsewhere
            self.process.stdin.write(f"{command}\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


class Rig:
    """Use it with `with`. What it starts lives in `directory`, and ends with it."""

    def __init__(self, version: str, directory: Path) -> None:
        self.directory = directory
        self.ledger = Ledger()
        self._version = version
        self._journals = Journals(directory)
        self._stack = ExitStack()
        self._generations = dict.fromkeys(CLIENTS, 0)
        self.clients: dict[str, LoadClient] = {}
        self._paused: set[str] = set()
        #: When the broker was killed, by the number of the start after it.
        self._kills: dict[int, float] = {}
        #: Keys whose queue the broker lost with what was in it, and between which moments; and those that were of no
        #: use after that, and since when.
        self._lost: list[tuple[str, float, float]] = []
        self._dead: list[tuple[str, float]] = []
        #: How many times as late 99 of 100 answers of warm keys were beside each hostile peer.
        self.late: list[float] = []
        #: Milliseconds that requests beside sprays of keys took, by what they were.
        self.beside_sprays: dict[str, list[float]] = {}
        self._wait = threading.Event()

    def __enter__(self) -> Rig:
        with ExitStack() as stack:
            self.clock = Clock(self.directory)
            self.broker = stack.enter_context(Broker(self._version))
            self.proxy = stack.enter_context(Proxy(self.broker.amqp_port, "daemon", "client", "worker"))
            self.broker.management.add_vhost(VHOST, self.broker.admin)
            self.pool = ProxiedPool.on(
                self.broker,
                VHOST,
                unbind_delay=timing.UNBIND_DELAY_SECONDS,
                stop_delay=timing.STOP_DELAY_SECONDS,
                message_ttl=timing.MESSAGE_TTL_SECONDS,
                orphan_ttl=timing.ORPHAN_TTL_SECONDS,
                delivery_limit=timing.DELIVERY_LIMIT,
                # The requests of the key whose worker never starts wait, and expire.
                start_failures=0,
            )
            self.pool.ports = self.proxy.ports
            # So that what cannot be delivered is parked within seconds, and not within a minute.
            self.pool.limit_deliveries(self.pool.names.orphan_queue, timing.PARKED_AFTER)
            self.pool.limit_deliveries(self.pool.names.dead_letter_queue, timing.PARKED_AFTER)
            self.leader, self.spare = self._daemon(stack, "one"), self._daemon(stack, "two")
            stack.callback(self._end_clients)
            self.leader.start()
            for name in CLIENTS:
                self._start_client(name)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _daemon(self, stack: ExitStack, name: str) -> DaemonProcess:
        daemon = DaemonProcess.of(
            self.pool,
            self.directory / name,
            worker=WORKER,
            environment={"REFUSE_KEY": load.DEAD, "DELIVERIES": str(self.directory / "deliveries")},
            broker={"heartbeat": timing.HEARTBEAT_SECONDS},
            driver={"state_directory": str(self.directory / "state")},
            limits={"start_grace": timing.START_GRACE_SECONDS},
        )
        daemon.settings["pool"]["delivery_limit"] = timing.DELIVERY_LIMIT
        daemon.variables = self.clock.variables
        stack.callback(self._end, daemon)
        return daemon

    def _end(self, daemon: DaemonProcess) -> None:
        pid = None if daemon.process is None else daemon.process.pid
        daemon.close()
        if pid is not None:
            self.clock.tidy(pid)

    def _end_clients(self) -> None:
        for client in self.clients.values():
            client.kill()

    # --- processes ------------------------------------------------------------------------------------------

    def stop_daemon(self, daemon: DaemonProcess, number: int = signal.SIGTERM) -> None:
        assert daemon.process is not None
        pid = daemon.process.pid
        daemon.stop(number)
        self.clock.tidy(pid)

    def swap_daemons(self) -> None:
        self.leader, self.spare = self.spare, self.leader

    def _start_client(self, kind: str) -> None:
        number = self._generations[kind]
        self._generations[kind] += 1
        name = f"{kind}-{number}"
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    f"faults.{CLIENTS[kind]}",
                    name,
                    str(self.directory / f"{name}.journal"),
                    self.pool.names.pool,
                ],
                cwd=ROOT,
                env={**os.environ, load.URI_VARIABLE: self.pool.client_uri},
                stdin=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.clients[kind] = LoadClient(name, process)
        for prefix in self._paused:
            self.clients[kind].tell(f"pause {prefix}")

    def replace_client(self, kind: str) -> None:
        """Reap a client that was killed, or kill it, and start one in its place."""
        self.clients[kind].kill()
        self._start_client(kind)

    def workers(self, key_prefix: str = "") -> list[int]:
        """Return the processes of workers whose key begins so."""
        wanted = f"WORKER_KEY={key_prefix}".encode()
        found = []
        for pid in self.leader.worker_pids():
            try:
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(variable.startswith(wanted) for variable in variables):
                found.append(pid)
        return found

    def log(self, key: str) -> Path:
        """Return the log of a key's worker."""
        home = names.engine_name(self.pool.settings.name, self.pool.settings.instance, "")
        name = names.engine_name(self.pool.settings.name, self.pool.settings.instance, key)
        return self.directory / "state" / home / "logs" / f"{name}.log"

    def stop_all(self) -> None:
        """End clients, daemons and workers, so that nothing moves on the broker any more."""
        self._end_clients()
        for daemon in (self.leader, self.spare):
            self._end(daemon)

    # --- load -----------------------------------------------------------------------------------------------

    def pause(self, prefix: str) -> None:
        """Let no client ask keys that begin so."""
        self._paused.add(prefix)
        self.tell(f"pause {prefix}")

    def resume(self, prefix: str) -> None:
        self._paused.discard(prefix)
        self.tell(f"resume {prefix}")

    def tell(self, command: str) -> None:
        for client in self.clients.values():
            client.tell(command)

    def read(self) -> Ledger:
        """Return the ledger with everything that clients have written by now."""
        self.ledger.take(self._journals.news())
        return self.ledger

    @property
    def alive(self) -> set[str]:
        """Names of the clients that run."""
        return {client.name for client in self.clients.values()}

    def wait(self, seconds: float) -> None:
        """Let a fault last."""
        self._wait.wait(seconds)

    def note_kill(self, at: float) -> None:
        """The broker was killed at this moment, and runs again: what it lost shows in its log."""
        self._kills[self.broker.starts] = at
        prefix = self.pool.names.request_queue_prefix
        for queue in self.pool.queues():
            # One that has gone meanwhile, or that the broker has not started yet, cannot be asked.
            with contextlib.suppress(ManagementRefused):
                if queue.startswith(prefix) and is_lost(self.broker.management, VHOST, queue):
                    self._dead.append((self._key(queue), at))

    def note_lost(self, queue: str, began: float, ended: float) -> None:
        """The broker lost a request queue with what was in it, between these moments."""
        self._lost.append((self._key(queue), began, ended))
        self._dead.append((self._key(queue), ended))

    def note_dead(self, key: str) -> None:
        """A key's workers are of no use: it has recovered when it has answered a request that is sent after now."""
        self._dead.append((key, time.monotonic()))

    def _key(self, queue: str) -> str:
        return queue.removeprefix(self.pool.names.request_queue_prefix)

    def deliveries(self, word: str, *, since: float = 0.0) -> list[float]:
        """Return when workers of the library got a request that was `redelivered`, or `forwarded` as an orphan."""
        file = self.directory / "deliveries"
        lines = file.read_text().splitlines() if file.exists() else []
        moments = [float(line.partition(" ")[2]) for line in lines if line.startswith(f"{word} ")]
        return [moment for moment in moments if moment >= since]

    def enter_lost(self) -> None:
        """Enter into the ledger which requests the broker may have lost. Everything else was read before."""
        for number, queues in enumerate(self.broker.lost_at_starts(VHOST), start=1):
            if number in self._kills:
                at = self._kills[number]
                self._lost += [(self._key(queue), at, at) for queue in queues]
        for key, began, ended in self._lost:
            self.ledger.lose_queue(
                key, since=began - timing.ORPHAN_TTL_SECONDS - timing.MESSAGE_TTL_SECONDS, until=ended
            )

    def until_recovered(self, *, within: float) -> None:
        """Wait until the daemon leads, and every client has an `ok` for a request that it sent after now.

        A key whose queue the broker lost must have answered since, too, if it is asked at all.
        """
        now = time.monotonic()
        ended = [client.name for client in self.clients.values() if client.process.poll() is not None]
        assert not ended, f"ended by itself: {', '.join(ended)}"

        def missing() -> set[str]:
            return self.alive - self.read().answered_since(now)

        self.leader.wait_for("leading", timeout=within)
        until(lambda: not missing(), within=within, what="answers for every client")
        until(lambda: not self._silent(), within=within, what=f"answers of {', '.join(self._silent())}")

    def _silent(self) -> list[str]:
        """Return keys whose queue was lost, and that were asked since and have no `ok` yet."""
        requests = self.read().requests.values()
        silent = []
        for key, at in self._dead:
            since = [
                request for request in requests if request.key == key and request.sent > at and request.wants_reply
            ]
            if since and not any("ok" in request.replies for request in since):
                silent.append(key)
        return silent

    def put_right(self) -> None:
        """Undo what a fault that failed may have left: one daemon runs, and nothing rests."""
        self.broker.start()
        for prefix in list(self._paused):
            self.resume(prefix)
        for daemon in (self.leader, self.spare):
            if daemon.process is not None and daemon.process.poll() is None:
                daemon.process.send_signal(signal.SIGCONT)
                self.stop_daemon(daemon, signal.SIGKILL)
        self.leader.start(ready=False)

    def until_true(self, holds: Callable[[], object], *, within: float = 30.0, what: str = "") -> None:
        until(lambda: bool(holds()), within=within, what=what)

    def is_empty(self) -> bool:
        """Say whether no queue holds a request, ready or unacknowledged; what was kept as poison is at its end."""
        names = self.pool.names
        inventory = (names.poison_queue, names.unanswered_queue, names.waiting_queue, names.parked_queue)
        kept = {names.activity_queue, names.events_stream, *inventory, names.leader_queue}
        queues = self.broker.management.get("queues", VHOST)
        return all(
            queue.get("messages", 0) == 0
            for queue in queues
            if queue["name"] not in kept and not queue["name"].startswith("reply-")
        )


def owner(port: int, pids: list[int]) -> int | None:
    """Return which of these processes made the connection from this local port."""
    for pid in pids:
        try:
            connections = psutil.Process(pid).net_connections(kind="tcp4")
        except psutil.Error:
            continue
        if any(connection.laddr[1:] == (port,) for connection in connections):
            return pid
    return None


def kill(pid: int | None) -> bool:
    """SIGKILL a process; say whether there was one."""
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
