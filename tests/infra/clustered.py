"""A stack of pools on a real cluster, with a real broker that pods reach: what tests of `staging` and `prod` use."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osrdyne.drivers.kubernetes import manifests
from osrdyne_protocol.names import PoolNames
from testbed.broker import Broker
from testbed.foreign_client import ForeignClient
from testbed.kubernetes.cluster import Cluster, ClusterFailed
from testbed.pool import STATISTICS_INTERVAL
from testbed.pulumi.stack import CommandResult, Project
from testbed.waiting import until
from tests.drivers.subjects.kubernetes_pool import SCRIPTED_COMMAND, SCRIPTED_IMAGE
from tests.infra.built_images import AIRPORTS, DAEMON
from tests.infra.conftest import Stack

Manifest = dict[str, Any]

#: Small enough for a test's machine, and a share of its cores that lets a pod start beside other tests.
RESOURCES = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
SCRIPTED: Manifest = {
    "image": SCRIPTED_IMAGE,
    "command": SCRIPTED_COMMAND,
    "resources": RESOURCES,
    "pod": {"terminationGracePeriodSeconds": 20},
}
#: What a cluster with the Prometheus operator knows, without what the operator asks of it.
OPERATED = {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}
FLIGHTS: Manifest = {"image": AIRPORTS.name, "resources": RESOURCES, "pod": {"terminationGracePeriodSeconds": 20}}


@dataclass
class OnCluster(Stack):
    """One stack of pools on a cluster; `values` are its configuration."""

    cluster: Cluster

    def configure(self, **changes: Any) -> None:
        self.configure_for(self.cluster.kubeconfig.read_text(), self.broker.admin_password, **changes)

    def configure_for(self, kubeconfig: str, password: str, **changes: Any) -> None:
        """Give the stack its configuration with these secrets."""
        values = {name: value for name, value in {**self.values, **changes}.items() if value is not None}
        secret = {"admin_password": password, "kubeconfig": kubeconfig, **self.more_secrets}
        self.project.configure(values, secret)

    def change(self, **changes: Any) -> CommandResult:
        """Change the configuration for good, and apply it."""
        self.values = {**self.values, **changes}
        self.configure()
        return self.must_up()

    @property
    def beginning(self) -> str:
        """Of its namespaces."""
        return str(self.values["kubernetes"]["namespace"])

    def namespace(self, pool: str) -> str:
        return f"{self.beginning}-{pool}"

    def namespaces(self) -> set[str]:
        listed = self.cluster.kubectl("get", "namespaces", "-o", "name").split()
        return {name for line in listed if (name := line.removeprefix("namespace/")).startswith(self.beginning)}

    def get(self, pool: str, *words: str) -> Manifest:
        text = self.cluster.kubectl("-n", self.namespace(pool), "get", *words, "-o", "json")
        return dict(json.loads(text))

    def pods(self, pool: str, selector: str) -> dict[str, Manifest]:
        """Pods that are not ending, by uid."""
        found = self.get(pool, "pods", "-l", selector)["items"]
        return {pod["metadata"]["uid"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def daemons(self, pool: str) -> dict[str, Manifest]:
        return self.pods(pool, f"app.kubernetes.io/name=osrdyne-daemon,app.kubernetes.io/instance={pool}")

    def workers(self, pool: str, key: str | None = None) -> dict[str, Manifest]:
        selector = f"{manifests.POOL_LABEL}={pool}"
        return self.pods(pool, selector if key is None else f"{selector},{manifests.KEY_HASH_LABEL}={_hash(key)}")

    def status(self, pool: str, pod: str) -> Manifest:
        """What a daemon says of itself, asked through the API server."""
        path = f"/api/v1/namespaces/{self.namespace(pool)}/pods/{pod}:8042/proxy/status"
        return dict(json.loads(self.cluster.kubectl("get", "--raw", path)))

    def states(self, pool: str) -> dict[str, str]:
        """State of each daemon that answers, by the pod's name."""
        found = {}
        for pod in self.daemons(pool).values():
            name = pod["metadata"]["name"]
            with contextlib.suppress(ClusterFailed):
                found[name] = str(self.status(pool, name)["state"])
        return found

    def settled(self, pool: str) -> str:
        """Wait until one daemon leads and the others stand by; return the leader's name."""

        def leader() -> str | None:
            states = self.states(pool)
            if sorted(states.values()) != ["leading", "standby"]:
                return None
            return next(name for name, state in states.items() if state == "leading")

        return until(leader, every=0.5, what=f"a leader and a standby of {pool}")

    @contextlib.contextmanager
    def client(self, pool: str) -> Iterator[ForeignClient]:
        """A client with the address that the stack gives out, from this machine."""
        address = self.project.outputs()["addresses"][pool]["client"].replace(self.cluster.gateway, "127.0.0.1")
        made = ForeignClient(address, PoolNames(pool).request_exchange)
        try:
            yield made
        finally:
            made.close()

    def remove(self) -> None:
        """Leave nothing on the cluster and on the broker, whatever state the stack is in."""
        for name in self.namespaces():
            self.cluster.kubectl("delete", "namespace", name, "--wait=false")
            self.cluster.kubectl("-n", name, "delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
        super().remove()


def _hash(key: str) -> str:
    return manifests.key_hash(key)


MakeOnCluster = Callable[..., OnCluster]


def on_cluster(cluster: Cluster, broker: Broker, directory: Path, name: str) -> OnCluster:
    """Return a configured stack to which nothing has been done yet."""
    for port in (broker.amqp_port, broker.management_port):
        cluster.forward(port)
    mark = secrets.token_hex(4)
    values: Manifest = {
        "broker": {
            "management": broker.management_url,
            "inside_management": f"http://{cluster.gateway}:{broker.management_port}",
            "amqp": f"amqp://{cluster.gateway}:{broker.amqp_port}",
            "admin": broker.admin,
            "statistics_interval": STATISTICS_INTERVAL,
        },
        "vhost": f"infra-{mark}",
        "instance": mark,
        "pools": [{"name": "core"}],
        "kubernetes": {"namespace": f"t-{mark}", "daemon": {"image": DAEMON.name, "resources": RESOURCES}},
        "workers": {"core": SCRIPTED},
    }
    directory.mkdir(parents=True)
    project = Project(directory, passphrase=secrets.token_hex(8), stack=name)
    return OnCluster(project, broker, f"infra-{mark}", mark, values, cluster)


def prometheus_operator(cluster: Cluster) -> None:
    """Let the cluster know the kinds of the Prometheus operator."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    group = "monitoring.coreos.com"
    for kind, plural in OPERATED.items():
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"kind": kind, "plural": plural, "singular": kind.lower()}
        spec: dict[str, Any] = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
        cluster.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}"},
                "spec": spec,
            }
        )
    shown = "jsonpath={.items[*].status.conditions[?(@.type=='Established')].status}"
    wanted = [f"crd/{plural}.{group}" for plural in OPERATED.values()]
    until(lambda: cluster.kubectl("get", *wanted, "-o", shown) == "True True", every=0.5, what=f"{wanted} established")
