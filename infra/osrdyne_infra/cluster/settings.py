"""What the configuration says of a cluster: where the pools' daemons and workers are, and what is beside them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from osrdyne_infra import checks
from osrdyne_infra.checks import Check, Count, Filled, Flag, Image, InvalidValue, Namespace, Network, Quantity, Text
from osrdyne_protocol.durations import parse_seconds
from osrdyne_runtime.settings.model import StrictModel

#: Variables of a worker that are the driver's begin so.
_OURS = "WORKER_"
_VARIABLE = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*", re.ASCII)


def _duration(value: object) -> float:
    seconds = parse_seconds(value)
    if seconds == 0:
        raise InvalidValue("must be longer than 0 seconds")
    return seconds


def _numbers(known: Mapping[str, Check]) -> Check:
    def check(value: object) -> dict[str, float]:
        given = checks.table(value, tuple(known))
        return {name: checks.at(f".{name}", known[name], value) for name, value in given.items()}

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
    "new_keys": _COUNT,
    "new_key_interval": _duration,
}
INTERVALS: Mapping[str, Check] = dict.fromkeys(
    ("engine_listing", "queue_listing", "topology_check", "debounce", "recheck"), _duration
)


def _places(value: object) -> tuple[str, ...] | str:
    if isinstance(value, list) and value:  # for Kubernetes, an empty one would be all addresses
        return checks.each(checks.network, value)
    try:
        return checks.namespace(value)
    except InvalidValue:
        raise InvalidValue(
            f"{value!r} is neither the name of a namespace nor a list of ranges of addresses such as [10.1.0.0/16]"
        ) from None


def _environment(given: dict[str, str]) -> dict[str, str]:
    for name in given:
        if name.startswith(_OURS) or not _VARIABLE.fullmatch(name):
            raise InvalidValue(
                f"cannot name a variable; those that begin with {_OURS} are set for each worker", f".{name}"
            )
    return given


def _fields(*ours: str) -> Check:
    """Return the check of fields that pass through, but for those that the stack itself writes."""

    def check(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InvalidValue(f"{value!r} is not a table of fields as Kubernetes has them")
        for name in value:
            if name in ours:
                raise InvalidValue(f"is made from other settings; leave out {', '.join(ours)}", f".{name}")
        return value

    return check


Resources = Annotated[
    dict[str, dict[str, Quantity]], BeforeValidator(partial(checks.table, known=("requests", "limits")))
]
PullPolicy = Annotated[str, BeforeValidator(checks.choice("IfNotPresent", "Always", "Never"))]


class Cluster(StrictModel):
    """Which cluster, and where in it."""

    #: Name of the namespace of a broker; with a hyphen and the pool's name after it, that of a pool.
    namespace: Namespace
    #: Which context of the kubeconfig; the current one by default.
    context: Filled = ""
    #: Which cluster it is, in words of your own; the stack's name by default. While they stay, another address or
    #: authority is another way to the same cluster. Others are another cluster, where all is made again.
    identifier: Filled = ""
    #: The Pod Security Standard that the namespaces enforce.
    pod_security: Annotated[str, BeforeValidator(checks.choice("restricted", "baseline", "privileged"))] = "restricted"
    #: Contents of a kubeconfig, which is a setting of its own; that of this machine by default.
    kubeconfig: str = Field(default="", repr=False, exclude=True)

    def pool_namespace(self, pool: str) -> str:
        return f"{self.namespace}-{pool}"


class DaemonPods(StrictModel):
    """How the daemons of all pools run."""

    image: Image
    #: The leader, and those that wait to take over.
    replicas: Annotated[int, BeforeValidator(checks.integer(1, 5))] = 2
    pull_policy: PullPolicy = "IfNotPresent"
    #: Twice what the daemon was seen to need while it held as many orphans as it may (docs/howto/operations.md).
    resources: Resources = Field(
        default_factory=lambda: {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    )
    #: Names by which the status endpoints may be asked for beside those of their Service: that of an Ingress, or with
    #: the cluster's own domain.
    status_names: tuple[Filled, ...] = ()
    #: Log what the AMQP library says, too.
    verbose: Flag = False
    #: The daemon's own tables [limits] and [intervals], see docs/reference/settings.md.
    limits: Annotated[dict[str, int | float], BeforeValidator(_numbers(LIMITS))] = Field(default_factory=dict)
    intervals: Annotated[dict[str, int | float], BeforeValidator(_numbers(INTERVALS))] = Field(default_factory=dict)


class NetworkAccess(StrictModel):
    """The only peers that the pods may speak with."""

    #: Where the broker is: ranges of addresses, or the name of a namespace.
    broker: Annotated[tuple[str, ...] | str, BeforeValidator(_places)]
    #: Where the database server of pools with jobs is, as `broker`.
    database: Annotated[tuple[str, ...] | str, BeforeValidator(_places)] = ()
    #: Where the cluster's API server is; anywhere by default.
    api_server: Annotated[tuple[Network, ...], Field(min_length=1)] = ("0.0.0.0/0",)
    #: Namespace that reads the metrics of the daemons; none by default.
    monitoring_namespace: Namespace = ""
    #: What else workers may reach, at any port.
    workers: tuple[Network, ...] = ()


class PoolCluster(Cluster):
    """A cluster that holds the daemons and workers of pools."""

    daemon: DaemonPods
    #: Objects for the Prometheus operator and Grafana.
    monitoring: Annotated[str, BeforeValidator(checks.choice("none", "prometheus-operator"))] = "none"
    #: Labels by which a Prometheus finds what is for it.
    monitoring_labels: dict[str, Text] = Field(default_factory=dict)
    #: Without it, pods may connect to anything; so a value has to be a table.
    network_policy: Annotated[
        NetworkAccess | None, BeforeValidator(partial(checks.table, known=tuple(NetworkAccess.model_fields)))
    ] = None


#: Setting of a worker -> kinds of autoscaling that it is for.
_FOR: Mapping[str, tuple[str, ...]] = {
    "replicas": ("none",),
    "max_replicas": ("hpa", "keda"),
    "messages_per_worker": ("keda",),
    "cpu_percent": ("hpa",),
    "scaler": ("hpa", "keda"),
}


class WorkerSettings(StrictModel):
    """What a worker of one pool is started from."""

    image: Image
    command: tuple[Text, ...] = ()
    args: tuple[Text, ...] = ()
    env: Annotated[dict[str, Text], AfterValidator(_environment)] = Field(default_factory=dict)
    resources: Resources = Field(default_factory=dict)
    pull_policy: PullPolicy = "IfNotPresent"
    #: Who owns the number of workers of a key.
    autoscaling: Annotated[str, BeforeValidator(checks.choice("none", "hpa", "keda"))] = "none"
    #: Workers of a key, without autoscaling.
    replicas: Count = 1
    #: The most workers of a key, with autoscaling.
    max_replicas: Count = 10
    #: For `keda`: requests of a key, waiting or in hand, for each worker.
    messages_per_worker: Count = 1
    #: For `hpa`: share of the requested CPU that is aimed at, in percent.
    cpu_percent: Annotated[int, BeforeValidator(checks.integer(1, 100))] = 70
    #: More fields of the pod, of the worker's container, and of the autoscaler's specification, as Kubernetes has them.
    pod: Annotated[dict[str, Any], BeforeValidator(_fields())] = Field(default_factory=dict)
    container: Annotated[
        dict[str, Any],
        BeforeValidator(_fields("name", "image", "command", "args", "resources", "imagePullPolicy")),
    ] = Field(default_factory=dict)
    scaler: Annotated[
        dict[str, Any],
        BeforeValidator(_fields("scaleTargetRef", "minReplicas", "maxReplicas", "minReplicaCount", "maxReplicaCount")),
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_its_autoscaling(self) -> Self:
        for name, kinds in _FOR.items():
            if name in self.model_fields_set and self.autoscaling not in kinds:
                raise InvalidValue(
                    f"is for autoscaling {' or '.join(kinds)}, and this is {self.autoscaling}", f".{name}"
                )
        if self.autoscaling == "hpa" and "cpu" not in self.resources.get("requests", {}):
            raise InvalidValue("has no cpu, of which autoscaling hpa needs a share", ".resources.requests")
        return self
