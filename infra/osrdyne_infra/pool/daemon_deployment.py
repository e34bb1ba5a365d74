"""The daemons of one pool: a leader and its standbys, replaced one after the other without a gap.

A standby is ready as a leader is, so a rollout goes on when a new daemon has reached the broker; the lock then decides
which one acts. Only settings and templates restart daemons. Workers are never restarted: the next daemon finds them by
their labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_kubernetes.core import v1 as core

from osrdyne_infra.cluster import replicated
from osrdyne_infra.cluster.access import Place
from osrdyne_infra.cluster.settings import DaemonPods
from osrdyne_infra.ordering import inside
from osrdyne_infra.pool.config import CREDENTIALS, SETTINGS, STATUS_PORT, PoolConfig

#: Name of the container's port.
STATUS = "status"


def labels(pool: str) -> dict[str, str]:
    """Return the labels by which the daemons of a pool are found; none is like those of the driver's groups."""
    return {"app.kubernetes.io/name": "osrdyne-daemon", "app.kubernetes.io/instance": pool}


class DaemonDeployment(pulumi.ComponentResource):
    """A Deployment and its disruption budget, made after all that a daemon needs at its start."""

    def __init__(
        self,
        pool: str,
        pods: DaemonPods,
        config: PoolConfig,
        account: str | None,
        place: Place,
        after: Sequence[pulumi.Resource],
        parent: pulumi.ComponentResource,
    ) -> None:
        super().__init__("osrdyne:kubernetes:DaemonDeployment", place.own(pool), None, inside(parent))
        names = {path: path.strip("/").rpartition("/")[2] for path in (*config.maps, CREDENTIALS)}
        volumes = [replicated.config_map(names[path], name) for path, name in config.maps.items()]
        volumes.append(replicated.secret(names[CREDENTIALS], config.secret))
        # A driver that starts workers speaks with the API server.
        pod = replicated.pod(labels(pool), [_container(pods, names)], volumes, account=account)
        self.made = replicated.deployment(
            self, f"{pool}-daemon", labels(pool), pods.replicas, config.digest, pod, place, [*config.made, *after]
        )
        self.register_outputs({})


def _container(pods: DaemonPods, places: dict[str, str]) -> core.ContainerArgs:
    words = ["osrdyne", "daemon", "--settings", f"{SETTINGS}/settings.toml", "--json"]
    return replicated.container(
        "daemon",
        pods.image,
        pods,
        [*words, "--verbose"] if pods.verbose else words,
        places,
        ports=[core.ContainerPortArgs(name=STATUS, container_port=STATUS_PORT)],
        **replicated.probes(STATUS, "/healthz", start=300),
    )
