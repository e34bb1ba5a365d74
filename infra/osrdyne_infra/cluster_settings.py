"""What the configuration says of a cluster: where the pools' daemons and workers are, and what is beside them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osrdyne_infra import checks
from osrdyne_infra.checks import Check, Wrong
from osrdyne_protocol.durations import parse_seconds

Resources = Mapping[str, Mapping[str, str]]

#: Variables of a worker that are the driver's begin so.
_OURS = "WORKER_"
_VARIABLE = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Which cluster, and where in it."""

    #: Name of the namespace of a broker; with a hyphen and the pool's name after it, that of a pool.
    namespace: str
    #: Which context of the kubeconfig; the current one by default.
    context: str = ""
    #: The Pod Security Standard that the namespaces enforce.
    pod_security: str = "restricted"
    #: Contents of a kubeconfig; that of this machine by default.
    kubeconfig: str = field(default="", repr=False)

    def pool_namespace(self, pool: str) -> str:
        return f"{self.namespace}-{pool}"


@dataclass(frozen=True, kw_only=True)
class DaemonPods:
    """How the daemons of all pools run."""

    image: str
    #: The leader, and those that wait to take over.
    replicas: int = 2
    pull_policy: str = "IfNotPresent"
    #: Twice what the daemon was seen to need while it held as many orphans as it may (docs/operations.md).
    resources: Resources = field(
        default_factory=lambda: {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    )
    #: Log what the AMQP library says, too.
    verbose: bool = False
    #: The daemon's own tables [limits] and [intervals], see docs/settings.md.
    limits: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NetworkAccess:
    """Whom the pods may speak with; nobody else."""

    #: Where the broker is: ranges of addresses, or the name of a namespace.
    broker: tuple[str, ...] | str
    #: Where the cluster's API server is; anywhere by default.
    api_server: tuple[str, ...] = ("0.0.0.0/0",)
    #: Who reads the daemons' metrics; nobody by default.
    monitoring_namespace: str = ""
    #: What else workers may reach, at any port.
    workers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PoolCluster(Cluster):
    """A cluster that holds the daemons and workers of pools."""

    daemon: DaemonPods
    #: Objects for the Prometheus operator and Grafana.
    monitoring: str = "none"
    #: Labels by which a Prometheus finds what is for it.
    monitoring_labels: Mapping[str, str] = field(default_factory=dict)
    network_policy: NetworkAccess | None = None


@dataclass(frozen=True, kw_only=True)
class Worker:
    """What a worker of one pool is started from."""

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=dict)
    pull_policy: str = "IfNotPresent"
    #: Who owns the number of workers of a key.
    autoscaling: str = "none"
    #: Workers of a key, without autoscaling.
    replicas: int = 1
    #: The most workers of a key, with autoscaling.
    max_replicas: int = 10
    #: For `keda`: requests of a key, waiting or in hand, for each worker.
    messages_per_worker: int = 1
    #: For `hpa`: share of the requested CPU that is aimed at, in percent.
    cpu_percent: int = 70
    #: More fields of the pod, of the worker's container, and of the autoscaler's specification, as Kubernetes has them.
    pod: Mapping[str, Any] = field(default_factory=dict)
    container: Mapping[str, Any] = field(default_factory=dict)
    scaler: Mapping[str, Any] = field(default_factory=dict)


def resources(value: object) -> Resources:
    given = checks.table(value, ("requests", "limits"))
    found: Resources = checks.named(checks.named(checks.quantity))(given)
    return found


def _duration(value: object) -> float:
    seconds = parse_seconds(value)
    if seconds == 0:
        raise Wrong("must be longer than 0 seconds")
    return seconds


def _numbers(known: Mapping[str, Check]) -> Check:
    def check(value: object) -> dict[str, float]:
        given = checks.table(value, tuple(known))
        return {name: checks.at(f".{name}", known[name], one) for name, one in given.items()}

    return check


