"""What the configuration says of a broker that a stack deploys itself, on Kubernetes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from osrdyne_infra import checks
from osrdyne_infra.checks import Check, Wrong
from osrdyne_infra.cluster_settings import Resources, resources

_PLAIN = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class BrokerDeployment:
    """A RabbitMQ on the cluster."""

    #: `statefulset`: one node of our own; `cluster-operator`: what the RabbitMQ Cluster Operator makes.
    kind: str
    #: Name of its administrator, made at its first start.
    admin: str
    image: str
    #: Disk of each node.
    storage: str
    storage_class: str = ""
    #: Nodes; several need the operator.
    replicas: int = 1
    resources: Resources = field(
        default_factory=lambda: {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    )


def _plain(value: object) -> str:
    # It stands in a line of RabbitMQ's configuration file, where some characters mean something.
    if not isinstance(value, str) or not _PLAIN.fullmatch(value):
        raise Wrong("holds other characters than letters, digits, - and _, which rabbitmq.conf may read otherwise")
    return value


_CHECKS: Mapping[str, Check] = {
    "kind": checks.choice("statefulset", "cluster-operator"),
    "admin": _plain,
    "image": checks.image,
    "storage": checks.quantity,
    "storage_class": checks.filled,
    "replicas": checks.integer(1, 9),
    "resources": resources,
}
_broker: Check = checks.record(BrokerDeployment, _CHECKS)
password = _plain


def broker(value: object) -> BrokerDeployment:
    """Check a broker; a StatefulSet of ours has one node, and of several an even number helps nobody."""
    made: BrokerDeployment = _broker(value)
    if made.kind == "statefulset" and made.replicas != 1:
        raise Wrong("is more than 1, for which kind has to be cluster-operator", ".replicas")
    if made.replicas % 2 == 0:
        raise Wrong("is even; of nodes that decide by majority give 1, 3 or 5", ".replicas")
    return made
