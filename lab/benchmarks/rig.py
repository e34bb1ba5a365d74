"""What every measurement stands on: the run's broker, pools on it, and sides as processes that take turns."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from osrdyne_protocol.worker_environment import WorkerEnvironment
from testbed import ROOT
from testbed.broker import Broker
from testbed.peer import make_request_queue
from testbed.pool import DaemonProcess, Pool

#: Credential of a side, which travels in its environment only.
URI_VARIABLE = "BENCHMARK_URI"
#: Calls under way at once, where nothing else is said.
OUTSTANDING = 64


@dataclass(frozen=True, slots=True)
class Rig:
    """One run."""

    broker: Broker
    quick: bool

    @property
    def rounds(self) -> int:
        """How often each side of a comparison is measured."""
        return 3 if self.quick else 7

    @property
    def seconds(self) -> float:
        """How long a side makes calls in one round."""
        return 0.4 if self.quick else 1.5

    def progress(self, text: str) -> None:
        """Print what happens, for a person; the result alone goes to standard output."""
        print(f"bench: {text}", file=sys.stderr, flush=True)

    @contextmanager
    def pool(self, **settings: Any) -> Iterator[Pool]:
        """A pool on a vhost of its own, which is deleted with all its queues."""
        vhost = f"bench-{secrets.token_hex(4)}"
        self.broker.management.add_vhost(vhost, self.broker.admin)
        pool = Pool.on(self.broker, vhost, name="bench", **settings)
        try:
            yield pool
        finally:
            self.broker.management.delete("vhosts", vhost)
            pool.remove_users()

    @contextmanager
    def daemon(
        self, pool: Pool, *, worker: list[str] | None = None, module: str = "osrdyne.cli", **limits: int
    ) -> Iterator[Daemon]:
        """A daemon as users run it, with the default intervals; the tests' daemon looks much more often."""
        with tempfile.TemporaryDirectory(prefix="osrdyne-bench-") as directory:
            intervals = {"queue_listing": 5.0, "recheck": 30.0, "debounce": 1.0}
            process = DaemonProcess.of(
                pool,
                Path(directory),
                worker=worker,
                intervals=intervals,
                broker={"statistics_interval": 7.5},
                limits=limits,
            )
            process.module = module
            try:
                process.start()
                assert process.process is not None
                yield Daemon(psutil.Process(process.process.pid))
            finally:
                process.close()


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that leads."""

    process: psutil.Process


def cpu_seconds(process: psutil.Process) -> float:
    """Return what a process has used of a processor so far, user and system."""
    times = process.cpu_times()
    return times.user + times.system


def broker_process(broker: Broker) -> psutil.Process:
    """The process of the broker itself, which is far below the one that was started for this broker's directory."""
    started = [child for child in psutil.Process().children(recursive=True) if str(broker.directory) in child.cmdline()]
    below = [child for process in started for child in process.children(recursive=True)]
    return next(process for process in below if process.name() == "beam.smp")


def in_turns(rounds: int, sides: Sequence[str]) -> Iterator[str]:
    """Yield the sides round by round, every other round backwards: none always follows the same one."""
    for number in range(rounds):
        yield from sides if number % 2 == 0 else reversed(sides)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a client did in one turn."""

    calls: int
    seconds: float
    #: Processor time of the client, in seconds.
    cpu: float

    @property
    def rate(self) -> float:
        """Calls a second."""
        return self.calls / self.seconds


class Side:
    """A program of `sides/` as a process, idle until the benchmark gives it a task. Use it with `with`."""

    def __init__(
        self, module: str, uri: str, environment: Mapping[str, str] | None = None, node: str = "", /, **options: object
    ) -> None:
        """`node`: the Node.js that runs a module in JavaScript."""
        self.name = module
        sides = Path(__file__).parent / "sides"
        program = [node, str(sides / f"{module}.cjs")] if node else [sys.executable, "-m", f"benchmarks.sides.{module}"]
        self._process = subprocess.Popen(
            [*program, json.dumps(options)],
            cwd=ROOT,
            env={**os.environ, URI_VARIABLE: uri, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.process = psutil.Process(self._process.pid)

    def turn(self, seconds: float, outstanding: int = OUTSTANDING) -> Turn:
        """Make calls for so many seconds, so many at once; return when the last is answered."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds} {outstanding}\n")
        self._process.stdin.flush()
        return Turn(**json.loads(self._line()))

    def wait_ready(self) -> str:
        """Return what the side says once it is ready."""
        return self._line().strip()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}; see above")
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def our_worker(pool: Pool, key: str, *, prefetch: int, threads: int, events: bool = True) -> Side:
    """A worker on our library, for a key whose queue is made first. With 0 threads it answers on its loop."""
    return _worker("our_worker", pool, key, prefetch=prefetch, threads=threads, events=events)


def bare_worker(pool: Pool, key: str, *, prefetch: int, events: str, confirmed: bool) -> Side:
    """A worker on bare pika, for a key whose queue is made first."""
    return _worker("bare_pika_worker", pool, key, prefetch=prefetch, events=events, confirmed=confirmed)


def _worker(module: str, pool: Pool, key: str, **options: object) -> Side:
    asyncio.run(make_request_queue(pool, key))
    uri = administrator(pool)
    environment = WorkerEnvironment(
        id=f"bench-{key}",
        key=key,
        pool=pool.names.pool,
        requests_queue=pool.names.request_queue(key),
        activity_exchange=pool.names.activity_exchange,
        amqp_uri=uri,
    )
    return Side(module, uri, environment.to_environ(), **options)


def client(module: str, pool: Pool, key: str, **options: object) -> Side:
    """A client side for one key."""
    return Side(module, administrator(pool), pool=pool.names.pool, key=key, **options)


def administrator(pool: Pool) -> str:
    """Address for all sides alike: comparisons leave out how a broker checks a user's rights."""
    return pool.broker.amqp_uri(vhost=pool.vhost)


def purge_activity(pool: Pool) -> None:
    """Empty the activity queue, which no program reads while no daemon runs."""
    pool.broker.management.call("DELETE", "queues", pool.vhost, pool.names.activity_queue, "contents")
