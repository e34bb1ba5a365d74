"""What pods may connect to.

Those of a pool: the broker, names, the API server for daemons, and what is configured. Those of the relay: the nodes
its Redis, which only they and the daemons of its pools reach.

Everything in a pool's namespace that is neither a daemon nor redo counts as a worker. No connection to a worker is
allowed, and to a daemon only those that read its metrics. Clusters let through what a node itself asks (probes) in any
case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, LabelSelectorRequirementArgs
from pulumi_kubernetes.networking.v1 import (
    IPBlockArgs,
    NetworkPolicyEgressRuleArgs,
    NetworkPolicyIngressRuleArgs,
    NetworkPolicyPeerArgs,
    NetworkPolicyPortArgs,
    NetworkPolicySpecArgs,
)

from osrdyne_infra.cluster.access import Place, part
from osrdyne_infra.cluster.settings import NetworkAccess
from osrdyne_infra.configuration import BrokerAddress
from osrdyne_infra.jobs import redo_deployment
from osrdyne_infra.pool import daemon_deployment
from osrdyne_infra.pool.config import STATUS_PORT
from osrdyne_infra.relay.settings import NODES, PORT, REDIS, REDIS_PORT

#: Ports of addresses that name none.
PORTS = {"amqp": 5672, "amqps": 5671, "http": 80, "https": 443}
#: An API server's port at its Service, and its usual own one: policies see either.
API_SERVER_PORTS = (443, 6443)


class NetworkPolicies(pulumi.ComponentResource):
    """The policies of one pool, for its daemons, for redo, and for all other pods of its namespace.

    `database_port` is that of the server that holds the pool's jobs, None for a pool without jobs. `relay` is the
    namespace of the relay, where the pool's workers poll there.
    """

    def __init__(
        self,
        pool: str,
        access: NetworkAccess,
        broker: BrokerAddress,
        database_port: int | None,
        relay: str | None,
        place: Place,
        provider: kubernetes.Provider,
    ) -> None:
        super().__init__("osrdyne:kubernetes:NetworkPolicies", pool, None, pulumi.ResourceOptions(provider=provider))
        amqp, management = _port(broker.amqp), _port(broker.inside_management or broker.management)
        names = NetworkPolicyEgressRuleArgs(ports=_ports(53, protocols=("UDP", "TCP")))
        kubernetes.networking.v1.NetworkPolicy(
            f"{pool}-daemon",
            metadata=place.metadata(f"{pool}-daemon"),
            spec=NetworkPolicySpecArgs(
                pod_selector=LabelSelectorArgs(match_labels=daemon_deployment.labels(pool)),
                policy_types=["Ingress", "Egress"],
                ingress=_readers(access),
                egress=[
                    names,
                    NetworkPolicyEgressRuleArgs(to=_peers(access.broker), ports=_ports(amqp, management)),
                    NetworkPolicyEgressRuleArgs(to=_peers(access.api_server), ports=_ports(*API_SERVER_PORTS)),
                    *([NetworkPolicyEgressRuleArgs(to=_peers(relay), ports=_ports(REDIS_PORT))] if relay else []),
                ],
            ),
            opts=part(self),
        )
        known = [daemon_deployment.labels(pool)["app.kubernetes.io/name"]]
        needed = [names, NetworkPolicyEgressRuleArgs(to=_peers(access.broker), ports=_ports(amqp))]
        if database_port is not None:
            needed.append(NetworkPolicyEgressRuleArgs(to=_peers(access.database), ports=_ports(database_port)))
            known.append(redo_deployment.labels(pool)["app.kubernetes.io/name"])
            kubernetes.networking.v1.NetworkPolicy(
                f"{pool}-redo",
                metadata=place.metadata(f"{pool}-redo"),
                spec=NetworkPolicySpecArgs(
                    pod_selector=LabelSelectorArgs(match_labels=redo_deployment.labels(pool)),
                    policy_types=["Ingress", "Egress"],
                    egress=needed,
                ),
                opts=part(self),
            )
        others = LabelSelectorRequirementArgs(key="app.kubernetes.io/name", operator="NotIn", values=known)
        kubernetes.networking.v1.NetworkPolicy(
            f"{pool}-workers",
            metadata=place.metadata(f"{pool}-workers"),
            spec=NetworkPolicySpecArgs(
                pod_selector=LabelSelectorArgs(match_expressions=[others]),
                policy_types=["Ingress", "Egress"],
                egress=[
                    *needed,
                    *([NetworkPolicyEgressRuleArgs(to=_peers(access.workers))] if access.workers else []),
                ],
            ),
            opts=part(self),
        )
        self.register_outputs({})


class RelayPolicies(pulumi.ComponentResource):
    """The policies of the relay.

    `daemons` has the namespace of each pool whose workers poll there. `bucket` is the address of the server that has
    the data streams, None without one. Policies know no names, so nodes reach its port anywhere.
    """

    def __init__(
        self, daemons: Mapping[str, str], bucket: str | None, place: Place, provider: kubernetes.Provider
    ) -> None:
        super().__init__("osrdyne:kubernetes:RelayPolicies", "relay", None, pulumi.ResourceOptions(provider=provider))
        nodes, redis = LabelSelectorArgs(match_labels=NODES), LabelSelectorArgs(match_labels=REDIS)
        inside = [NetworkPolicyPeerArgs(pod_selector=nodes)]
        for pool, namespace in daemons.items():
            [peer] = _peers(namespace)
            peer.pod_selector = LabelSelectorArgs(match_labels=daemon_deployment.labels(pool))
            inside.append(peer)
        kubernetes.networking.v1.NetworkPolicy(
            "relay-redis",
            metadata=place.metadata("relay-redis"),
            spec=NetworkPolicySpecArgs(
                pod_selector=redis,
                policy_types=["Ingress", "Egress"],
                ingress=[NetworkPolicyIngressRuleArgs(from_=inside, ports=_ports(REDIS_PORT))],
            ),
            opts=part(self),
        )
        kubernetes.networking.v1.NetworkPolicy(
            "relay",
            metadata=place.metadata("relay"),
            spec=NetworkPolicySpecArgs(
                pod_selector=nodes,
                policy_types=["Ingress", "Egress"],
                ingress=[NetworkPolicyIngressRuleArgs(ports=_ports(PORT))],
                egress=[
                    NetworkPolicyEgressRuleArgs(ports=_ports(53, protocols=("UDP", "TCP"))),
                    NetworkPolicyEgressRuleArgs(
                        to=[NetworkPolicyPeerArgs(pod_selector=redis)], ports=_ports(REDIS_PORT)
                    ),
                    *([NetworkPolicyEgressRuleArgs(ports=_ports(_port(bucket)))] if bucket else []),
                ],
            ),
            opts=part(self),
        )
        self.register_outputs({})


def _readers(access: NetworkAccess) -> list[NetworkPolicyIngressRuleArgs]:
    if not access.monitoring_namespace:
        return []
    readers = _peers(access.monitoring_namespace)
    return [NetworkPolicyIngressRuleArgs(from_=readers, ports=_ports(STATUS_PORT))]


def _peers(where: str | tuple[str, ...]) -> list[NetworkPolicyPeerArgs]:
    """Return peers: all pods of a namespace, or ranges of addresses."""
    if isinstance(where, str):
        chosen = LabelSelectorArgs(match_labels={"kubernetes.io/metadata.name": where})
        return [NetworkPolicyPeerArgs(namespace_selector=chosen)]
    return [NetworkPolicyPeerArgs(ip_block=IPBlockArgs(cidr=cidr)) for cidr in where]


def _port(address: str) -> int:
    split = urlsplit(address)
    return split.port or PORTS[split.scheme]


def _ports(*numbers: int, protocols: Sequence[str] = ("TCP",)) -> list[NetworkPolicyPortArgs]:
    return [NetworkPolicyPortArgs(protocol=protocol, port=number) for number in numbers for protocol in protocols]
