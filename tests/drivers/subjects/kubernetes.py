"""Driver `kubernetes`: a cluster of one node, whose pods are processes of this machine, seen through /proc.

The driver works with the rights of a ServiceAccount that has the Role of `tests/drivers/kubernetes/` and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from osrdyne.drivers.kubernetes import manifests, template
from osrdyne.drivers.kubernetes.api import Api
from osrdyne.drivers.kubernetes.driver import KubernetesDriver
from osrdyne.drivers.kubernetes.manifests import Manifests
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import names
from testbed.kubernetes import building
from testbed.kubernetes.cluster import WORKER_IMAGE, Cluster
from tests.drivers.subjects.base import WORKER_URI, OwningSubject

Manifest = dict[str, Any]

NAMESPACE, ACCOUNT = "osrdyne", "osrdyne"
SECRET, SECRET_KEY = "worker", "amqp-uri"
ROLES = Path(__file__).parents[1] / "kubernetes"
#: Seconds that a request to the API server may take: the machine is busy with many other things.
TIMEOUT_SECONDS = 30.0

DEPLOYMENT: Manifest = {
    "spec": {
        "template": {
            "spec": {
                "terminationGracePeriodSeconds": 20,
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": "worker",
                        "image": WORKER_IMAGE,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["python3", "-I", "-S", "-E", "/worker/stub_worker.py"],
                        "env": [],
                    }
                ],
            }
        }
    }
}


@dataclass(frozen=True)
class Engine:
    """A cluster with a namespace for workers, and who the daemon is in it."""

    cluster: Cluster
    kubeconfig: Path


@contextlib.contextmanager
def cluster_with_namespace() -> Iterator[Engine]:
    with Cluster() as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        secret = {"name": SECRET, "namespace": NAMESPACE}
        cluster.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": secret, "stringData": {SECRET_KEY: WORKER_URI}},
        )
        for file in ROLES.glob("role*.yaml"):
            grant(cluster, yaml.safe_load(file.read_text()))
        yield Engine(cluster, cluster.kubeconfig_of(NAMESPACE, ACCOUNT))


def grant(cluster: Cluster, role: Manifest, *, account: str = ACCOUNT) -> None:
    """Gives a ServiceAccount a Role, the daemon's by default."""
    name = role["metadata"]["name"]
    role["metadata"]["namespace"] = NAMESPACE
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    }
    cluster.apply(role, binding)


def worker_processes() -> dict[int, dict[str, str]]:
    """The environment of each process of this machine that runs the stub worker."""
    found = {}
    for directory in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if directory.name.isdigit() and b"/worker/stub_worker.py" in (directory / "cmdline").read_bytes():
                variables = (directory / "environ").read_bytes().decode().split("\0")
                # Empty for some microseconds after exec.
                if environment := dict(variable.split("=", 1) for variable in variables if variable):
                    found[int(directory.name)] = environment
    return found


