"""Pods that stand in for each other: how those of daemon, redo and relay run, and what they may do.

They are replaced one after the other without a gap, and a drained node takes one of them at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.apps.v1 import DeploymentSpecArgs, DeploymentStrategyArgs, RollingUpdateDeploymentArgs
from pulumi_kubernetes.core.v1 import (
    CapabilitiesArgs,
    ConfigMapVolumeSourceArgs,
    ContainerArgs,
    EmptyDirVolumeSourceArgs,
    PodSecurityContextArgs,
    PodSpecArgs,
    PodTemplateSpecArgs,
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

from osrdyne_infra.cluster.access import LABELS, Place, part
from osrdyne_infra.pool.worker_templates import NOBODY

#: Annotation of the pods: another value is another pod.
CONFIGURATION = "osrdyne.io/configuration"
#: Seconds after which a rollout that does not go on has failed, and `up` says so.
PROGRESS = 300
#: Seconds that one of these processes may need to end.
GRACE = 30
#: The only folder that a container may write to.
SCRATCH = "/tmp"  # noqa: S108


def deployment(
    parent: pulumi.ComponentResource,
    name: str,
    labels: Mapping[str, str],
    replicas: int,
    digest: str,
    pod: PodSpecArgs,
    place: Place,
    after: Sequence[pulumi.Resource],
) -> kubernetes.apps.v1.Deployment:
    """Return a Deployment, made with its disruption budget after all that a process needs at its start.

    Another `digest` is another pod.
    """
    selector = LabelSelectorArgs(match_labels=labels)
    if replicas > 1:
        kubernetes.policy.v1.PodDisruptionBudget(
            name,
            metadata=place.metadata(name, labels),
            spec=PodDisruptionBudgetSpecArgs(
                min_available=1,
                selector=selector,
                # While the broker, or Redis, is away no process is ready; a node may be drained all the same.
                unhealthy_pod_eviction_policy="AlwaysAllow",
            ),
            opts=part(parent),
        )
    return kubernetes.apps.v1.Deployment(
        name,
        metadata=place.metadata(name, labels),
        spec=DeploymentSpecArgs(
            replicas=replicas,
            progress_deadline_seconds=PROGRESS,
            strategy=DeploymentStrategyArgs(
                type="RollingUpdate",
                rolling_update=RollingUpdateDeploymentArgs(max_unavailable=0, max_surge=1),
            ),
            selector=selector,
            template=PodTemplateSpecArgs(
                metadata=ObjectMetaArgs(labels={**LABELS, **labels}, annotations={CONFIGURATION: digest}),
                spec=pod,
            ),
        ),
        opts=part(parent, after),
    )


def pod(
    labels: Mapping[str, str],
    containers: list[ContainerArgs],
    volumes: list[VolumeArgs],
    *,
    first: list[ContainerArgs] | None = None,
    account: str | None = None,
    grace: int = GRACE,
) -> PodSpecArgs:
    """Return a pod without privileges. `first` run to their end before the others; `account` may use the API server.

    `grace` is how many seconds it may take to end.
    """
    return PodSpecArgs(
        service_account_name=account,
        automount_service_account_token=account is not None,
        enable_service_links=False,
        termination_grace_period_seconds=grace,
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
                label_selector=LabelSelectorArgs(match_labels=labels),
            )
            for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ],
        init_containers=first,
        containers=containers,
        volumes=[*volumes, VolumeArgs(name="tmp", empty_dir=EmptyDirVolumeSourceArgs(size_limit="64Mi"))],
    )


def security() -> SecurityContextArgs:
    """Return what a container may do."""
    return SecurityContextArgs(
        allow_privilege_escalation=False,
        read_only_root_filesystem=True,
        capabilities=CapabilitiesArgs(drop=["ALL"]),
    )


def resources(given: Mapping[str, Mapping[str, str]]) -> ResourceRequirementsArgs:
    """Return the requests and limits that the settings name."""
    return ResourceRequirementsArgs(requests=given.get("requests"), limits=given.get("limits"))


def config_map(volume: str, name: str) -> VolumeArgs:
    return VolumeArgs(name=volume, config_map=ConfigMapVolumeSourceArgs(name=name))


def secret(volume: str, name: str) -> VolumeArgs:
    return VolumeArgs(name=volume, secret=SecretVolumeSourceArgs(secret_name=name, default_mode=0o440))


def mounts(places: Mapping[str, str]) -> list[VolumeMountArgs]:
    """Return the mounts of volumes, by their paths, and that of the scratch folder."""
    return [
        VolumeMountArgs(name=name, mount_path=path, read_only=path != SCRATCH)
        for path, name in {**places, SCRATCH: "tmp"}.items()
    ]
