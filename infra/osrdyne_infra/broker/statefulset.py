"""A RabbitMQ of one node, as a plain StatefulSet: enough for staging, and for nothing that must not stop."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.apps import v1 as apps
from pulumi_kubernetes.core import v1 as core
from pulumi_kubernetes.meta import v1 as meta

from osrdyne_infra.broker import credentials as broker_credentials
from osrdyne_infra.broker.settings import BrokerDeployment
from osrdyne_infra.cluster import replicated
from osrdyne_infra.cluster.access import LABELS, Place, part
from osrdyne_infra.configuration import BrokerStack

NAME = "broker"
#: User and group of RabbitMQ in its official image.
RABBITMQ = 999
PORTS: Mapping[str, int] = {"amqp": 5672, "management": 15672, "stream": 5552, "prometheus": 15692}
PLUGINS = ("rabbitmq_management", "rabbitmq_prometheus", "rabbitmq_stream")
#: As a small disk wants it; RabbitMQ's own 512 MiB for the log of quorum queues would fill it.
CONFIGURATION = "raft.wal_max_size_bytes = 64000000\n"
#: RabbitMQ logs a crash with the whole message that it came from: 2 MB of it take 3 GB of memory, without this limit
#: (docs/decisions/0057). Its usual file has no name for a formatter.
ADVANCED = """\
[{rabbit, [{log, [{console, [{enabled, true}, {level, info}, {formatter, {logger_formatter, #{
  chars_limit => 10000, template => [time, " [", level, "] ", pid, " ", msg, "\\n"]
}}}]}]}]}].
"""
#: A pod reads its files at its start: others are another pod.
_DIGEST = hashlib.sha256(f"{CONFIGURATION}{ADVANCED}".encode()).hexdigest()[:32]
_DATA = "/var/lib/rabbitmq"
_LABELS = {"app.kubernetes.io/name": "rabbitmq", "app.kubernetes.io/instance": NAME}


def declare(stack: BrokerStack, place: Place, parent: pulumi.ComponentResource) -> None:
    """Declare a node with a disk, and the Service by which it is reached: `broker` in the stack's namespace."""
    admin = broker_credentials.credentials(stack, place, parent)
    config = kubernetes.core.v1.ConfigMap(
        place.own(NAME),
        metadata=place.metadata(NAME, _LABELS),
        data={
            "enabled_plugins": f"[{','.join(PLUGINS)}].\n",
            "broker.conf": CONFIGURATION,
            "advanced.config": ADVANCED,
        },
        opts=part(parent),
    )
    _service(NAME, place, parent)
    # A node's name has to mean something before it is ready.
    nodes = _service("broker-nodes", place, parent, of_nodes=True)
    kubernetes.apps.v1.StatefulSet(
        place.own(NAME),
        metadata=place.metadata(NAME, _LABELS),
        spec=apps.StatefulSetSpecArgs(
            service_name="broker-nodes",
            replicas=1,
            selector=meta.LabelSelectorArgs(match_labels=_LABELS),
            template=core.PodTemplateSpecArgs(
                metadata=meta.ObjectMetaArgs(
                    labels={**LABELS, **_LABELS}, annotations={replicated.CONFIGURATION: _DIGEST}
                ),
                spec=_pod(stack.deployment),
            ),
            volume_claim_templates=[_claim(stack.deployment)],
        ),
        opts=part(parent, [admin, config, nodes]),
    )


def _service(
    name: str, place: Place, parent: pulumi.ComponentResource, *, of_nodes: bool = False
) -> kubernetes.core.v1.Service:
    ports = [core.ServicePortArgs(name=port, port=number, target_port=port) for port, number in PORTS.items()]
    return kubernetes.core.v1.Service(
        place.own(name),
        # Its endpoint comes with the pod that is made after it.
        metadata=place.metadata(name, _LABELS, {"pulumi.com/skipAwait": "true"}),
        spec=core.ServiceSpecArgs(
            selector=_LABELS,
            ports=ports,
            cluster_ip="None" if of_nodes else None,
            publish_not_ready_addresses=of_nodes,
        ),
        opts=part(parent),
    )


def _pod(deployment: BrokerDeployment) -> core.PodSpecArgs:
    return core.PodSpecArgs(
        automount_service_account_token=False,
        enable_service_links=False,
        # It writes down what it has in memory.
        termination_grace_period_seconds=120,
        security_context=core.PodSecurityContextArgs(
            run_as_non_root=True,
            run_as_user=RABBITMQ,
            run_as_group=RABBITMQ,
            fs_group=RABBITMQ,
            seccomp_profile=core.SeccompProfileArgs(type="RuntimeDefault"),
        ),
        containers=[_container(deployment)],
        volumes=[
            core.VolumeArgs(name="config", config_map=core.ConfigMapVolumeSourceArgs(name=NAME)),
            core.VolumeArgs(
                name="admin",
                secret=core.SecretVolumeSourceArgs(
                    secret_name=broker_credentials.NAME,
                    default_mode=0o440,
                    items=[core.KeyToPathArgs(key=broker_credentials.FILE, path=broker_credentials.FILE)],
                ),
            ),
        ],
    )


def _container(deployment: BrokerDeployment) -> core.ContainerArgs:
    conf = "/etc/rabbitmq/conf.d"
    single = {
        "/etc/rabbitmq/enabled_plugins": ("config", "enabled_plugins"),
        "/etc/rabbitmq/advanced.config": ("config", "advanced.config"),
        f"{conf}/20-broker.conf": ("config", "broker.conf"),
        f"{conf}/30-admin.conf": ("admin", broker_credentials.FILE),
    }
    return core.ContainerArgs(
        name="rabbitmq",
        image=deployment.image,
        image_pull_policy="IfNotPresent",
        ports=[core.ContainerPortArgs(name=port, container_port=number) for port, number in PORTS.items()],
        resources=core.ResourceRequirementsArgs(
            requests=deployment.resources.get("requests"), limits=deployment.resources.get("limits")
        ),
        security_context=core.SecurityContextArgs(
            allow_privilege_escalation=False, capabilities=core.CapabilitiesArgs(drop=["ALL"])
        ),
        startup_probe=_probe(period=2, failures=150),
        readiness_probe=_probe(period=5, failures=3),
        liveness_probe=_probe(period=30, failures=5),
        volume_mounts=[
            core.VolumeMountArgs(name="data", mount_path=_DATA),
            *(
                core.VolumeMountArgs(name=volume, mount_path=path, sub_path=file, read_only=True)
                for path, (volume, file) in single.items()
            ),
        ],
    )


def _probe(*, period: int, failures: int) -> core.ProbeArgs:
    """Return a probe that only connects: RabbitMQ's own checks start a program that needs a good part of a core."""
    return replicated.probe(tcp_socket=core.TCPSocketActionArgs(port="amqp"), period=period, failures=failures)


def _claim(deployment: BrokerDeployment) -> core.PersistentVolumeClaimArgs:
    return core.PersistentVolumeClaimArgs(
        metadata=meta.ObjectMetaArgs(name="data"),
        spec=core.PersistentVolumeClaimSpecArgs(
            access_modes=["ReadWriteOnce"],
            storage_class_name=deployment.storage_class or None,
            resources=core.VolumeResourceRequirementsArgs(requests={"storage": deployment.storage}),
        ),
    )
