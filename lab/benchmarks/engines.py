"""What `benchmarks.drivers` does differently on each engine: the pool there, and the engine's own part of a start."""

from __future__ import annotations

import contextlib
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from benchmarks.engine_proxy import EngineProxy
from osrdyne.drivers.kubernetes.api import DEPLOYMENTS, Api
from osrdyne.drivers.kubernetes.manifests import Manifests
from osrdyne.drivers.kubernetes.template import load
from osrdyne.drivers.systemd.groups import Groups
from osrdyne.drivers.systemd.manager import Manager, SignalCallbacks
from osrdyne_pool.settings import PoolSettings
from testbed.broker import Broker
from testbed.docker import Docker
from testbed.kubernetes.cluster import WORKER_COMMAND, WORKER_IMAGE
from testbed.pool import DaemonProcess, Pool
from tests.drivers.subjects.base import OwningSubject
from tests.drivers.subjects.docker import DockerSubject, Engine
from tests.drivers.subjects.docker_pool import ContainerPool
from tests.drivers.subjects.engine_pool import EnginePool
from tests.drivers.subjects.kubernetes import NAMESPACE, SECRET, SECRET_KEY, KubernetesSubject
from tests.drivers.subjects.kubernetes_pool import PodPool
from tests.drivers.subjects.systemd import SystemdSubject
from tests.drivers.subjects.systemd_pool import MINIMAL, UnitPool


@dataclass(frozen=True, slots=True)
class Start:
    """One start that the daemon made. Both moments are seconds since 1970."""

    key: str
    began: float
    accepted: float
    #: Returns once the request that caused it is answered.
    wait: Callable[[], object]


#: Returns the seconds that the engine takes by itself for a start.
OwnPart = Callable[[Start], Awaitable[float]]


class MeasuredEngine(ABC):
    """An engine with a pool of small workers on it."""

    #: What the engine's own part of a start is called in the result.
    part: ClassVar[str]
    #: The daemon's log line for a start that the engine has accepted.
    accepts_with: ClassVar[str]

    def __init__(self, subject: OwningSubject, pool: EnginePool) -> None:
        self.subject, self.pool = subject, pool

    @classmethod
    @abstractmethod
    def on(cls, broker: Broker, folder: Path) -> AbstractContextManager[MeasuredEngine]:
        """Start the engine, and declare a pool with its files in a folder."""

    @abstractmethod
    def own_part(self) -> AbstractAsyncContextManager[OwnPart]:
        """Prepare to measure what a start takes by itself."""

    def accepted(self, daemon: DaemonProcess, key: str, began: float) -> float | None:
        """Return when the engine accepted the start of a key that was asked for at a moment; None for not yet."""
        for line in reversed(daemon.lines()):
            if line["message"] == self.accepts_with and line["key"] == key:
                return datetime.fromisoformat(line["time"]).timestamp()
        return None


class MeasuredDocker(MeasuredEngine):
    """A Docker engine behind a proxy, which sees the engine's part of the start itself."""

    part = "the engine"

    def __init__(self, subject: DockerSubject, pool: ContainerPool, proxy: EngineProxy) -> None:
        super().__init__(subject, pool)
        self._proxy = proxy

    @classmethod
    @contextlib.contextmanager
    def on(cls, broker: Broker, folder: Path) -> Iterator[MeasuredDocker]:
        with (
            DockerSubject.engine() as engine,
            EngineProxy(engine.host or "unix:///var/run/docker.sock", folder) as proxy,
        ):
            subject = DockerSubject(Engine(Docker(proxy.host), engine.image), folder)
            pool = ContainerPool(subject, _pool(broker, subject), folder)
            pool.declare(Entrypoint=None, Cmd=["/minimal_worker.py"])
            yield cls(subject, pool, proxy)

    @contextlib.asynccontextmanager
    async def own_part(self) -> AsyncIterator[OwnPart]:
        async def measured(start: Start) -> float:
            start.wait()
            return self._proxy.busy(start.began, start.accepted)

        yield measured

    def accepted(self, daemon: DaemonProcess, key: str, began: float) -> float | None:
        return self._proxy.start_of(began)


class MeasuredSystemd(MeasuredEngine):
    """A systemd that also starts another unit of the same template, whose file is there already."""

    part = "systemd alone"
    accepts_with = "worker asked to start"

    def __init__(self, subject: SystemdSubject, pool: UnitPool) -> None:
        super().__init__(subject, pool)
        self._place = subject.place
        users = pool.pool.users
        alone = PoolSettings(subject.pool, "alone")
        self._groups = Groups(alone, subject.files, lambda: pool.pool.uri(users.worker), None)

    @classmethod
    @contextlib.contextmanager
    def on(cls, broker: Broker, folder: Path) -> Iterator[MeasuredSystemd]:
        with SystemdSubject.engine() as machine:
            subject = SystemdSubject(machine, folder)
            pool = UnitPool(subject, _pool(broker, subject), folder)
            pool.declare(command=MINIMAL)
            yield cls(subject, pool)

    @contextlib.asynccontextmanager
    async def own_part(self) -> AsyncIterator[OwnPart]:
        manager = Manager(self._place, SignalCallbacks(_ignore, _ignore, _ignore, _ignore, _ignore))

        async def measured(start: Start) -> float:
            record = self._groups.begin(start.key, "alone")
            began = time.perf_counter()
            await manager.start(record.name)
            seconds = time.perf_counter() - began
            await manager.stop(record.name)
            return seconds

        await manager.connect()
        yield measured
        await manager.close()


class MeasuredKubernetes(MeasuredEngine):
    """A cluster whose API server also accepts the same Deployment under another name, which has no pods."""

    part = "apply alone"
    accepts_with = "group applied"

    def __init__(self, subject: KubernetesSubject, pool: PodPool) -> None:
        super().__init__(subject, pool)
        self._kubeconfig = subject.kubeconfig
        templates = load(pool.directory / "templates", autoscaling="none", container=None)
        self._manifests = Manifests(pool.pool.settings, templates, SECRET, SECRET_KEY)

    @classmethod
    @contextlib.contextmanager
    def on(cls, broker: Broker, folder: Path) -> Iterator[MeasuredKubernetes]:
        with KubernetesSubject.engine() as engine:
            subject = KubernetesSubject(engine, folder)
            pool = PodPool(subject, _pool(broker, subject), folder)
            pool.declare(image=WORKER_IMAGE, command=list(WORKER_COMMAND))
            yield cls(subject, pool)

    @contextlib.asynccontextmanager
    async def own_part(self) -> AsyncIterator[OwnPart]:
        api = Api(kubeconfig=self._kubeconfig, namespace=NAMESPACE, timeout=30)

        async def measured(start: Start) -> float:
            body = self._manifests.deployment(f"alone-{start.key}")
            body["spec"]["replicas"] = 0
            began = time.perf_counter()
            await api.apply(DEPLOYMENTS, body["metadata"]["name"], body, what="measure")
            return time.perf_counter() - began

        yield measured
        await api.close()


def _pool(broker: Broker, subject: OwningSubject) -> Pool:
    vhost = f"bench-{secrets.token_hex(4)}"
    broker.management.add_vhost(vhost, broker.admin)
    return Pool.on(broker, vhost, name=subject.pool, instance="one")


def _ignore(*_: object) -> None:
    pass


ENGINES: dict[str, type[MeasuredEngine]] = {
    "docker": MeasuredDocker,
    "systemd": MeasuredSystemd,
    "kubernetes": MeasuredKubernetes,
}
