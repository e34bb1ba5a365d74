"""What the docker driver costs: `python -m benchmarks.driver_docker`, on an engine and a broker of its own.

Prints two things, both within one run. What the daemon adds to a start: the time from publishing the first request for
a key until the engine has accepted the start, less the time that the engine itself took of it, as a proxy before it
sees, and less what the same queue takes at the broker at the same moment. And the share of one core that the daemon
takes while so many groups are idle, beside that of a daemon without any.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import psutil

from benchmarks.watching import share_of_a_core
from testbed.broker import Broker
from testbed.docker import Docker
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from tests.drivers.subjects.docker import DockerSubject, Engine
from tests.drivers.subjects.docker_pool import ContainerPool

MINIMAL = {"Entrypoint": None, "Cmd": ["/minimal_worker.py"]}


class Proxy:
    """Stands before the engine, and notes what each call was and when it began and ended."""

    def __init__(self, engine: str, folder: Path) -> None:
        self._engine = engine.removeprefix("unix://")
        self._path = str(folder / "proxy.sock")
        self.host = f"unix://{self._path}"
        #: First line of the request, when it was passed on, when the engine answered; in seconds.
        self.calls: list[tuple[str, float, float]] = []
        self._loop = asyncio.new_event_loop()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._listens.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(asyncio.start_unix_server(self._serve, self._path))
        self._listens.set()
        self._loop.run_forever()

    async def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        engine, requests = await asyncio.open_unix_connection(self._engine)
        call: list[tuple[str, float]] = []

        def asked(data: bytes) -> None:
            if not call:
                call.append((data.partition(b"\r\n")[0].decode(), time.monotonic()))

        def answered(_: bytes) -> None:
            if call:
                self.calls.append((*call.pop(), time.monotonic()))

        await asyncio.gather(_pump(client, requests, asked), _pump(engine, answers, answered))

    def start_of(self, began: float) -> float | None:
        """Return when the engine accepted the first start of a container after a moment; None for not yet."""
        return next((end for line, at, end in self.calls if at > began and "/start " in line), None)

    def busy(self, began: float, ended: float) -> float:
        """Return how much of a time at least one call was under way, in seconds."""
        total, until_now = 0.0, began
        for _, at, end in sorted(self.calls, key=lambda one: one[1]):
            total += max(0.0, min(end, ended) - max(at, until_now))
            until_now = max(until_now, min(end, ended))
        return total


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.driver_docker", description=(__doc__ or ""))
    parser.add_argument("--starts", type=int, default=50, help="keys whose start is measured")
    parser.add_argument("--groups", type=int, default=200, help="idle groups; each takes about 25 MB")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the idle daemon is watched")
    arguments = parser.parse_args()
    with running() as (pool, daemon, client, proxy):
        assert daemon.process is not None
        process = psutil.Process(daemon.process.pid)
        until(lambda: share_of_a_core(process, 2.0) < 0.05, within=60, what="the daemon to be idle")
        alone = share_of_a_core(process, arguments.seconds)
        print(json.dumps({"our part of a start": start_cost(pool, client, proxy, arguments.starts)}), flush=True)
        idle = idle_cost(daemon, client, arguments.groups, arguments.seconds)
        print(json.dumps({"idle": {**idle, "share without groups, %": round(alone * 100, 2)}}))


@contextlib.contextmanager
def running() -> Iterator[tuple[ContainerPool, DaemonProcess, ForeignClient, Proxy]]:
    """A daemon with the intervals that users have, whose workers are small."""
    with (
        Broker("4.3") as broker,
        DockerSubject.engine() as engine,
        tempfile.TemporaryDirectory(prefix="osrdyne-bench-") as folder,
        Proxy(engine.host or "unix:///var/run/docker.sock", Path(folder)) as proxy,
    ):
        dockerd = DockerSubject(Engine(Docker(proxy.host), engine.image), Path(folder))
        vhost = f"bench-{secrets.token_hex(4)}"
        broker.management.add_vhost(vhost, broker.admin)
        pool = ContainerPool(dockerd, Pool.on(broker, vhost, name=dockerd.pool, instance="one"), Path(folder))
        pool.declare(**MINIMAL)
        intervals = {"queue_listing": 5.0, "recheck": 30.0, "debounce": 1.0}
        daemon = pool.daemon(intervals=intervals, broker={"statistics_interval": 7.5})
        client = ForeignClient(pool.pool.client_uri, pool.pool.names.request_exchange)
        try:
            yield pool, daemon, client, proxy
        finally:
            client.close()
            pool.close()
            asyncio.run(dockerd.clean_up())


def start_cost(pool: ContainerPool, client: ForeignClient, proxy: Proxy, starts: int) -> dict[str, float]:
    """Milliseconds, medians: publish to accepted, the engine's time of it, a queue's alone, and the rest of each."""
    whole, engine, queue = [], [], []
    broker = pool.pool.broker
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_uri(vhost=pool.pool.vhost))) as connection:
        channel = connection.channel()
        for number in range(starts):
            began = time.monotonic()
            request = client.send(f"start-{number}")
            accepted = until(lambda began=began: proxy.start_of(began), within=60, every=0.01)  # type: ignore[misc]
            whole.append((accepted - began) * 1000)
            engine.append(proxy.busy(began, accepted) * 1000)
            client.wait(request, timeout=60)
            began = time.perf_counter()
            channel.queue_declare(f"alone-{number}", durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_bind(f"alone-{number}", pool.pool.names.request_exchange, f"alone-{number}")
            queue.append((time.perf_counter() - began) * 1000)
            channel.queue_delete(f"alone-{number}")
    ours = [all_of_it - one - other for all_of_it, one, other in zip(whole, engine, queue, strict=True)]
    shown = {"publish to accepted": whole, "the engine": engine, "queue alone": queue, "ours": ours}
    return {f"{what}, ms": round(statistics.median(values), 1) for what, values in shown.items()}


def idle_cost(daemon: DaemonProcess, client: ForeignClient, groups: int, seconds: float) -> dict[str, float]:
    """Share of one core of the daemon while every group is up and nobody asks anything."""
    client.wait(*(client.send(f"idle-{number}") for number in range(groups)), timeout=900)
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    print("groups are up", file=sys.stderr)
    # What starting them has left to do is done when it has been still for a while.
    until(lambda: share_of_a_core(process, 5.0) < 0.05, within=300, what="the daemon to be idle")
    share = share_of_a_core(process, seconds)
    ready = sum(1 for one in daemon.status()["keys"] if one["workers"])
    return {"groups": ready, "seconds": seconds, "share of a core, %": round(share * 100, 2)}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], None]) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            note(data)
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    main()
