"""The stack, as a table of contents: what is configured, what there is, what comes out. Components check it first."""

from __future__ import annotations

import signal
import sys

import pulumi

import osrdyne_infra
from osrdyne_infra import configuration
from osrdyne_infra.cluster import digests
from osrdyne_infra.configuration import BrokerStack, StackSettings
from osrdyne_pool.settings_file import pool_table

# So ends a program of which a resource failed: the reason has been said, and a traceback would only hide it.
signal.signal(signal.SIGINT, lambda *_: sys.exit(1))


def pools(settings: StackSettings) -> None:
    """Pools on a broker that is there: what each has on the broker, and on a cluster if there is one."""
    cluster = osrdyne_infra.ClusterProvider("cluster", settings) if settings.cluster else None
    broker = osrdyne_infra.Broker("vhost", settings)
    databases = {
        pool.name: osrdyne_infra.JobsDatabase(pool.name, settings) for pool in settings.pools if pool.jobs is not None
    }
    relay = osrdyne_infra.Relay("relay", settings, cluster) if cluster and settings.relay else None
    made = {
        pool.name: osrdyne_infra.Pool(pool.name, broker, cluster=cluster, jobs=databases.get(pool.name), relay=relay)
        for pool in settings.pools
    }

    pulumi.export("vhost", settings.vhost)
    pulumi.export("pools", {pool.name: pool_table(pool) for pool in settings.pools})
    pulumi.export("statistics_interval", settings.broker.statistics_interval)
    pulumi.export("addresses", {name: pool.addresses for name, pool in made.items()})
    if databases:
        pulumi.export(
            "databases", {pool: pulumi.Output.secret(database.addresses) for pool, database in databases.items()}
        )
    if settings.cluster:
        pulumi.export("namespaces", {pool: settings.cluster.pool_namespace(pool) for pool in made})


def a_broker(settings: BrokerStack) -> None:
    """A broker on a cluster, for the pools of another stack."""
    made = osrdyne_infra.DeployedBroker("broker", settings, osrdyne_infra.ClusterProvider("cluster", settings))
    pulumi.export("management", made.management)
    pulumi.export("amqp", made.amqp)


if (said := digests.warning(pulumi.runtime.get_config_env())) is not None:
    pulumi.log.warn(said)
given = configuration.parse(pulumi.runtime.get_config_env(), frozenset(pulumi.runtime.get_config_secret_keys_env()))
if isinstance(given, BrokerStack):
    a_broker(given)
else:
    pools(given)
