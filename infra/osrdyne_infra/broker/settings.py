"""What the configuration says of a broker that a stack deploys itself, on Kubernetes. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from osrdyne_infra.checks import DiskSize, Filled, Image, InvalidValue, choice, integer
from osrdyne_infra.cluster.settings import Resources
from osrdyne_runtime.settings.model import StrictModel

_PLAIN = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def plain(value: object) -> str:
    """Return a text that may stand in a line of RabbitMQ's configuration file, where some characters mean something."""
    if not isinstance(value, str) or not _PLAIN.fullmatch(value):
        raise InvalidValue(
            "holds other characters than letters, digits, - and _, which rabbitmq.conf may read otherwise"
        )
    return value


class BrokerDeployment(StrictModel):
    """A RabbitMQ on the cluster."""

    #: `statefulset`: one node of our own; `cluster-operator`: what the RabbitMQ Cluster Operator makes.
    kind: Annotated[str, BeforeValidator(choice("statefulset", "cluster-operator"))]
    #: Name of its administrator, made at its first start.
    admin: Annotated[str, BeforeValidator(plain)]
    image: Image
    #: Disk of each node.
    storage: DiskSize
    storage_class: Filled = ""
    #: Nodes; several need the operator.
    replicas: Annotated[int, BeforeValidator(integer(1, 9))] = 1
    resources: Resources = Field(
        default_factory=lambda: {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    )

    @model_validator(mode="after")
    def _number_of_nodes(self) -> Self:
        """A StatefulSet of ours has one node, and an even number of nodes has no majority."""
        if self.kind == "statefulset" and self.replicas != 1:
            raise InvalidValue("is more than 1, for which kind has to be cluster-operator", ".replicas")
        if self.replicas % 2 == 0:
            raise InvalidValue("is even; of nodes that decide by majority give 1, 3 or 5", ".replicas")
        return self
