"""The Redis of the relay: one process without a disk, for the relay alone.

A restart of it loses its data, which nodes and callers notice. So it has no probe that would end it. A changed setting
or password replaces it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from urllib.parse import quote

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.apps.v1 import DeploymentSpecArgs, DeploymentStrategyArgs
from pulumi_kubernetes.core.v1 import (
    ContainerArgs,
    ContainerPortArgs,
    PodTemplateSpecArgs,
    ProbeArgs,
    ServicePortArgs,
    ServiceSpecArgs,
    TCPSocketActionArgs,
)
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs

from osrdyne_infra.cluster import replicated
from osrdyne_infra.cluster.access import LABELS, Place, part
from osrdyne_infra.password import Password
from osrdyne_infra.pool.config import secret
from osrdyne_infra.relay.settings import REDIS, REDIS_PORT, RelayPlace
from osrdyne_relay.redis import server as redis_server

#: Name of its objects, and of the Service by which it is reached.
NAME = "relay-redis"
_CONFIGURATION, _USERS = "/etc/redis/settings", "/etc/redis/users"


class RelayRedis(pulumi.ComponentResource):
    """Deployment, Service, settings and the Secret with its users. `address` is secret: that of nodes and daemons."""

    def __init__(
        self,
        relay: RelayPlace,
        namespace: str,
        place: Place,
        after: Sequence[pulumi.Resource],
        provider: kubernetes.Provider,
    ) -> None:
        super().__init__("osrdyne:kubernetes:RelayRedis", NAME, None, pulumi.ResourceOptions(provider=provider))
        password = Password(NAME, relay.rotate, pulumi.ResourceOptions(parent=self)).password
        host = f"{NAME}.{namespace}.svc:{REDIS_PORT}"
        address = password.apply(lambda word: f"redis://{relay.prefix}:{quote(word, safe='')}@{host}/0")
        self.address: pulumi.Output[str] = pulumi.Output.secret(address)
        settings = f"{redis_server.settings()}port {REDIS_PORT}\ndir {replicated.SCRATCH}\naclfile {_USERS}/users.acl\n"
        made: list[pulumi.Resource] = [
            kubernetes.core.v1.ConfigMap(
                NAME, metadata=place.metadata(NAME, REDIS), data={"redis.conf": settings}, opts=part(self)
            ),
            secret(
                NAME,
                {"users.acl": pulumi.Output.secret(password.apply(lambda word: redis_server.acl(relay.prefix, word)))},
                place,
                part(self),
            ),
        ]
        volumes = [replicated.config_map("settings", NAME), replicated.secret("users", NAME)]
        digest = hashlib.sha256(f"{settings}\0{relay.rotate}\0{relay.prefix}".encode()).hexdigest()[:32]
        self.made = kubernetes.apps.v1.Deployment(
            NAME,
            metadata=place.metadata(NAME, REDIS),
            spec=DeploymentSpecArgs(
                replicas=1,
                progress_deadline_seconds=replicated.PROGRESS,
                # Two at once would share the calls between them.
                strategy=DeploymentStrategyArgs(type="Recreate"),
                selector=LabelSelectorArgs(match_labels=REDIS),
                template=PodTemplateSpecArgs(
                    metadata=ObjectMetaArgs(labels={**LABELS, **REDIS}, annotations={replicated.CONFIGURATION: digest}),
                    spec=replicated.pod(REDIS, [_container(relay)], volumes),
                ),
            ),
            opts=part(self, [*made, *after]),
        )
        kubernetes.core.v1.Service(
            NAME,
            metadata=place.metadata(NAME, REDIS),
            spec=ServiceSpecArgs(
                selector=REDIS, ports=[ServicePortArgs(name="redis", port=REDIS_PORT, target_port="redis")]
            ),
            opts=part(self, [self.made]),
        )
        self.register_outputs({})


def _container(relay: RelayPlace) -> ContainerArgs:
    probe = ProbeArgs(
        tcp_socket=TCPSocketActionArgs(port="redis"), period_seconds=5, timeout_seconds=5, failure_threshold=3
    )
    return ContainerArgs(
        name="redis",
        image=relay.redis.image,
        image_pull_policy=relay.redis.pull_policy,
        command=[*relay.redis.command, f"{_CONFIGURATION}/redis.conf"],
        ports=[ContainerPortArgs(name="redis", container_port=REDIS_PORT)],
        resources=replicated.resources(relay.redis.resources),
        security_context=replicated.security(),
        readiness_probe=probe,
        volume_mounts=replicated.mounts({_CONFIGURATION: "settings", _USERS: "users"}),
    )
