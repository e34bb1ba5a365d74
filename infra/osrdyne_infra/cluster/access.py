"""How the stack reaches its Kubernetes cluster, and what all objects there have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from osrdyne_infra.cluster.settings import Cluster

#: Seconds after which a rollout that does not go on has failed, and `up` says so.
PROGRESS = 300
#: On every object: what it is a part of, and what made it.
LABELS: Mapping[str, str] = {"app.kubernetes.io/part-of": "osrdyne", "app.kubernetes.io/managed-by": "pulumi"}


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the names that Kubernetes' DNS has for a Service, the longest with the usual domain of a cluster."""
    parts = (service, namespace, "svc", "cluster.local")
    return tuple(".".join(parts[:number]) for number in range(1, len(parts) + 1))


def provider(cluster: Cluster, *, adopt: bool = False) -> kubernetes.Provider:
    """Return the cluster's provider; without a kubeconfig in the configuration it takes this machine's.

    To `adopt` is to take over objects that are there, such as those of an `up` that was killed.
    """
    return kubernetes.Provider(
        "cluster",
        context=cluster.context or None,
        kubeconfig=pulumi.Output.secret(cluster.kubeconfig) if cluster.kubeconfig else None,
        # Without it another address or authority of the same cluster replaces all objects, and ends all workers.
        cluster_identifier=cluster.identifier or pulumi.get_stack(),
        # What differs is made as declared, also what `kubectl scale` or the like has changed.
        enable_patch_force=True,
        upsert_existing_objects=adopt or None,
        # Otherwise each change deletes the object, and makes it again.
        enable_config_map_mutable=True,
        enable_secret_mutable=True,
    )


@dataclass(frozen=True)
class Place:
    """A namespace of the stack, once it is there."""

    namespace: pulumi.Output[str]

    def metadata(
        self, name: str, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
    ) -> ObjectMetaArgs:
        """Return name, namespace and labels of an object. Its name is given, so that it is known before it is made."""
        return ObjectMetaArgs(
            name=name, namespace=self.namespace, labels={**LABELS, **(labels or {})}, annotations=annotations
        )


def part(parent: pulumi.ComponentResource, after: Sequence[pulumi.Resource] = ()) -> pulumi.ResourceOptions:
    """Return the options of a part of a component in the cluster, made after other resources."""
    patience = pulumi.CustomTimeouts(create=f"{PROGRESS}s", update=f"{PROGRESS}s")
    return pulumi.ResourceOptions(parent=parent, depends_on=list(after), custom_timeouts=patience)
