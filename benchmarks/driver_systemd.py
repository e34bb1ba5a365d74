"""What the systemd driver costs: `python -m benchmarks.driver_systemd`, on a machine and a broker of its own.

Prints two things, both within one run. What the daemon adds to a start: the time from publishing the first request for
a key until systemd has accepted the start, less what the same call of systemd, and the same queue declared and bound at
the broker, take by themselves at the same moment. And the share of one core that the daemon takes while so many groups
are idle, beside that of a daemon without any.
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
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pika
import psutil

from benchmarks.watching import share_of_a_core
from osrdyne.drivers.systemd.groups import Groups
from osrdyne.drivers.systemd.manager import Ears, Manager
from osrdyne_protocol.settings import PoolSettings
from testbed.broker import Broker
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from tests.drivers.subjects.systemd import SystemdSubject
from tests.drivers.subjects.systemd_pool import MINIMAL, UnitPool


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.driver_systemd", description=(__doc__ or ""))
    parser.add_argument("--starts", type=int, default=50, help="keys whose start is measured")
    parser.add_argument("--groups", type=int, default=200, help="idle groups")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the idle daemon is watched")
    arguments = parser.parse_args()
    with running() as (pool, daemon, client):
        assert daemon.process is not None
        process = psutil.Process(daemon.process.pid)
        until(lambda: share_of_a_core(process, 2.0) < 0.05, within=60, what="the daemon to be idle")
        alone = share_of_a_core(process, arguments.seconds)
        print(json.dumps({"our part of a start": asyncio.run(start_cost(pool, daemon, client, arguments.starts))}))
        idle = idle_cost(daemon, client, arguments.groups, arguments.seconds)
        print(json.dumps({"idle": {**idle, "share without groups, %": round(alone * 100, 2)}}))


@contextlib.contextmanager
def running() -> Iterator[tuple[UnitPool, DaemonProcess, ForeignClient]]:
    """A daemon with the intervals that users have, whose workers are small."""
    with (
        Broker("4.3") as broker,
        SystemdSubject.engine() as machine,
        tempfile.TemporaryDirectory(prefix="osrdyne-bench-") as folder,
    ):
        units = SystemdSubject(machine, Path(folder))
        vhost = f"bench-{secrets.token_hex(4)}"
        broker.management.add_vhost(vhost, broker.admin)
        pool = UnitPool(units, Pool.on(broker, vhost, name=units.pool, instance="one"), Path(folder))
        pool.declare(command=MINIMAL)
        intervals = {"queue_listing": 5.0, "recheck": 30.0, "debounce": 1.0}
        daemon = pool.daemon(intervals=intervals, broker={"statistics_interval": 7.5})
        client = ForeignClient(pool.pool.client_uri, pool.pool.names.request_exchange)
        try:
            yield pool, daemon, client
        finally:
            client.close()
            pool.close()
            asyncio.run(units.clean_up())


async def start_cost(pool: UnitPool, daemon: DaemonProcess, client: ForeignClient, starts: int) -> dict[str, float]:
    """Milliseconds, medians: publish to accepted, what systemd and the broker take alone, and the rest of each."""
    manager = Manager(pool.units.place, Ears(_ignore, _ignore, _ignore, _ignore, _ignore))
    settings = PoolSettings(pool.units.pool, "alone")
    groups = Groups(settings, pool.units.files, lambda: pool.pool.uri(pool.pool.users.worker), None)
    broker = pool.pool.broker
    whole, systemd, queue = [], [], []
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_uri(vhost=pool.pool.vhost))) as connection:
        channel = connection.channel()
        await manager.connect()
        for number in range(starts):
            key = f"start-{number}"
            began = time.time()
            client.send(key)
            accepted = until(lambda key=key: _accepted(daemon, key), within=60, every=0.01)  # type: ignore[misc]
            whole.append((accepted - began) * 1000)
            # Another unit of the same template, whose file is there already.
            record = groups.begin(key, "alone")
            began = time.perf_counter()
            await manager.start(record.name)
            systemd.append((time.perf_counter() - began) * 1000)
            began = time.perf_counter()
            channel.queue_declare(f"alone-{number}", durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_bind(f"alone-{number}", pool.pool.names.request_exchange, f"alone-{number}")
            queue.append((time.perf_counter() - began) * 1000)
            channel.queue_delete(f"alone-{number}")
            await manager.stop(record.name)
    await manager.close()
    ours = [all_of_it - one - other for all_of_it, one, other in zip(whole, systemd, queue, strict=True)]
    shown = {"publish to accepted": whole, "systemd alone": systemd, "queue alone": queue, "ours": ours}
    return {f"{what}, ms": round(statistics.median(values), 1) for what, values in shown.items()}


def idle_cost(daemon: DaemonProcess, client: ForeignClient, groups: int, seconds: float) -> dict[str, float]:
    """Share of one core of the daemon while every group is up and nobody asks anything."""
    keys = [f"idle-{number}" for number in range(groups)]
    client.wait(*(client.send(key) for key in keys), timeout=600)
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    # What starting them has left to do is done when it has been still for a while.
    print("groups are up", file=sys.stderr)
    until(lambda: share_of_a_core(process, 5.0) < 0.05, within=300, what="the daemon to be idle")
    share = share_of_a_core(process, seconds)
    ready = sum(1 for one in daemon.status()["keys"] if one["workers"])
    return {"groups": ready, "seconds": seconds, "share of a core, %": round(share * 100, 2)}


def _accepted(daemon: DaemonProcess, key: str) -> float | None:
    for line in reversed(daemon.lines()):
        if line["message"] == "worker asked to start" and line["key"] == key:
            return datetime.fromisoformat(line["time"]).timestamp()
    return None


def _ignore(*_: Any) -> None:
    pass


if __name__ == "__main__":
    main()
