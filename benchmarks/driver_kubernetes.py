"""What the kubernetes driver costs: `python -m benchmarks.driver_kubernetes`, on a cluster and a broker of its own.

Prints two things, both within one run. What the daemon adds to a start: the time from publishing the first request for
a key until the API server has accepted its Deployment, less what the same apply, and the same queue declared and bound
at the broker, take by themselves at the same moment. And the share of one core that the daemon takes while so many
groups are idle, beside that of a daemon without any.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pika
import psutil

from benchmarks.watching import share_of_a_core
from osrdyne.drivers.kubernetes.api import DEPLOYMENTS, Api
from osrdyne.drivers.kubernetes.manifests import Manifests
from osrdyne.drivers.kubernetes.template import load
from testbed.broker import Broker
from testbed.foreign_client import ForeignClient
from testbed.kubernetes.cluster import WORKER_COMMAND, WORKER_IMAGE
from testbed.pool import DaemonProcess, Pool
from testbed.waiting import until
from tests.drivers.subjects.kubernetes import NAMESPACE, SECRET, SECRET_KEY, KubernetesSubject
from tests.drivers.subjects.kubernetes_pool import PodPool


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.driver_kubernetes", description=(__doc__ or ""))
    parser.add_argument("--starts", type=int, default=30, help="keys whose start is measured")
    parser.add_argument("--groups", type=int, default=200, help="idle groups")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the idle daemon is watched")
    arguments = parser.parse_args()
    with running() as (pods, daemon, client):
        assert daemon.process is not None
        process = psutil.Process(daemon.process.pid)
        until(lambda: share_of_a_core(process, 2.0) < 0.05, within=60, what="the daemon to be idle")
        alone = share_of_a_core(process, arguments.seconds)
        print(json.dumps({"our part of a start": asyncio.run(start_cost(pods, daemon, client, arguments.starts))}))
        idle = idle_cost(daemon, client, arguments.groups, arguments.seconds)
        print(json.dumps({"idle": {**idle, "share without groups, %": round(alone * 100, 2)}}))


@contextlib.contextmanager
def running() -> Iterator[tuple[PodPool, DaemonProcess, ForeignClient]]:
    """A daemon with the intervals that users have, whose workers are small."""
    with (
        Broker("4.3") as broker,
        KubernetesSubject.engine() as engine,
        tempfile.TemporaryDirectory(prefix="osrdyne-bench-") as folder,
    ):
        kube = KubernetesSubject(engine, Path(folder))
        vhost = f"bench-{secrets.token_hex(4)}"
        broker.management.add_vhost(vhost, broker.admin)
        pods = PodPool(kube, Pool.on(broker, vhost, name=kube.pool, instance="one"), Path(folder))
        pods.declare(image=WORKER_IMAGE, command=list(WORKER_COMMAND))
        intervals = {"queue_listing": 5.0, "recheck": 30.0, "debounce": 1.0}
        daemon = pods.daemon(intervals=intervals, broker={"statistics_interval": 7.5})
        client = ForeignClient(pods.pool.client_uri, pods.pool.names.request_exchange)
        try:
            yield pods, daemon, client
        finally:
            client.close()
            pods.close()


async def start_cost(pods: PodPool, daemon: DaemonProcess, client: ForeignClient, starts: int) -> dict[str, float]:
    """Milliseconds, medians: publish to accepted, what API server and broker take alone, and the rest of each."""
    templates = load(pods.directory / "templates", autoscaling="none", container=None)
    alone = Manifests(pods.pool.settings, templates, SECRET, SECRET_KEY)
    api = Api(kubeconfig=pods.kube.kubeconfig, namespace=NAMESPACE, timeout=30)
    whole, engine, queue = [], [], []
    with pika.BlockingConnection(pika.URLParameters(pods.pool.broker.amqp_uri(vhost=pods.pool.vhost))) as connection:
        channel = connection.channel()
        for number in range(starts):
            key = f"start-{number}"
            began = time.time()
            client.send(key)
            accepted = until(lambda key=key: _accepted(daemon, key), within=60, every=0.01)  # type: ignore[misc]
            whole.append((accepted - began) * 1000)
            # The same object under another name, with nobody to run it.
            body = alone.deployment(f"alone-{number}")
            body["spec"]["replicas"] = 0
            began = time.perf_counter()
            await api.apply(DEPLOYMENTS, body["metadata"]["name"], body, what="measure")
            engine.append((time.perf_counter() - began) * 1000)
            began = time.perf_counter()
            channel.queue_declare(f"alone-{number}", durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_bind(f"alone-{number}", pods.pool.names.request_exchange, f"alone-{number}")
            queue.append((time.perf_counter() - began) * 1000)
            channel.queue_delete(f"alone-{number}")
    await api.close()
    ours = [all_of_it - one - other for all_of_it, one, other in zip(whole, engine, queue, strict=True)]
    shown = {"publish to accepted": whole, "apply alone": engine, "queue alone": queue, "ours": ours}
    return {f"{what}, ms": round(statistics.median(values), 1) for what, values in shown.items()}


def idle_cost(daemon: DaemonProcess, client: ForeignClient, groups: int, seconds: float) -> dict[str, float]:
    """Share of one core of the daemon while every group is up and nobody asks anything."""
    keys = [f"idle-{number}" for number in range(groups)]
    client.wait(*(client.send(key) for key in keys), timeout=1200)
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    # What starting them has left to do is done when it has been still for a while.
    until(lambda: share_of_a_core(process, 5.0) < 0.05, within=300, what="the daemon to be idle")
    share = share_of_a_core(process, seconds)
    listed = sum(1 for one in daemon.status()["keys"] if one["state"] == "ready")
    return {"groups": listed, "seconds": seconds, "share of a core, %": round(share * 100, 2)}


def _accepted(daemon: DaemonProcess, key: str) -> float | None:
    for line in reversed(daemon.lines()):
        if line["message"] == "group applied" and line["key"] == key:
            return datetime.fromisoformat(line["time"]).timestamp()
    return None


if __name__ == "__main__":
    main()
