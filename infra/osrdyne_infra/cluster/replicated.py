"""Pods that stand in for each other: how those of daemon, redo and relay run, and what they may do.

They are replaced one after the other without a gap, and a drained node takes one of them at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.apps import v1 as apps
from pulumi_kubernetes.core import v1 as core
from pulumi_kubernetes.meta import v1 as meta
from pulumi_kubernetes.policy import v1 as policy

from osrdyne_infra.cluster.access import LABELS, PROGRESS_SECONDS, Place, part
from osrdyne_infra.pool.worker_templates import NOBODY

#: Annotation of the pods: another value is another pod.
CONFIGURATION = "osrdyne.io/configuration"
#: Seconds that one of these processes may need to end.
GRACE_SECONDS = 30
#: A pod goes when the one that takes its place is ready.
ONE_BY_ONE = apps.DeploymentStrategyArgs(
    type="RollingUpdate", rolling_update=apps.RollingUpdateDeploymentArgs(max_unavailable=0, max_surge=1)
)
#: The only folder that a container may write to, but for a volume of its own.
SCRATCH = "/tmp"  # noqa: S108
#: Names of volumes that are written: that folder, and the lake of a pipeline.
WRITTEN = ("tmp", "lake")


def deployment(
    parent: pulumi.ComponentResource,
    name: str,
    labels: Mapping[str, str],
    replicas: int,
    digest: str,
    pod: core.PodSpecArgs,
    place: Place,
    after: Sequence[pulumi.Resource],
    strategy: apps.DeploymentStrategyArgs = ONE_BY_ONE,
) -> kubernetes.apps.v1.Deployment:
    """Return a Deployment, made with its disruption budget after all that a process needs at its start.

    Another `digest` is another pod, which takes the place of the former as `strategy` says.
    """
    selector = meta.LabelSelectorArgs(match_labels=labels)
    if replicas > 1:
        kubernetes.policy.v1.PodDisruptionBudget(
            place.own(name),
            metadata=place.metadata(name, labels),
            spec=policy.PodDisruptionBudgetSpecArgs(
                min_available=1,
                selector=selector,
                # While the broker, or Redis, is away no process is ready; a node may be drained all the same.
                unhealthy_pod_eviction_policy="AlwaysAllow",
            ),
            opts=part(parent),
        )
    return kubernetes.apps.v1.Deployment(
        place.own(name),
        metadata=place.metadata(name, labels),
        spec=apps.DeploymentSpecArgs(
            replicas=replicas,
            progress_deadline_seconds=PROGRESS_SECONDS,
            strategy=strategy,
            selector=selector,
            template=core.PodTemplateSpecArgs(
                metadata=meta.ObjectMetaArgs(labels={**LABELS, **labels}, annotations={CONFIGURATION: digest}),
                spec=pod,
            ),
        ),
        opts=part(parent, after),
    )


def pod(
    labels: Mapping[str, str],
    containers: list[core.ContainerArgs],
    volumes: list[core.VolumeArgs],
    *,
    first: list[core.ContainerArgs] | None = None,
    account: str | None = None,
    grace: int = GRACE_SECONDS,
    once: bool = False,
    scratch: str = "64Mi",
) -> core.PodSpecArgs:
    """Return a pod without privileges. `first` run to their end before the others; `account` may use the API server.

    `grace` is how many seconds it may take to end. What is to run `once` is not started again when it has ended.
    `scratch` is the size of the folder for temporary files.
    """
    return core.PodSpecArgs(
        service_account_name=account,
        restart_policy="Never" if once else None,
        automount_service_account_token=account is not None,
        enable_service_links=False,
        termination_grace_period_seconds=grace,
        security_context=core.PodSecurityContextArgs(
            run_as_non_root=True,
            run_as_user=NOBODY,
            run_as_group=NOBODY,
            fs_group=NOBODY,
            seccomp_profile=core.SeccompProfileArgs(type="RuntimeDefault"),
        ),
        # A standby on the leader's node would go with it; better there than nowhere.
        topology_spread_constraints=[
            core.TopologySpreadConstraintArgs(
                max_skew=1,
                topology_key=key,
                when_unsatisfiable="ScheduleAnyway",
                label_selector=meta.LabelSelectorArgs(match_labels=labels),
            )
            for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ],
        init_containers=first,
        containers=containers,
        volumes=[*volumes, core.VolumeArgs(name="tmp", empty_dir=core.EmptyDirVolumeSourceArgs(size_limit=scratch))],
    )


class PodSettings(Protocol):
    """What the settings of all such pods have."""

    @property
    def pull_policy(self) -> str: ...

    @property
    def resources(self) -> Mapping[str, Mapping[str, str]]: ...


def container(
    name: str,
    image: str,
    pods: PodSettings,
    command: list[str],
    places: Mapping[str, str],
    **more: Any,
) -> core.ContainerArgs:
    """Return a container without privileges, which writes to its scratch folder only, and to what is in `WRITTEN`.

    `places` has the volume at each path, and `more` what else the container has.
    """
    return core.ContainerArgs(
        name=name,
        image=image,
        image_pull_policy=pods.pull_policy,
        command=command,
        resources=core.ResourceRequirementsArgs(
            requests=pods.resources.get("requests"), limits=pods.resources.get("limits")
        ),
        security_context=core.SecurityContextArgs(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=core.CapabilitiesArgs(drop=["ALL"]),
        ),
        volume_mounts=[
            core.VolumeMountArgs(name=volume, mount_path=path, read_only=volume not in WRITTEN)
            for path, volume in {**places, SCRATCH: "tmp"}.items()
        ],
        **more,
    )


def probe(*, period: int, failures: int, **how: Any) -> core.ProbeArgs:
    """Return a probe that looks every `period` seconds, with as long for an answer as a busy process may need."""
    return core.ProbeArgs(period_seconds=period, timeout_seconds=5, failure_threshold=failures, **how)


def probes(port: str, alive: str, *, start: int, scheme: str | None = None) -> dict[str, core.ProbeArgs]:
    """Return the probes of a process that answers over HTTP, and has `start` seconds until it does.

    Only that for readiness asks for broker or Redis: a process that waits for one is not helped by a restart.
    """

    def asking(path: str, period: int, failures: int) -> core.ProbeArgs:
        return probe(
            http_get=core.HTTPGetActionArgs(path=path, port=port, scheme=scheme), period=period, failures=failures
        )

    return {
        "startup_probe": asking(alive, 1, start),
        "liveness_probe": asking(alive, 10, 6),
        "readiness_probe": asking("/readyz", 2, 3),
    }


def config_map(volume: str, name: str) -> core.VolumeArgs:
    return core.VolumeArgs(name=volume, config_map=core.ConfigMapVolumeSourceArgs(name=name))


def secret(volume: str, name: str, *keys: str) -> core.VolumeArgs:
    """Return the volume with a Secret; with `keys`, with these of it only."""
    items = [core.KeyToPathArgs(key=key, path=key) for key in keys] or None
    source = core.SecretVolumeSourceArgs(secret_name=name, default_mode=0o440, items=items)
    return core.VolumeArgs(name=volume, secret=source)
