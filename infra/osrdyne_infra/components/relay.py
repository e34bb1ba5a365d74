"""What the relay has on a Kubernetes cluster, in a namespace of its own: pools that use it come and go."""

from __future__ import annotations

import pulumi

from osrdyne_infra.cluster.namespace import Namespace
from osrdyne_infra.cluster.network_policies import RelayPolicies
from osrdyne_infra.components.cluster import ClusterProvider
from osrdyne_infra.configuration import EXAMPLES, StackSettings
from osrdyne_infra.errors import ConfigurationError
from osrdyne_infra.ordering import outer
from osrdyne_infra.relay import nodes
from osrdyne_infra.relay.redis import RelayRedis
from osrdyne_infra.relay.settings import NAMESPACE


class Relay(pulumi.ComponentResource):
    """The relay of the settings: Redis first, then the nodes."""

    #: Secret: that of Redis, for the daemons of the pools whose workers poll.
    address: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        settings: StackSettings,
        cluster: ClusterProvider,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        given, relay = settings.cluster, settings.relay
        if given is None or relay is None:
            raise ConfigurationError("osrdyne:relay", "is missing", EXAMPLES["relay"])
        super().__init__(
            "osrdyne:index:Relay", name, None, outer(opts, "osrdyne:kubernetes:RelayNodes", providers=[cluster])
        )
        where = given.pool_namespace(NAMESPACE)
        place = Namespace(where, given.pod_security, relay.node().grace, self, "relay").place
        daemons = {pool: given.pool_namespace(pool) for pool in relay.pools}
        policies = RelayPolicies(daemons, relay.bucket, place, self)
        redis = RelayRedis(relay, where, place, [policies], self)
        nodes.declare(relay, given.daemon, redis.address, place, [redis], self)
        self.address = redis.address
        #: There once Redis answers.
        self.ready: pulumi.Resource = redis
        self.register_outputs({"address": self.address})
