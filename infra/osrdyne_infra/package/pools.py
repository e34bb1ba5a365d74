"""The components of the package: a vhost with all of its pools, and a broker on a cluster."""

from __future__ import annotations

from functools import partial

import pulumi

from osrdyne_infra.components.broker import Broker
from osrdyne_infra.components.pool import Pool
from osrdyne_infra.configuration import BrokerStack, StackSettings
from osrdyne_infra.jobs_database import JobsDatabase
from osrdyne_infra.ordering import outer

Output = pulumi.Output


class Pools(pulumi.ComponentResource):
    """A `Broker` and a `Pool` for each of the pools of the settings, with cluster, databases and relay if they say so.

    What pools of a vhost have in common comes with the last of them: one component has all, so that none is left out.
    """

    #: Name of the vhost, known once it is there.
    vhost: Output[str]
    #: Secret, by pool and role: where clients, workers and daemons find the broker.
    addresses: Output[dict[str, dict[str, str]]]
    #: Secret, by pool and role: where programs find the database of jobs.
    databases: Output[dict[str, dict[str, str]]]
    #: By pool: its namespace on the cluster.
    namespaces: dict[str, str]

    def __init__(self, name: str, settings: StackSettings, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("osrdyne:index:Pools", name, None, outer(opts))
        inside = pulumi.ResourceOptions(parent=self)
        cluster = relay = None
        if settings.cluster is not None:
            # Pulumi's Kubernetes library takes seconds to import, which other programs need not wait for.
            from osrdyne_infra.components.cluster import ClusterProvider
            from osrdyne_infra.components.relay import Relay

            cluster = ClusterProvider(f"{name}-cluster", settings, inside)
            relay = Relay(f"{name}-relay", settings, cluster, inside) if settings.relay else None
        broker = Broker(name, settings, inside)
        # A program may have pools of one name in two of these.
        part = partial("{}-{}".format, name)
        databases = {
            pool.name: JobsDatabase(part(pool.name), settings, inside, pool=pool.name)
            for pool in settings.pools
            if pool.jobs is not None
        }
        made = {
            pool: Pool(part(pool), broker, inside, pool=pool, cluster=cluster, jobs=databases.get(pool), relay=relay)
            for pool in [declared.name for declared in settings.pools]
        }
        self.vhost = broker.vhost
        self.addresses = Output.secret(Output.all(**{pool: component.addresses for pool, component in made.items()}))
        found = {pool: Output.all(**database.addresses) for pool, database in databases.items()}
        # Of nothing, `all` is a list.
        self.databases = Output.secret(Output.all(**found) if found else {})
        self.namespaces = {pool: settings.cluster.pool_namespace(pool) for pool in made} if settings.cluster else {}
        self.register_outputs({name: getattr(self, name) for name in Pools.__annotations__})


class BrokerOnCluster(pulumi.ComponentResource):
    """A `DeployedBroker`, on a cluster that this component reaches by itself."""

    #: Addresses of its management API, and of AMQP, in the cluster.
    management: Output[str]
    amqp: Output[str]

    def __init__(self, name: str, settings: BrokerStack, opts: pulumi.ResourceOptions | None = None) -> None:
        from osrdyne_infra.components.cluster import ClusterProvider
        from osrdyne_infra.components.deployed_broker import DeployedBroker

        super().__init__("osrdyne:index:BrokerOnCluster", name, None, outer(opts))
        inside = pulumi.ResourceOptions(parent=self)
        made = DeployedBroker(name, settings, ClusterProvider(f"{name}-cluster", settings, inside), inside)
        self.management, self.amqp = made.management, made.amqp
        self.register_outputs({"management": self.management, "amqp": self.amqp})
