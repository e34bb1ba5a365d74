"""The limits that the broker keeps: of the users of all pools, and of the vhost that they share.

The provider of RabbitMQ has no resource for them. A limit goes with its user, or with the vhost, so nothing deletes it.
"""

from __future__ import annotations

from typing import Any

import pulumi

from osrdyne_infra.configuration import StackSettings
from osrdyne_infra.guard import Provider, access, kept, management, plainly
from osrdyne_infra.package.resource import OwnResource
from osrdyne_pool import limits
from osrdyne_pool.topology import Topology


class _Limits(Provider):
    """Sets all of them when it is made and when one changes."""

    def apply(self, props: dict[str, Any]) -> dict[str, Any]:
        broker = management(props)
        owners = {("vhost-limits", props["vhost"]): props["of_vhost"]}
        owners |= {("user-limits", user): values for user, values in props["of_users"].items()}
        with plainly():
            for (kind, owner), values in owners.items():
                for name, value in values.items():
                    # A number comes back from Pulumi as a float.
                    broker.set_limit(kind, owner, name, int(value))
        return kept(props)


class Limits(OwnResource, kind="Limits", provider=_Limits):
    """Ensures that the broker keeps the limits of a stack's pools."""

    def __init__(
        self, name: str, settings: StackSettings, declared: tuple[Topology, ...], opts: pulumi.ResourceOptions
    ) -> None:
        inputs = {
            **access(settings),
            "of_vhost": limits.largest(topology.vhost_limits for topology in declared),
            "of_users": {user.name: dict(user.limits) for topology in declared for user in topology.users},
        }
        super().__init__(name, inputs, opts)
