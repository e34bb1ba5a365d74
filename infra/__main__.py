"""The stack, as a table of contents: what is configured, what is checked, what there is, what comes out."""

from __future__ import annotations

import signal
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import pulumi
import pulumi_rabbitmq as rabbitmq

from osrdyne_infra import configuration, preflight
from osrdyne_infra.broker import live
from osrdyne_infra.broker.management import Management
from osrdyne_infra.broker.vhost import Vhost
from osrdyne_infra.cluster import digests
from osrdyne_infra.configuration import BrokerStack, StackSettings
from osrdyne_infra.errors import InfraError
from osrdyne_infra.guard import Guard, StopGuard
from osrdyne_infra.limits import Limits
from osrdyne_infra.mend import Mend
from osrdyne_infra.pool.objects import PoolObjects
from osrdyne_infra.pool.users import PoolUsers

if TYPE_CHECKING:
    from osrdyne_infra.jobs_database import JobsDatabase

# So ends a program of which a resource failed: the reason has been said, and a traceback would only hide it.
signal.signal(signal.SIGINT, lambda *_: sys.exit(1))


def pools(settings: StackSettings) -> None:
    """Pools on a broker that is there: what each has on the broker, and on a cluster if there is one."""
    declared = preflight.topologies(settings)
    if settings.cluster is not None:
        # Only stacks on a cluster wait for its library, which takes a second to import.
        from osrdyne_infra.cluster import live as live_cluster

        live_cluster.check(settings.cluster, list(live_cluster.needed(settings.cluster, settings.workers)))
    broker = Management(
        settings.broker.management, settings.broker.admin, settings.admin_password, settings.broker.cacertfile
    )
    found = live.read(broker, settings.vhost, declared)
    for warning in preflight.warnings(settings, declared, found):
        pulumi.warn(warning)
    preflight.check(settings, declared, found)

    provider = rabbitmq.Provider(
        "broker",
        endpoint=settings.broker.management,
        username=settings.broker.admin,
        password=pulumi.Output.secret(settings.admin_password),
        cacert_file=settings.broker.cacertfile or None,
    )
    vhost = Vhost(settings, [user.name for topology in declared for user in topology.users], provider)
    users = {topology.pool: PoolUsers(settings, topology, vhost, provider) for topology in declared}
    Limits(settings, declared, pulumi.ResourceOptions(depends_on=[vhost, *users.values()]))
    objects = {
        topology.pool: PoolObjects(topology, vhost, preflight.replaced(topology, found), provider)
        for topology in declared
    }
    for topology in declared:
        Mend(settings, topology, found.lost, pulumi.ResourceOptions(depends_on=[objects[topology.pool]]))
    guards = {
        pool: Guard(pool, settings, pool, pulumi.ResourceOptions(depends_on=[*made.queues.values()]))
        for pool, made in objects.items()
    }
    of_vhost = Guard("vhost", settings, "", pulumi.ResourceOptions(depends_on=[vhost]))
    databases = jobs_databases(settings)
    running = on_cluster(settings, users, objects, databases)
    last = [
        StopGuard(pool, settings, pool, pulumi.ResourceOptions(depends_on=[guard, users[pool], *running[pool]]))
        for pool, guard in guards.items()
    ]
    StopGuard("vhost", settings, "", pulumi.ResourceOptions(depends_on=[of_vhost, *last]))

    pulumi.export("vhost", settings.vhost)
    pulumi.export("pools", {pool.name: asdict(pool) for pool in settings.pools})
    pulumi.export("statistics_interval", settings.broker.statistics_interval)
    pulumi.export("addresses", {pool: pulumi.Output.secret(user.addresses) for pool, user in users.items()})
    if databases:
        pulumi.export(
            "databases", {pool: pulumi.Output.secret(database.addresses) for pool, database in databases.items()}
        )


def jobs_databases(settings: StackSettings) -> dict[str, JobsDatabase]:
    """The database of each pool that has jobs."""
    having = [pool for pool in settings.pools if pool.jobs is not None]
    if not having:
        return {}
    # The driver of PostgreSQL is for stacks that need one.
    from osrdyne_infra.jobs_database import JobsDatabase

    return {pool.name: JobsDatabase(settings, pool) for pool in having}


def on_cluster(
    settings: StackSettings,
    users: dict[str, PoolUsers],
    objects: dict[str, PoolObjects],
    databases: dict[str, JobsDatabase],
) -> dict[str, list[pulumi.Resource]]:
    """What each pool has on the cluster; without one, its objects on the broker."""
    if settings.cluster is None:
        return {pool: [made] for pool, made in objects.items()}
    # Pulumi's Kubernetes library takes seconds to import, which other stacks need not wait for.
    from osrdyne_infra.cluster import access as cluster
    from osrdyne_infra.pool.on_cluster import PoolOnCluster

    place = cluster.provider(settings.cluster, adopt=settings.adopt)
    relay = None
    if settings.relay is not None:
        from osrdyne_infra.relay.on_cluster import RelayOnCluster

        relay = RelayOnCluster(settings, place)
    pulumi.export("namespaces", {pool: settings.cluster.pool_namespace(pool) for pool in objects})
    return {
        pool.name: PoolOnCluster(
            settings, pool, users[pool.name], objects[pool.name], databases.get(pool.name), relay, place
        ).parts
        for pool in settings.pools
    }


def a_broker(settings: BrokerStack) -> None:
    """A broker on a cluster, for the pools of another stack."""
    from osrdyne_infra.broker.operator import OperatorBroker
    from osrdyne_infra.broker.statefulset import StatefulSetBroker
    from osrdyne_infra.cluster import access as cluster
    from osrdyne_infra.cluster import live as live_cluster
    from osrdyne_infra.cluster.namespace import Namespace

    live_cluster.check_broker(settings.cluster, settings.deployment)
    provider = cluster.provider(settings.cluster, adopt=settings.adopt)
    namespace = Namespace(settings.cluster.namespace, settings.cluster.pod_security, 0, provider)
    kind = StatefulSetBroker if settings.deployment.kind == "statefulset" else OperatorBroker
    kind(settings, namespace.place, provider)

    pulumi.export("management", f"http://broker.{settings.cluster.namespace}.svc:15672")
    pulumi.export("amqp", f"amqp://broker.{settings.cluster.namespace}.svc:5672")


try:
    if (said := digests.warning(pulumi.runtime.get_config_env())) is not None:
        pulumi.log.warn(said)
    given = configuration.parse(pulumi.runtime.get_config_env(), frozenset(pulumi.runtime.get_config_secret_keys_env()))
    if isinstance(given, BrokerStack):
        a_broker(given)
    else:
        pools(given)
except InfraError as error:
    raise pulumi.RunError(str(error)) from None
