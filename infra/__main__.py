"""The stack, as a table of contents: what is configured, what is checked, what there is, what comes out."""

from __future__ import annotations

import signal
import sys
from dataclasses import asdict

import pulumi
import pulumi_rabbitmq as rabbitmq

from osrdyne_infra import configuration, live, preflight
from osrdyne_infra.errors import InfraError
from osrdyne_infra.guard import Guard
from osrdyne_infra.management import Management
from osrdyne_infra.pool_objects import PoolObjects
from osrdyne_infra.pool_users import PoolUsers
from osrdyne_infra.vhost import Vhost

# So ends a program of which a resource failed: the reason has been said, and a traceback would only hide it.
signal.signal(signal.SIGINT, lambda *_: sys.exit(1))

try:
    settings = configuration.parse(
        pulumi.runtime.get_config_env(), frozenset(pulumi.runtime.get_config_secret_keys_env())
    )
    declared = preflight.topologies(settings)
    broker = Management(
        settings.broker.management, settings.broker.admin, settings.admin_password, settings.broker.cacertfile
    )
    found = live.read(broker, settings.vhost)
    preflight.check(settings, declared, found)
except InfraError as error:
    raise pulumi.RunError(str(error)) from None

provider = rabbitmq.Provider(
    "broker",
    endpoint=settings.broker.management,
    username=settings.broker.admin,
    password=pulumi.Output.secret(settings.admin_password),
    cacert_file=settings.broker.cacertfile or None,
)
vhost = Vhost(settings, [user.name for one in declared for user in one.users], provider)
users = {one.pool: PoolUsers(settings, one, vhost, provider) for one in declared}
objects = {one.pool: PoolObjects(one, vhost, preflight.replaced(one, found), provider) for one in declared}
guards = [
    Guard(pool, settings, pool, pulumi.ResourceOptions(depends_on=[objects[pool], users[pool]])) for pool in objects
]
Guard("vhost", settings, "", pulumi.ResourceOptions(depends_on=[vhost, *users.values(), *objects.values(), *guards]))

pulumi.export("vhost", settings.vhost)
pulumi.export("pools", {pool.name: asdict(pool) for pool in settings.pools})
pulumi.export("addresses", {pool: pulumi.Output.secret(one.addresses) for pool, one in users.items()})
