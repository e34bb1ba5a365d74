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
from pulumi_kubernetes.apps import v1 as apps
from pulumi_kubernetes.core import v1 as core

from osrdyne_infra.cluster import replicated
from osrdyne_infra.cluster.access import Place, part
from osrdyne_infra.ordering import inside
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
        parent: pulumi.ComponentResource,
    ) -> None:
        super().__init__("osrdyne:kubernetes:RelayRedis", place.own(NAME), None, inside(parent))
        password = Password(place.own(NAME), relay.rotate, pulumi.ResourceOptions(parent=self)).password
        host = f"{NAME}.{namespace}.svc:{REDIS_PORT}"
        address = password.apply(lambda word: f"redis://{relay.prefix}:{quote(word, safe='')}@{host}/0")
        self.address: pulumi.Output[str] = pulumi.Output.secret(address)
        settings = f"{redis_server.settings()}port {REDIS_PORT}\ndir {replicated.SCRATCH}\naclfile {_USERS}/users.acl\n"
        made: list[pulumi.Resource] = [
            kubernetes.core.v1.ConfigMap(
                place.own(NAME), metadata=place.metadata(NAME, REDIS), data={"redis.conf": settings}, opts=part(self)
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
        pod = replicated.pod(REDIS, [_container(relay)], volumes)
        # Two at once would share the calls between them.
        alone = apps.DeploymentStrategyArgs(type="Recreate")
        self.made = replicated.deployment(self, NAME, REDIS, 1, digest, pod, place, [*made, *after], alone)
        kubernetes.core.v1.Service(
            place.own(NAME),
            metadata=place.metadata(NAME, REDIS),
            spec=core.ServiceSpecArgs(
                selector=REDIS, ports=[core.ServicePortArgs(name="redis", port=REDIS_PORT, target_port="redis")]
            ),
            opts=part(self, [self.made]),
        )
        self.register_outputs({})


def _container(relay: RelayPlace) -> core.ContainerArgs:
    return replicated.container(
        "redis",
        relay.redis.image,
        relay.redis,
        [*relay.redis.command, f"{_CONFIGURATION}/redis.conf"],
        {_CONFIGURATION: "settings", _USERS: "users"},
        ports=[core.ContainerPortArgs(name="redis", container_port=REDIS_PORT)],
        readiness_probe=replicated.probe(tcp_socket=core.TCPSocketActionArgs(port="redis"), period=5, failures=3),
    )
