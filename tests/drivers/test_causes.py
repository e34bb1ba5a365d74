"""Each cause of docs/reference/causes.md that an engine makes, on a real pool of it: who asks reads the words there."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.asking import Askers, Events
from testbed.causes import causes
from testbed.pool import Pool
from tests.conftest import Vhost
from tests.drivers.subjects.docker import DockerSubject
from tests.drivers.subjects.docker_pool import ContainerPool
from tests.drivers.subjects.engine_pool import EnginePool
from tests.drivers.subjects.kubernetes import NAMESPACE, KubernetesSubject
from tests.drivers.subjects.kubernetes_pool import PodPool
from tests.drivers.subjects.systemd import SystemdSubject
from tests.drivers.subjects.systemd_pool import UnitPool

#: Starts a pool of this kind, once its template is declared, and returns those who ask.
Start = Callable[..., Askers]

docker, systemd, kubernetes = (pytest.mark.xdist_group(engine) for engine in ("docker", "systemd", "kubernetes"))
pytestmark = pytest.mark.full


@pytest.fixture
def start(one_vhost: Vhost, tmp_path: Path) -> Iterator[Start]:
    opened: list[Any] = []

    def of(subject: Any, kind: Callable[..., EnginePool], declare: Callable[[Any], None], **settings: Any) -> Askers:
        values = {"name": subject.pool, "instance": "one", "start_failures": 3, **settings}
        pool = kind(subject, Pool.on(one_vhost.broker, one_vhost.name, **values), tmp_path)
        opened.append(pool)
        declare(pool)
        events = Events(pool.pool)
        opened.append(events)
        return Askers(pool.pool, pool.daemon(), events)

    yield of
    for each in reversed(opened):
        each.close()


async def asked(askers: Askers, title: str, body: bytes = b"x", *, told_first: bool = False) -> None:
    """Check what each who asks reads. `told_first`: callers ask once `status` says what broke."""
    cause = causes()[title]
    if told_first:
        await asyncio.to_thread(askers.until_told, cause)
    await asyncio.to_thread(askers.check, cause, await asyncio.to_thread(askers.callers, body))


@docker
async def test_each_who_asks_reads_that_docker_has_no_such_image(dockerd: DockerSubject, start: Start) -> None:
    image = f"missing-{secrets.token_hex(4)}:1"
    askers = start(dockerd, ContainerPool, lambda pool: pool.declare(Image=image))
    await asked(askers, "docker: the image is missing")


@docker
async def test_each_who_asks_reads_that_a_container_wanted_more_memory_to_start(
    dockerd: DockerSubject, start: Start
) -> None:
    little = {"NetworkMode": "host", "Memory": 64 << 20, "MemorySwap": 64 << 20}
    # Of a container that ends as soon as it begins, the engine may not see that it wanted too much memory
    much = ["python3", "-c", "import time; time.sleep(1.0); bytearray(1 << 30)"]
    askers = start(dockerd, ContainerPool, lambda pool: pool.declare(Entrypoint=much, HostConfig=little))
    await asked(askers, "docker: it needs more memory than its limit at its start")


@docker
async def test_each_who_asks_reads_that_a_container_was_killed(dockerd: DockerSubject, start: Start) -> None:
    askers = start(dockerd, ContainerPool, lambda _: None, delivery_limit=1)
    asking = asyncio.create_task(asked(askers, "docker: it is killed", b"sleep 1000"))
    killed = 0
    while not asking.done():
        received = await asyncio.to_thread(askers.events.of, askers.key)
        if sum(line.startswith("request-received") for line in received) > killed:
            killed += 1
            [container] = [each for each in await dockerd.containers(askers.key) if each["State"]["Running"]]
            await dockerd.run("kill", container["Id"])
        await asyncio.sleep(0.1)
    await asking


@systemd
async def test_each_who_asks_reads_that_a_unit_is_masked(units: SystemdSubject, start: Start) -> None:
    def mask(_: UnitPool) -> None:
        file = units.machine.units / units.unit
        file.unlink()
        file.symlink_to("/dev/null")
        units.machine.run("systemctl", "daemon-reload")

    await asked(start(units, UnitPool, mask), "systemd: its unit is masked")


@kubernetes
async def test_each_who_asks_reads_that_a_node_has_no_such_image(kube: KubernetesSubject, start: Start) -> None:
    missing = {"image": "missing/image:none", "imagePullPolicy": "Never"}
    askers = start(kube, PodPool, lambda pool: pool.declare(**missing), message_ttl=2.0)
    await asked(askers, "kubernetes: the image is missing", told_first=True)


@kubernetes
async def test_each_who_asks_reads_that_a_pod_wanted_more_memory_to_start(
    kube: KubernetesSubject, start: Start
) -> None:
    worker = {
        "command": ["python3", "-c", "bytearray(10**9)"],
        "resources": {"limits": {"memory": "64Mi"}},
    }
    askers = start(kube, PodPool, lambda pool: pool.declare(**worker))
    await asked(askers, "kubernetes: it needs more memory than its limit at its start")


@kubernetes
async def test_each_who_asks_reads_that_a_quota_refuses_pods(kube: KubernetesSubject, start: Start) -> None:
    metadata = {"name": "few", "namespace": NAMESPACE}
    kube.cluster.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": "0"}}}
    )
    try:
        askers = start(kube, PodPool, lambda _: None, message_ttl=2.0)
        await asked(askers, "kubernetes: a quota refuses the pods", told_first=True)
    finally:
        kube.kubectl("delete", "resourcequota", "few", "--ignore-not-found")
