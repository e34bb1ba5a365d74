"""What pods may connect to.

Those of a pool: the broker, names, the API server for daemons, and what is configured. Those of the relay: the nodes
its Redis, which only they and the daemons of its pools reach.

Everything in a pool's namespace that is neither a daemon nor redo nor a pipeline counts as a worker. No connection to a
worker is allowed, and to a daemon only those that read its metrics. Clusters let through what a node itself asks
(probes) in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.meta import v1 as meta
from pulumi_kubernetes.networking import v1 as networking

from osrdyne_infra.cluster.access import Place, part
from osrdyne_infra.cluster.settings import NetworkAccess
from osrdyne_infra.configuration import BrokerAddress
from osrdyne_infra.jobs import redo_deployment
from osrdyne_infra.ordering import inside
from osrdyne_infra.pipeline import cron_job
from osrdyne_infra.pipeline.settings import PipelinePlace
from osrdyne_infra.pool import daemon_deployment
from osrdyne_infra.pool.config import STATUS_PORT
from osrdyne_infra.relay.settings import NODES, PORT, REDIS, REDIS_PORT

#: Ports of addresses that name none.
PORTS = {"amqp": 5672, "amqps": 5671, "http": 80, "https": 443}
#: Where an object store is that the settings give no address of.
AMAZON = "https://s3.amazonaws.com"
#: An API server's port at its Service, and its usual own one: policies see either.
API_SERVER_PORTS = (443, 6443)


class NetworkPolicies(pulumi.ComponentResource):
    """The policies of one pool, for its daemons, for redo, for its pipeline, and for all other pods of its namespace.

    `database_port` is that of the server that holds the pool's jobs, None for a pool without jobs. `relay` is the
    namespace of the relay, where the pool's workers poll there; `pipeline` is the pool's, None where it has none.
    """

    def __init__(
        self,
        pool: str,
        access: NetworkAccess,
        broker: BrokerAddress,
        database_port: int | None,
        relay: str | None,
        pipeline: PipelinePlace | None,
        place: Place,
        parent: pulumi.ComponentResource,
    ) -> None:
        super().__init__("osrdyne:kubernetes:NetworkPolicies", place.own(pool), None, inside(parent))
        amqp, management = _port(broker.amqp), _port(broker.inside_management or broker.management)
        names = _names()
        of_daemon = daemon_deployment.labels(pool)
        _policy(
            self,
            f"{pool}-daemon",
            place,
            meta.LabelSelectorArgs(match_labels=of_daemon),
            ingress=_readers(access),
            egress=[
                names,
                _to(_peers(access.broker), amqp, management),
                _to(_peers(access.api_server), *API_SERVER_PORTS),
                *([_to(_peers(relay), REDIS_PORT)] if relay else []),
            ],
        )
        known = [of_daemon["app.kubernetes.io/name"]]
        needed = [names, _to(_peers(access.broker), amqp)]
        if pipeline is not None:
            of_pipeline = cron_job.labels(pool)
            known.append(of_pipeline["app.kubernetes.io/name"])
            # Policies know no names, so the pipeline reaches the port of its object store anywhere.
            store = [_to(None, _port(pipeline.s3_endpoint or AMAZON))] if pipeline.lake else []
            selector = meta.LabelSelectorArgs(match_labels=of_pipeline)
            _policy(self, f"{pool}-pipeline", place, selector, egress=[*needed, *store])
        if database_port is not None:
            needed.append(_to(_peers(access.database), database_port))
            of_redo = redo_deployment.labels(pool)
            known.append(of_redo["app.kubernetes.io/name"])
            _policy(self, f"{pool}-redo", place, meta.LabelSelectorArgs(match_labels=of_redo), egress=needed)
        others = meta.LabelSelectorRequirementArgs(key="app.kubernetes.io/name", operator="NotIn", values=known)
        own = [networking.NetworkPolicyEgressRuleArgs(to=_peers(access.workers))] if access.workers else []
        _policy(
            self, f"{pool}-workers", place, meta.LabelSelectorArgs(match_expressions=[others]), egress=[*needed, *own]
        )
        self.register_outputs({})


class RelayPolicies(pulumi.ComponentResource):
    """The policies of the relay.

    `daemons` has the namespace of each pool whose workers poll there. `bucket` is the address of the server that has
    the data streams, None without one. Policies know no names, so nodes reach its port anywhere.
    """

    def __init__(
        self, daemons: Mapping[str, str], bucket: str | None, place: Place, parent: pulumi.ComponentResource
    ) -> None:
        super().__init__("osrdyne:kubernetes:RelayPolicies", place.own("relay"), None, inside(parent))
        nodes, redis = meta.LabelSelectorArgs(match_labels=NODES), meta.LabelSelectorArgs(match_labels=REDIS)
        allowed = [networking.NetworkPolicyPeerArgs(pod_selector=nodes)]
        for pool, namespace in daemons.items():
            [peer] = _peers(namespace)
            peer.pod_selector = meta.LabelSelectorArgs(match_labels=daemon_deployment.labels(pool))
            allowed.append(peer)
        _policy(
            self,
            "relay-redis",
            place,
            redis,
            ingress=[networking.NetworkPolicyIngressRuleArgs(from_=allowed, ports=_ports(REDIS_PORT))],
        )
        _policy(
            self,
            "relay",
            place,
            nodes,
            ingress=[networking.NetworkPolicyIngressRuleArgs(ports=_ports(PORT))],
            egress=[
                _names(),
                _to([networking.NetworkPolicyPeerArgs(pod_selector=redis)], REDIS_PORT),
                *([_to(None, _port(bucket))] if bucket else []),
            ],
        )
        self.register_outputs({})


def _policy(
    parent: pulumi.ComponentResource, name: str, place: Place, selector: meta.LabelSelectorArgs, **rules: Any
) -> None:
    """Let the pods that are selected have the connections of the rules, `ingress` and `egress`, and no others."""
    kubernetes.networking.v1.NetworkPolicy(
        place.own(name),
        metadata=place.metadata(name),
        spec=networking.NetworkPolicySpecArgs(pod_selector=selector, policy_types=["Ingress", "Egress"], **rules),
        opts=part(parent),
    )


def _to(peers: list[networking.NetworkPolicyPeerArgs] | None, *ports: int) -> networking.NetworkPolicyEgressRuleArgs:
    """Return the rule of connections to ports of peers, or of all where these are None."""
    return networking.NetworkPolicyEgressRuleArgs(to=peers, ports=_ports(*ports))


def _names() -> networking.NetworkPolicyEgressRuleArgs:
    return networking.NetworkPolicyEgressRuleArgs(ports=_ports(53, protocols=("UDP", "TCP")))


def _readers(access: NetworkAccess) -> list[networking.NetworkPolicyIngressRuleArgs]:
    if not access.monitoring_namespace:
        return []
    readers = _peers(access.monitoring_namespace)
    return [networking.NetworkPolicyIngressRuleArgs(from_=readers, ports=_ports(STATUS_PORT))]


def _peers(where: str | tuple[str, ...]) -> list[networking.NetworkPolicyPeerArgs]:
    """Return peers: all pods of a namespace, or ranges of addresses."""
    if isinstance(where, str):
        chosen = meta.LabelSelectorArgs(match_labels={"kubernetes.io/metadata.name": where})
        return [networking.NetworkPolicyPeerArgs(namespace_selector=chosen)]
    return [networking.NetworkPolicyPeerArgs(ip_block=networking.IPBlockArgs(cidr=cidr)) for cidr in where]


def _port(address: str) -> int:
    split = urlsplit(address)
    return split.port or PORTS[split.scheme]


def _ports(*numbers: int, protocols: Sequence[str] = ("TCP",)) -> list[networking.NetworkPolicyPortArgs]:
    return [
        networking.NetworkPolicyPortArgs(protocol=protocol, port=number) for number in numbers for protocol in protocols
    ]
