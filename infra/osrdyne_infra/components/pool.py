"""One pool: what it has on the broker and, where it has one, on a cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pulumi

from osrdyne_infra.components.broker import Broker
from osrdyne_infra.guard import Guard, StopGuard
from osrdyne_infra.mend import Mend
from osrdyne_infra.ordering import inside, outer, own
from osrdyne_infra.pool.objects import PoolObjects
from osrdyne_infra.pool.users import PoolUsers

if TYPE_CHECKING:
    from osrdyne_infra.components.cluster import ClusterProvider
    from osrdyne_infra.components.relay import Relay
    from osrdyne_infra.jobs_database import JobsDatabase


class Pool(pulumi.ComponentResource):
    """A pool of the settings of a `Broker`, by default that of its name.

    With a `cluster`, its daemons run there, after all that they need; with `jobs`, redo does, too. Those whose workers
    poll use the `relay`. While a queue of it holds messages, the pool is not deleted, unless the settings say so.
    """

    #: Secret, by role: where clients, workers and daemons find the broker.
    addresses: pulumi.Output[dict[str, str]]

    def __init__(
        self,
        name: str,
        broker: Broker,
        opts: pulumi.ResourceOptions | None = None,
        *,
        pool: str | None = None,
        cluster: ClusterProvider | None = None,
        jobs: JobsDatabase | None = None,
        relay: Relay | None = None,
    ) -> None:
        #: Its settings, as its programs have them.
        self.settings = settings = broker.settings.pool(pool or name)
        declared = broker.topology(settings.name)
        providers = [broker.provider, *([cluster] if cluster else [])]
        super().__init__(
            "osrdyne:index:Pool", name, None, outer(opts, "osrdyne:broker:PoolObjects", providers=providers)
        )

        # Two pools of one name may be in a program, on different brokers.
        named = partial(own, name, settings.name)
        users = PoolUsers(declared, broker, self, named)
        objects = PoolObjects(declared, broker, self, named)
        Mend(name, broker.settings, declared, broker.lost(declared), inside(self, objects.made))
        # It waits for queues and nothing else, so that it is there however the rest fails.
        guard = Guard(name, broker.settings, settings.name, inside(self, [*objects.queues.values()]))
        running = objects.made
        if cluster is not None:
            # Pulumi's Kubernetes library takes seconds to import, which other stacks need not wait for.
            from osrdyne_infra.pool.on_cluster import PoolOnCluster

            running = PoolOnCluster(
                broker.settings, settings, users, objects.made, jobs, relay, self, [broker.claim]
            ).parts
        stop = StopGuard(name, broker.settings, settings.name, inside(self, [guard, users, *running]))
        broker.joined(settings.name, users, stop)
        self.addresses = pulumi.Output.secret(pulumi.Output.all(**users.addresses))
        self.register_outputs({"addresses": self.addresses})
