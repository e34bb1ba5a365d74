"""What a driver costs: `python -m benchmarks.drivers docker`, `systemd` or `kubernetes`; it starts engine and broker.

Prints two things, both within one run. What the daemon adds to a start: the time from publishing the first request for
a key until the engine has accepted the start, less the engine's own part and what the same queue, declared and bound at
the broker, takes by itself at the same moment. And the share of one core that the daemon takes while so many groups
are idle, beside that of a daemon without any.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pika
import psutil
from pika.adapters.blocking_connection import BlockingChannel

from benchmarks.engines import ENGINES, MeasuredEngine, Start
from benchmarks.watching import share_of_a_core
from testbed.broker import Broker
from testbed.foreign_client import ForeignClient
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until

#: Seconds within which every idle group has to answer, on the slowest engine.
ALL_ANSWERED_SECONDS = 1200


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drivers", description=(__doc__ or ""))
    parser.add_argument("engine", choices=ENGINES, help="whose driver is measured")
    parser.add_argument("--starts", type=int, default=50, help="keys whose start is measured")
    parser.add_argument("--groups", type=int, default=200, help="idle groups; a container takes about 25 MB")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the idle daemon is watched")
    arguments = parser.parse_args()
    with running(ENGINES[arguments.engine]) as (engine, daemon, client):
        alone = idle_share(daemon, arguments.seconds, settled=2.0)
        cost = asyncio.run(start_cost(engine, daemon, client, arguments.starts))
        print(json.dumps({"our part of a start": cost}), flush=True)
        idle = idle_cost(daemon, client, arguments.groups, arguments.seconds)
        print(json.dumps({"idle": {**idle, "share without groups, %": alone}}))


@contextlib.contextmanager
def running(kind: type[MeasuredEngine]) -> Iterator[tuple[MeasuredEngine, DaemonProcess, ForeignClient]]:
    """A daemon with the intervals that users have, whose workers are small."""
    with (
        Broker("4.3") as broker,
        tempfile.TemporaryDirectory(prefix="osrdyne-bench-") as folder,
        kind.on(broker, Path(folder)) as engine,
    ):
        intervals = {"queue_listing": 5.0, "recheck": 30.0, "debounce": 1.0}
        daemon = engine.pool.daemon(intervals=intervals, broker={"statistics_interval": 7.5})
        client = ForeignClient(engine.pool.pool.client_uri, engine.pool.pool.names.request_exchange)
        try:
            yield engine, daemon, client
        finally:
            client.close()
            engine.pool.close()
            asyncio.run(engine.subject.clean_up())


async def start_cost(
    engine: MeasuredEngine, daemon: DaemonProcess, client: ForeignClient, starts: int
) -> dict[str, float]:
    """Milliseconds, medians: publish to accepted, what engine and broker take alone, and the rest of each."""
    pool = engine.pool.pool
    whole, part, queue = [], [], []
    address = pika.URLParameters(pool.broker.amqp_uri(vhost=pool.vhost))
    with pika.BlockingConnection(address) as connection:
        channel = connection.channel()
        async with engine.own_part() as own_part:
            for number in range(starts):
                key = f"start-{number}"
                began = time.time()
                request = client.send(key)
                accepted = until(partial(engine.accepted, daemon, key, began), within=60, every=0.01)
                whole.append((accepted - began) * 1000)
                start = Start(key, began, accepted, partial(client.wait, request, timeout=60))
                part.append(await own_part(start) * 1000)
                queue.append(queue_alone(channel, pool, f"alone-{number}") * 1000)
    ours = [all_of_it - request_time - other for all_of_it, request_time, other in zip(whole, part, queue, strict=True)]
    shown = {"publish to accepted": whole, engine.part: part, "queue alone": queue, "ours": ours}
    return {f"{what}, ms": round(statistics.median(values), 1) for what, values in shown.items()}


def queue_alone(channel: BlockingChannel, pool: Pool, name: str) -> float:
    """Seconds that the broker takes to declare and bind a queue as the daemon's."""
    began = time.perf_counter()
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_bind(name, pool.names.request_exchange, name)
    seconds = time.perf_counter() - began
    channel.queue_delete(name)
    return seconds


def idle_cost(daemon: DaemonProcess, client: ForeignClient, groups: int, seconds: float) -> dict[str, float]:
    """Share of one core of the daemon while every group is up and no request is made."""
    client.wait(*[client.send(f"idle-{number}") for number in range(groups)], timeout=ALL_ANSWERED_SECONDS)
    print("groups are up", file=sys.stderr)
    # What starting them has left to do is done when it has been still for a while.
    share = idle_share(daemon, seconds, settled=5.0)
    ready = sum(1 for key in daemon.status()["keys"] if key["state"] == "ready")
    return {"groups": ready, "seconds": seconds, "share of a core, %": share}


def idle_share(daemon: DaemonProcess, seconds: float, *, settled: float) -> float:
    """Percent of a core that the daemon takes, once it has been nearly idle for `settled` seconds."""
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    until(lambda: share_of_a_core(process, settled) < 0.05, within=300, what="the daemon to be idle")
    return round(share_of_a_core(process, seconds) * 100, 2)


if __name__ == "__main__":
    main()
