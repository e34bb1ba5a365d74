"""What one pool has on a Kubernetes cluster, part by part, each in its own module."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from osrdyne_infra.cluster.namespace import Namespace
from osrdyne_infra.cluster.network_policies import NetworkPolicies
from osrdyne_infra.components.relay import Relay
from osrdyne_infra.configuration import EXAMPLES, StackSettings
from osrdyne_infra.errors import ConfigurationError
from osrdyne_infra.jobs.redo_deployment import RedoDeployment
from osrdyne_infra.jobs_database import JobsDatabase
from osrdyne_infra.monitoring.objects import Monitoring
from osrdyne_infra.pipeline.cron_job import PipelineCronJob
from osrdyne_infra.pool.config import PoolConfig, authority
from osrdyne_infra.pool.daemon_deployment import DaemonDeployment
from osrdyne_infra.pool.driver_access import DriverAccess
from osrdyne_infra.pool.keda_access import KedaAccess
from osrdyne_infra.pool.users import PoolUsers
from osrdyne_infra.relay.settings import NAMESPACE
from osrdyne_pool.settings import PoolSettings

#: A worker that was asked to stop may take this long beyond the pool's consumer timeout, in seconds.
MARGIN_SECONDS = 60.0


class PoolOnCluster:
    """One pool in a namespace of its own, so that no daemon can start a pod with another pool's Secrets.

    `parts` are its components, made after what the pool has on the broker, and after the relay's Redis where its
    workers poll there: then it has none here.
    """

    def __init__(
        self,
        settings: StackSettings,
        pool: PoolSettings,
        users: PoolUsers,
        objects: Sequence[pulumi.Resource],
        jobs: JobsDatabase | None,
        relay: Relay | None,
        parent: pulumi.ComponentResource,
        first: Sequence[pulumi.Resource],
    ) -> None:
        cluster, worker = settings.cluster, settings.workers.get(pool.name)
        used = relay if settings.polls(pool.name) else None
        if cluster is None or (worker is None and used is None) or (pool.jobs is not None and jobs is None):
            problem = (
                f"do not fit what pool {pool.name} is given: a cluster, and by its settings a relay and a database"
            )
            raise ConfigurationError("osrdyne:workers", problem, EXAMPLES["workers"])
        namespace = Namespace(
            cluster.pool_namespace(pool.name),
            cluster.pod_security,
            pool.consumer_timeout + MARGIN_SECONDS,
            parent,
            pool.name,
            first,
        )
        place = namespace.place
        config = PoolConfig(settings, pool, users.addresses, used.address if used else None, place, parent)
        needed: list[pulumi.Resource] = [*objects, users]
        self.parts: list[pulumi.Resource] = [namespace, config]
        account = None
        pipeline = settings.pipeline if settings.pipeline is not None and settings.pipeline.has(pool.name) else None
        if worker is not None:
            access = DriverAccess(pool.name, worker.autoscaling, place, parent)
            account = access.account
            self.parts.append(access)
            needed.append(access.granted)
        if used is not None:
            needed.append(used.ready)
        if cluster.network_policy is not None:
            port = settings.jobs.inside_port if settings.jobs and jobs else None
            where = cluster.pool_namespace(NAMESPACE) if used else None
            policies = NetworkPolicies(
                pool.name, cluster.network_policy, settings.broker, port, where, pipeline, place, parent
            )
            self.parts.append(policies)
            needed.append(policies)
        if worker is not None and worker.autoscaling == "keda":
            known = authority(settings) if settings.broker.cacertfile else ""
            self.parts.append(KedaAccess(pool.name, users.figures, known, place, parent))
        self.parts += [
            DaemonDeployment(pool.name, cluster.daemon, config, account, place, needed, parent),
            Monitoring(pool.name, cluster, place, parent),
        ]
        if settings.jobs and jobs:
            self.parts.append(
                RedoDeployment(
                    pool,
                    settings.jobs,
                    cluster.daemon,
                    jobs.addresses,
                    users.addresses["client"],
                    config.authority,
                    place,
                    [jobs.made, *config.made, *needed],
                    parent,
                )
            )
        if pipeline is not None:
            self.parts.append(
                PipelineCronJob(
                    pool,
                    pipeline,
                    users.addresses["pipeline"],
                    config.authority,
                    place,
                    [*config.made, *needed],
                    parent,
                )
            )
