"""What the relay has on a Kubernetes cluster, in a namespace of its own: pools that use it come and go."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as kubernetes

from osrdyne_infra.cluster.namespace import Namespace
from osrdyne_infra.cluster.network_policies import RelayPolicies
from osrdyne_infra.configuration import StackSettings
from osrdyne_infra.relay.nodes import RelayNodes
from osrdyne_infra.relay.redis import RelayRedis
from osrdyne_infra.relay.settings import NAMESPACE


class RelayOnCluster:
    """Redis first, then the nodes. `address` is that of Redis, and `ready` is there once it answers."""

    def __init__(self, settings: StackSettings, provider: kubernetes.Provider) -> None:
        cluster, relay = settings.cluster, settings.relay
        assert cluster is not None
        assert relay is not None
        name = cluster.pool_namespace(NAMESPACE)
        place = Namespace(name, cluster.pod_security, relay.node().grace, provider).place
        daemons = {pool: cluster.pool_namespace(pool) for pool in relay.pools}
        policies = RelayPolicies(daemons, relay.bucket, place, provider)
        redis = RelayRedis(relay, name, place, [policies], provider)
        RelayNodes(relay, cluster.daemon, redis.address, place, [redis], provider)
        self.address = redis.address
        self.ready: pulumi.Resource = redis
