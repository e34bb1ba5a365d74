"""How the stack reaches its Kubernetes cluster, and what all objects there have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from osrdyne_infra.ordering import own

#: Seconds after which a rollout that does not go on has failed, and `up` says so.
PROGRESS_SECONDS = 300
#: On every object: what it is a part of, and what made it.
LABELS: Mapping[str, str] = {"app.kubernetes.io/part-of": "osrdyne", "app.kubernetes.io/managed-by": "pulumi"}


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the names that Kubernetes' DNS has for a Service, the longest with the usual domain of a cluster."""
    parts = (service, namespace, "svc", "cluster.local")
    return tuple(".".join(parts[:number]) for number in range(1, len(parts) + 1))


@dataclass(frozen=True)
class Place:
    """A namespace of the stack, once it is there, for the component of this name."""

    namespace: pulumi.Output[str]
    component: str
    #: With which the names of all its objects begin.
    beginning: str

    def own(self, name: str) -> str:
        """Return how an object is called in the program, where two components may have one of the same name."""
        return own(self.component, self.beginning, name)

    def metadata(
        self, name: str, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
    ) -> ObjectMetaArgs:
        """Return name, namespace and labels of an object. Its name is given, so that it is known before it is made."""
        return ObjectMetaArgs(
            name=name, namespace=self.namespace, labels={**LABELS, **(labels or {})}, annotations=annotations
        )


def part(parent: pulumi.ComponentResource, after: Sequence[pulumi.Resource] = ()) -> pulumi.ResourceOptions:
    """Return the options of a part of a component in the cluster, made after other resources."""
    patience = pulumi.CustomTimeouts(create=f"{PROGRESS_SECONDS}s", update=f"{PROGRESS_SECONDS}s")
    return pulumi.ResourceOptions(parent=parent, depends_on=list(after), custom_timeouts=patience)
