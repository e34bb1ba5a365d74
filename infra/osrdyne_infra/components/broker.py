"""A vhost on a broker that is there, with all that its pools have in common there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pulumi
import pulumi_rabbitmq as rabbitmq

from osrdyne_infra import preflight
from osrdyne_infra.broker import live
from osrdyne_infra.broker.live import Live
from osrdyne_infra.broker.management import Management
from osrdyne_infra.configuration import EXAMPLES, StackSettings
from osrdyne_infra.errors import ConfigurationError, DeploymentRefused
from osrdyne_infra.guard import Claim, Guard, StopGuard
from osrdyne_infra.limits import Limits
from osrdyne_infra.ordering import child, inside, outer
from osrdyne_pool.broker import lost
from osrdyne_pool.topology import Topology


class Broker(pulumi.ComponentResource):
    """The vhost of the settings, which is of this program alone; a `Pool` for each of their pools comes after it.

    The broker is asked before anything is made, in a preview too, and an error says what is wrong there (`InfraError`).
    Where the administrator's password is an output, all waits for the answer; while it is not known yet, a preview asks
    nothing. The limits of the pools, and the guard that is asked before any of them is stopped, come with the last
    `Pool`.
    """

    def __init__(self, name: str, settings: StackSettings, opts: pulumi.ResourceOptions | None = None) -> None:
        self.declared = preflight.topologies(settings)
        found, password = _ask(settings, self.declared)
        self._found = found
        #: With a password that is known once the broker was asked.
        self.settings = settings = replace(settings, admin_password=password)
        super().__init__("osrdyne:index:Broker", name, None, outer(opts, "osrdyne:broker:Vhost"))
        self.provider = rabbitmq.Provider(
            name,
            endpoint=settings.broker.management,
            username=settings.broker.admin,
            password=pulumi.Output.secret(password),
            cacert_file=settings.broker.cacertfile or None,
            opts=inside(self, former="broker"),
        )
        users = [user.name for topology in self.declared for user in topology.users]
        self.claim = Claim(name, settings, users, child(self))
        # Called alike whatever the vhost's name: another name is then a replacement, which a guard may refuse.
        made = rabbitmq.VHost(name, name=settings.vhost, opts=self._on_broker(child(self, [self.claim])))
        # Who makes a vhost may use it at once; the next administrator may not.
        self.admin = rabbitmq.Permissions(
            f"{name}-admin",
            user=settings.broker.admin,
            vhost=made.name,
            permissions=rabbitmq.PermissionsPermissionsArgs(configure=".*", write=".*", read=".*"),
            opts=self._on_broker(child(self), pulumi.Alias(name="admin")),
        )
        #: The vhost's name, known once things can be declared in it.
        self.vhost = pulumi.Output.all(made.name, self.admin.id).apply(lambda known: str(known[0]))
        self._guard = Guard(name, settings, "", inside(self, [self.claim, made, self.admin]))
        self._outside = opts.parent if opts else None
        self._users: list[pulumi.Resource] = []
        self._stops: dict[str, StopGuard] = {}
        self.register_outputs({"name": self.vhost})

    def _on_broker(self, opts: pulumi.ResourceOptions, *aliases: pulumi.Alias) -> pulumi.ResourceOptions:
        ours = pulumi.ResourceOptions(provider=self.provider, aliases=list(aliases))
        return pulumi.ResourceOptions.merge(opts, ours)

    def topology(self, pool: str) -> Topology:
        """Return what is declared for a pool. Raises ConfigurationError."""
        return self.declared[self.settings.pools.index(self.settings.pool(pool))]

    def replaced(self, declared: Topology) -> set[str]:
        """Return the queues and exchanges of a pool that must be deleted before they can be made as declared."""
        return preflight.replaced(declared, self._found) if isinstance(self._found, Live) else set()

    def lost(self, declared: Topology) -> pulumi.Input[Sequence[str]]:
        """Return the static queues of a pool that the broker lost."""

        def names(found: Live) -> Sequence[str]:
            return [queue for queue in lost.static_quorum_queues(declared) if queue in found.lost]

        return names(self._found) if isinstance(self._found, Live) else self._found.apply(names)

    def joined(self, pool: str, users: pulumi.Resource, stop: StopGuard) -> None:
        """Take note of a pool that is declared as a whole; with the last one comes what is for all of them."""
        if pool in self._stops:
            raise ConfigurationError("osrdyne:pools", f"pool {pool} is declared twice", EXAMPLES["pools"])
        self._users.append(users)
        self._stops[pool] = stop
        if len(self._stops) == len(self.declared):
            name = self.pulumi_resource_name
            ready = self._beside([self.claim, self.admin, *self._users], pulumi.Alias(name="limits"))
            Limits(f"{name}-limits", self.settings, self.declared, ready)
            StopGuard(name, self.settings, "", self._beside([self._guard, *self._stops.values()]))

    def _beside(self, after: Sequence[pulumi.Resource], *aliases: pulumi.Alias) -> pulumi.ResourceOptions:
        """Return the options of what waits for pools. As a part of this, it would keep a pool from waiting for this."""
        return pulumi.ResourceOptions(parent=self._outside, depends_on=list(after), aliases=list(aliases))


def _ask(
    settings: StackSettings, declared: tuple[Topology, ...]
) -> tuple[Live | pulumi.Output[Live], str | pulumi.Output[str]]:
    """Ask the broker and judge. Return what is there, and the password."""
    password = settings.admin_password
    if isinstance(password, str):
        return look(settings, declared, password), password
    both = password.apply(lambda word: (word, look_late(settings, declared, word)))
    return both.apply(lambda known: known[1]), pulumi.Output.secret(both.apply(lambda known: known[0]))


def look(settings: StackSettings, declared: tuple[Topology, ...], password: str) -> Live:
    broker = Management(settings.broker.management, settings.broker.admin, password, settings.broker.cacertfile)
    found = live.read(broker, settings.vhost, declared)
    for warning in preflight.warnings(settings, declared, found):
        pulumi.warn(warning)
    preflight.check(settings, declared, found)
    return found


def look_late(settings: StackSettings, declared: tuple[Topology, ...], password: str) -> Live:
    """Ask when a part of the program has run: how a queue is replaced is said by then."""
    found = look(settings, declared, password)
    if names := sorted(name for topology in declared for name in preflight.replaced(topology, found)):
        raise DeploymentRefused(
            f"{', '.join(names)} must be deleted and declared again, which an administrator's password that is an "
            f"output comes too late for; delete each by hand, or give the password as text"
        )
    return found
