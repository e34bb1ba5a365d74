"""The nodes of the relay, replaced one after the other, and the Service by which workers and callers reach them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.core import v1 as core

from osrdyne_infra.cluster import replicated
from osrdyne_infra.cluster.access import Place, part
from osrdyne_infra.cluster.settings import DaemonPods
from osrdyne_infra.pool.config import certificate, secret
from osrdyne_infra.relay.settings import (
    ADDRESS_FILE,
    CERTIFICATE,
    CREDENTIALS,
    NODES,
    PORT,
    SETTINGS,
    STREAMS,
    RelayPlace,
)
from osrdyne_runtime.settings_text import to_toml

#: Name of their objects, and of the Service.
NAME = "relay"
#: Seconds for which a worker's requests go to the same node, unless that is gone.
_SAME_NODE_SECONDS = 3 * 3600


def declare(
    relay: RelayPlace,
    daemon: DaemonPods,
    address: pulumi.Output[str],
    place: Place,
    after: Sequence[pulumi.Resource],
    parent: pulumi.ComponentResource,
) -> None:
    """Declare Deployment, Service, settings and Secrets. `address` is that of Redis."""
    settings = to_toml({"relay": relay.node_settings()})
    # A node reads clients and certificate again when they change; for all else it is replaced.
    access = to_toml({"clients": relay.clients})
    made: list[pulumi.Resource] = [
        kubernetes.core.v1.ConfigMap(
            place.own(NAME),
            metadata=place.metadata(NAME, NODES),
            data={"relay.toml": settings, "access.toml": access},
            opts=part(parent),
        ),
        secret(NAME, {ADDRESS_FILE: address}, place, part(parent)),
    ]
    volumes = [replicated.config_map("settings", NAME), replicated.secret("credentials", NAME)]
    places = {SETTINGS: "settings", CREDENTIALS: "credentials"}
    if relay.certificate:
        made.append(secret(f"{NAME}-certificate", _certificate(relay), place, part(parent)))
        volumes.append(replicated.secret("certificate", f"{NAME}-certificate"))
        places[CERTIFICATE] = "certificate"
    if relay.bucket:
        made.append(secret(f"{NAME}-streams", _streams(relay), place, part(parent)))
        volumes.append(replicated.secret("streams", f"{NAME}-streams"))
        places[STREAMS] = "streams"
    pods = relay.nodes
    digest = hashlib.sha256(json.dumps([settings, relay.rotate]).encode()).hexdigest()[:32]
    running = replicated.deployment(
        parent,
        NAME,
        NODES,
        pods.replicas,
        digest,
        replicated.pod(NODES, [_container(relay, pods.image or daemon.image, places)], volumes, grace=_grace(relay)),
        place,
        [*made, *after],
    )
    outside = pods.service != "ClusterIP"
    kubernetes.core.v1.Service(
        place.own(NAME),
        metadata=place.metadata(NAME, NODES, pods.annotations),
        spec=core.ServiceSpecArgs(
            type=pods.service,
            selector=NODES,
            ports=[core.ServicePortArgs(name="node", port=PORT, target_port="node")],
            # A worker answers at the node that gave it the request.
            session_affinity="ClientIP",
            session_affinity_config=core.SessionAffinityConfigArgs(
                client_ip=core.ClientIPConfigArgs(timeout_seconds=_SAME_NODE_SECONDS)
            ),
            # Otherwise all that comes through one machine of the cluster would have that one's address.
            external_traffic_policy="Local" if outside else None,
        ),
        opts=part(parent, [running]),
    )


def _certificate(relay: RelayPlace) -> dict[str, pulumi.Output[str]]:
    texts = {"tls.crt": certificate(relay.certificate, "relay", "certificate")}
    if relay.clients_cacertfile:
        texts["clients-ca.pem"] = certificate(relay.clients_cacertfile, "relay", "clients_cacertfile")
    return {
        **{name: pulumi.Output.from_input(text) for name, text in texts.items()},
        "tls.key": pulumi.Output.secret(relay.key),
    }


def _streams(relay: RelayPlace) -> dict[str, pulumi.Output[str]]:
    """Return the files of `relay_settings.S3_FILES`. A node reads the keys again when they change."""
    texts = {
        "access_key": pulumi.Output.secret(relay.s3_access_key),
        "secret_key": pulumi.Output.secret(relay.s3_secret_key),
    }
    if relay.streams_cacertfile:
        texts["ca.pem"] = pulumi.Output.from_input(certificate(relay.streams_cacertfile, "relay", "streams_cacertfile"))
    return texts


def _grace(relay: RelayPlace) -> int:
    """Return the seconds that a node may need to end: what it gives to requests in hand, and the rest."""
    return round(relay.node().grace) + replicated.GRACE_SECONDS


def _container(relay: RelayPlace, image: str, places: Mapping[str, str]) -> core.ContainerArgs:
    return replicated.container(
        "node",
        image,
        relay.nodes,
        ["osrdyne", "relay", "serve", "--settings", f"{SETTINGS}/relay.toml", "--json"],
        places,
        ports=[core.ContainerPortArgs(name="node", container_port=PORT)],
        **replicated.probes("node", "/livez", start=60, scheme="HTTPS" if relay.certificate else "HTTP"),
    )