_COUNT = checks.integer(1)
#: The daemon's tables, as osrdyne.settings.daemon has them; a test compares.
LIMITS: Mapping[str, Check] = {
    "orphan_prefetch": _COUNT,
    "held_orphans_per_key": _COUNT,
    "held_bytes": _COUNT,
    "dead_letter_prefetch": _COUNT,
    "starts_in_flight": _COUNT,
    "start_hold": _duration,
    "start_grace": _duration,
    "queue_actions": _COUNT,
}
INTERVALS: Mapping[str, Check] = dict.fromkeys(
    ("engine_listing", "queue_listing", "topology_check", "debounce", "recheck"), _duration
)


def _places(value: object) -> tuple[str, ...] | str:
    if isinstance(value, str):
        return str(checks.namespace(value))
    found: tuple[str, ...] = checks.each(checks.network)(value)
    return found


def _environment(value: object) -> dict[str, str]:
    given: dict[str, str] = checks.named(checks.text)(value)
    for name in given:
        if name.startswith(_OURS) or not _VARIABLE.fullmatch(name):
            raise Wrong(f"is no name for a variable; those that begin with {_OURS} are set for each worker", f".{name}")
    return given


def _fields(*ours: str) -> Check:
    """Return the check of fields that pass through, but for those that the stack itself writes."""

    def check(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong(f"{value!r} is no table of fields as Kubernetes has them")
        for name in value:
            if name in ours:
                raise Wrong(f"is made from other settings; leave out {', '.join(ours)}", f".{name}")
        return value

    return check


_PULL_POLICY = checks.choice("IfNotPresent", "Always", "Never")
_CLUSTER: Mapping[str, Check] = {
    "namespace": checks.namespace,
    "context": checks.filled,
    "pod_security": checks.choice("restricted", "baseline", "privileged"),
}
_DAEMON = checks.record(
    DaemonPods,
    {
        "image": checks.image,
        "replicas": checks.integer(1, 5),
        "pull_policy": _PULL_POLICY,
        "resources": resources,
        "verbose": checks.flag,
        "limits": _numbers(LIMITS),
        "intervals": _numbers(INTERVALS),
    },
)
_NETWORK_ACCESS = checks.record(
    NetworkAccess,
    {
        "broker": _places,
        "api_server": checks.each(checks.network),
        "monitoring_namespace": checks.namespace,
        "workers": checks.each(checks.network),
    },
)

cluster: Check = checks.record(Cluster, _CLUSTER)
pool_cluster: Check = checks.record(
    PoolCluster,
    {
        **_CLUSTER,
        "daemon": _DAEMON,
        "monitoring": checks.choice("none", "prometheus-operator"),
        "monitoring_labels": checks.named(checks.text),
        "network_policy": _NETWORK_ACCESS,
    },
)
_worker: Check = checks.record(
    Worker,
    {
        "image": checks.image,
        "command": checks.each(checks.text),
        "args": checks.each(checks.text),
        "env": _environment,
        "resources": resources,
        "pull_policy": _PULL_POLICY,
        "autoscaling": checks.choice("none", "hpa", "keda"),
        "replicas": checks.integer(1),
        "max_replicas": checks.integer(1),
        "messages_per_worker": checks.integer(1),
        "cpu_percent": checks.integer(1, 100),
        "pod": _fields(),
        "container": _fields("name", "image", "command", "args", "resources", "imagePullPolicy"),
        "scaler": _fields("scaleTargetRef", "minReplicas", "maxReplicas", "minReplicaCount", "maxReplicaCount"),
    },
)
#: Setting of a worker -> kinds of autoscaling that it is for.
_FOR: Mapping[str, tuple[str, ...]] = {
    "replicas": ("none",),
    "max_replicas": ("hpa", "keda"),
    "messages_per_worker": ("keda",),
    "cpu_percent": ("hpa",),
    "scaler": ("hpa", "keda"),
}


def worker(value: object) -> Worker:
    """Check a worker, and that each setting is for its kind of autoscaling."""
    made: Worker = _worker(value)
    for name, kinds in _FOR.items():
        if isinstance(value, dict) and name in value and made.autoscaling not in kinds:
            raise Wrong(f"is for autoscaling {' or '.join(kinds)}, and this is {made.autoscaling}", f".{name}")
    if made.autoscaling == "hpa" and "cpu" not in made.resources.get("requests", {}):
        raise Wrong("has no cpu, of which autoscaling hpa needs a share", ".resources.requests")
    return made