class KubernetesSubject(OwningSubject):
    """Groups are Deployments of one namespace; each test has pools of its own there."""

    name = "kubernetes"
    heals = True

    @classmethod
    def prepare(cls) -> None:
        for name in building.RECIPES:
            building.binaries(name)

    @classmethod
    @contextlib.contextmanager
    def engine(cls) -> Iterator[Engine]:
        with cluster_with_namespace() as made:
            yield made

    def __init__(self, engine: Engine, directory: Path) -> None:
        super().__init__(engine, directory)
        self.cluster = engine.cluster
        self.kubeconfig = engine.kubeconfig
        self.directory = directory
        self.pool = f"echo-{secrets.token_hex(3)}"
        self._drivers: list[KubernetesDriver] = []

    def driver(self, *, pool: str | None = None, instance: str = "one", template: str = "a") -> KubernetesDriver:
        declared = self.declared(env=[{"name": "TEMPLATE", "value": template}])
        return self.driver_of(declared, pool=pool, instance=instance)

    def declared(self, **worker: Any) -> Manifest:
        """The Deployment of the suite, with other fields of the worker's container."""
        made = copy.deepcopy(DEPLOYMENT)
        made["spec"]["template"]["spec"]["containers"][0].update(worker)
        return made

    def driver_of(
        self,
        deployment: Manifest,
        *,
        pool: str | None = None,
        instance: str = "one",
        scaler: Manifest | None = None,
        autoscaling: str = "none",
        kubeconfig: Path | None = None,
        namespace: str = NAMESPACE,
        timeout: float = TIMEOUT_SECONDS,
    ) -> KubernetesDriver:
        """Opens the driver with templates of a test's own."""
        files = self.directory / f"templates-{len(self._drivers)}"
        files.mkdir()
        (files / "deployment.yaml").write_text(yaml.safe_dump(deployment))
        if scaler is not None:
            (files / template.SCALERS[autoscaling][0]).write_text(yaml.safe_dump(scaler))
        templates = template.load(files, autoscaling=autoscaling, container=None)
        rendered = Manifests(PoolSettings(pool or self.pool, instance), templates, SECRET, SECRET_KEY)
        api = Api(kubeconfig=kubeconfig or self.kubeconfig, namespace=namespace, timeout=timeout)
        driver = KubernetesDriver(rendered, api, timeout=timeout)
        self._drivers.append(driver)
        return driver

    def group(self, key: str, *, pool: str | None = None, instance: str = "one") -> str:
        """Name of a key's Deployment."""
        return names.engine_name(pool or self.pool, instance, key)

    def kubectl(self, *arguments: str) -> str:
        """Asks as the administrator, in the namespace of the workers."""
        return self.cluster.kubectl("-n", NAMESPACE, *arguments)

    def get(self, *arguments: str) -> Manifest:
        return dict(json.loads(self.kubectl("get", *arguments, "-o", "json")))

    def pods(self, key: str, *, pool: str | None = None, instance: str = "one") -> list[Manifest]:
        """The pods of a key, those that are being deleted included."""
        return list(self.get("pods", "-l", self._selector(key, pool, instance))["items"])

    async def environments(self, key: str, *, pool: str | None = None, instance: str = "one") -> list[dict[str, str]]:
        return list((await self._processes(key, pool, instance)).values())

    async def workers(self, key: str, *, pool: str | None = None, instance: str = "one") -> list[str]:
        pods = await asyncio.to_thread(self.pods, key, pool=pool, instance=instance)
        statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", [])]
        return sorted(status["containerID"] for status in statuses if "running" in status["state"])

    async def kill(self, key: str) -> None:
        [process] = await self._processes(key, None, "one")
        os.kill(process, signal.SIGKILL)

    async def output(self, key: str) -> str:
        arguments = ("logs", "-l", self._selector(key, None, "one"), "--tail=-1", "--ignore-errors")
        return await asyncio.to_thread(self.kubectl, *arguments)

    async def inspectable(self) -> bytes:
        kinds = "deployments,replicasets,pods,events,horizontalpodautoscalers,scaledobjects"
        with contextlib.suppress(RuntimeError):
            return (await asyncio.to_thread(self.kubectl, "get", kinds, "-o", "yaml", "--show-managed-fields")).encode()
        kinds = kinds.removesuffix(",scaledobjects")
        return (await asyncio.to_thread(self.kubectl, "get", kinds, "-o", "yaml", "--show-managed-fields")).encode()

    async def clean_up(self) -> None:
        for driver in self._drivers:
            await driver.close()
        await asyncio.to_thread(self.remove_groups)

    def remove_groups(self) -> None:
        """Removes what a test's pools have in the cluster, and does not wait for workers."""
        mine = f"{manifests.POOL_LABEL} in ({self.pool}, {self.pool}-two)"
        self.kubectl("delete", "deployments", "-l", mine, "--wait=false")
        self.kubectl("delete", "pods", "-l", mine, "--force", "--grace-period=0", "--wait=false")

    async def _processes(self, key: str, pool: str | None, instance: str) -> dict[int, dict[str, str]]:
        # The cluster cuts a pod's name here, before it adds five characters of its own.
        head = self.group(key, pool=pool, instance=instance)[:58]
        return {pid: found for pid, found in worker_processes().items() if found.get("WORKER_ID", "").startswith(head)}

    def _selector(self, key: str, pool: str | None, instance: str) -> str:
        return (
            f"{manifests.POOL_LABEL}={pool or self.pool},{manifests.INSTANCE_LABEL}={instance},"
            f"{manifests.KEY_HASH_LABEL}={manifests.key_hash(key)}"
        )
