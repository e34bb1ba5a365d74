"""How a program reaches its Kubernetes cluster."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as kubernetes

from osrdyne_infra.cluster import live
from osrdyne_infra.configuration import EXAMPLES, BrokerStack, StackSettings
from osrdyne_infra.errors import ConfigurationError


class ClusterProvider(kubernetes.Provider):
    """The provider of the cluster of the settings; make it before all else.

    The cluster is asked first, in a preview too: that it answers, lets these credentials in, and has what the settings
    need (`InfraError`). Without a kubeconfig in the settings it is that of this machine.
    """

    def __init__(
        self, name: str, settings: StackSettings | BrokerStack, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        cluster = settings.cluster
        if cluster is None:
            raise ConfigurationError("osrdyne:kubernetes", "is missing", EXAMPLES["kubernetes"])
        if isinstance(settings, BrokerStack):
            live.check_broker(settings.cluster, settings.deployment)
        elif settings.cluster is not None:
            live.check(settings.cluster, list(live.needed(settings.cluster, settings.workers)))
        super().__init__(
            name,
            opts,
            context=cluster.context or None,
            kubeconfig=pulumi.Output.secret(cluster.kubeconfig) if cluster.kubeconfig else None,
            # Without it another address or authority of the same cluster replaces all objects, and ends all workers.
            cluster_identifier=cluster.identifier or pulumi.get_stack(),
            # What differs is made as declared, also what `kubectl scale` or the like has changed.
            enable_patch_force=True,
            # To adopt is to take over objects that are there, such as those of an `up` that was killed.
            upsert_existing_objects=settings.adopt or None,
            # Otherwise each change deletes the object, and makes it again.
            enable_config_map_mutable=True,
            enable_secret_mutable=True,
        )
