"""The daemons of one pool: a leader and its standbys, replaced one after the other without a gap.

A standby is ready as a leader is, so a rollout goes on when a new daemon has reached the broker; the lock then decides
which one acts. Only settings and templates restart daemons. Workers are never restarted: the next daemon finds them by
their labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.apps.v1 import DeploymentSpecArgs, DeploymentStrategyArgs, RollingUpdateDeploymentArgs
from pulumi_kubernetes.core.v1 import (
    CapabilitiesArgs,
    ConfigMapVolumeSourceArgs,
    ContainerArgs,
    ContainerPortArgs,
    EmptyDirVolumeSourceArgs,
    HTTPGetActionArgs,
    PodSecurityContextArgs,
    PodSpecArgs,
    PodTemplateSpecArgs,
    ProbeArgs,
    ResourceRequirementsArgs,
    SeccompProfileArgs,
    SecretVolumeSourceArgs,
    SecurityContextArgs,
    TopologySpreadConstraintArgs,
    VolumeArgs,
    VolumeMountArgs,
)
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs
from pulumi_kubernetes.policy.v1 import PodDisruptionBudgetSpecArgs

from osrdyne_infra.cluster import LABELS, Place, part
from osrdyne_infra.cluster_settings import DaemonPods
from osrdyne_infra.pool_config import CREDENTIALS, SETTINGS, STATUS_PORT, PoolConfig
from osrdyne_infra.worker_templates import NOBODY

#: Annotation of the pods: another value is another pod.
CONFIGURATION = "osrdyne.io/configuration"
#: Name of the container's port.
STATUS = "status"
#: Seconds after which a rollout that does not go on has failed, and `up` says so.
PROGRESS = 300
#: Seconds that a daemon may need to end: it closes its connection, and workers go on.
GRACE = 30


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
        account: str,
        place: Place,
        after: Sequence[pulumi.Resource],
        provider: kubernetes.Provider,
    ) -> None:
        super().__init__("osrdyne:kubernetes:DaemonDeployment", pool, None, pulumi.ResourceOptions(provider=provider))
        name = f"{pool}-daemon"
        self.made = kubernetes.apps.v1.Deployment(
            name,
            metadata=place.metadata(name, labels(pool)),
            spec=DeploymentSpecArgs(
                replicas=pods.replicas,
                progress_deadline_seconds=PROGRESS,
                strategy=DeploymentStrategyArgs(
                    type="RollingUpdate",
                    rolling_update=RollingUpdateDeploymentArgs(max_unavailable=0, max_surge=1),
                ),
                selector=LabelSelectorArgs(match_labels=labels(pool)),
                template=PodTemplateSpecArgs(
                    metadata=ObjectMetaArgs(
                        labels={**LABELS, **labels(pool)}, annotations={CONFIGURATION: config.digest}
                    ),
                    spec=_pod(pool, pods, config, account),
                ),
            ),
            opts=part(self, [*config.made, *after]),
        )
        if pods.replicas > 1:
            kubernetes.policy.v1.PodDisruptionBudget(
                name,
                metadata=place.metadata(name, labels(pool)),
                spec=PodDisruptionBudgetSpecArgs(
                    min_available=1,
                    selector=LabelSelectorArgs(match_labels=labels(pool)),
                    # While the broker is away no daemon is ready; a node may be drained all the same.
                    unhealthy_pod_eviction_policy="AlwaysAllow",
                ),
                opts=part(self),
            )
        self.register_outputs({})


def _pod(pool: str, pods: DaemonPods, config: PoolConfig, account: str) -> PodSpecArgs:
    mounts = {**config.maps, CREDENTIALS: config.secret, "/tmp": "tmp"}  # noqa: S108
    names = {path: path.strip("/").rpartition("/")[2] for path in mounts}
    return PodSpecArgs(
        service_account_name=account,
        # The driver speaks with the API server.
        automount_service_account_token=True,
        enable_service_links=False,
        termination_grace_period_seconds=GRACE,
        security_context=PodSecurityContextArgs(
            run_as_non_root=True,
            run_as_user=NOBODY,
            run_as_group=NOBODY,
            fs_group=NOBODY,
            seccomp_profile=SeccompProfileArgs(type="RuntimeDefault"),
        ),
        # A standby on the leader's node would go with it; better there than nowhere.
        topology_spread_constraints=[
            TopologySpreadConstraintArgs(
                max_skew=1,
                topology_key=key,
                when_unsatisfiable="ScheduleAnyway",
                label_selector=LabelSelectorArgs(match_labels=labels(pool)),
            )
            for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ],
        containers=[_container(pods, names)],
        volumes=[
            *(
                VolumeArgs(name=names[path], config_map=ConfigMapVolumeSourceArgs(name=name))
                for path, name in config.maps.items()
            ),
            VolumeArgs(
                name=names[CREDENTIALS],
                secret=SecretVolumeSourceArgs(secret_name=config.secret, default_mode=0o440),
            ),
            VolumeArgs(name="tmp", empty_dir=EmptyDirVolumeSourceArgs(size_limit="64Mi")),
        ],
    )


def _container(pods: DaemonPods, mounts: dict[str, str]) -> ContainerArgs:
    words = ["osrdyne", "daemon", "--settings", f"{SETTINGS}/settings.toml", "--json"]
    return ContainerArgs(
        name="daemon",
        image=pods.image,
        image_pull_policy=pods.pull_policy,
        command=[*words, "--verbose"] if pods.verbose else words,
        ports=[ContainerPortArgs(name=STATUS, container_port=STATUS_PORT)],
        resources=ResourceRequirementsArgs(
            requests=pods.resources.get("requests"), limits=pods.resources.get("limits")
        ),
        security_context=SecurityContextArgs(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=CapabilitiesArgs(drop=["ALL"]),
        ),
        # Neither of the first two asks for a broker: a daemon that waits for one is not helped by a restart.
        startup_probe=_probe("/healthz", period=1, failures=300),
        liveness_probe=_probe("/healthz", period=10, failures=6),
        readiness_probe=_probe("/readyz", period=2, failures=3),
        volume_mounts=[
            VolumeMountArgs(name=name, mount_path=path, read_only=path != "/tmp")  # noqa: S108
            for path, name in mounts.items()
        ],
    )


def _probe(path: str, *, period: int, failures: int) -> ProbeArgs:
    """Return a probe that looks every `period` seconds, with as long for an answer as a busy daemon may need."""
    return ProbeArgs(
        http_get=HTTPGetActionArgs(path=path, port=STATUS),
        period_seconds=period,
        timeout_seconds=5,
        failure_threshold=failures,
    )
