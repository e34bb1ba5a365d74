"""The component of the package: a vhost with all of its pools, on a broker that is there."""

from __future__ import annotations

import pulumi

from osrdyne_infra.components.broker import Broker
from osrdyne_infra.components.pool import Pool
from osrdyne_infra.configuration import StackSettings
from osrdyne_infra.ordering import outer


class Pools(pulumi.ComponentResource):
    """A `Broker` and a `Pool` for each of the pools of the settings.

    What pools of a vhost have in common comes with the last of them: one component has all, so that none is left out.
    """

    #: Name of the vhost, known once it is there.
    vhost: pulumi.Output[str]
    #: Secret, by pool and role: where clients, workers and daemons find the broker.
    addresses: pulumi.Output[dict[str, dict[str, str]]]

    def __init__(self, name: str, settings: StackSettings, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("osrdyne:index:Pools", name, None, outer(opts))
        inside = pulumi.ResourceOptions(parent=self)
        broker = Broker(name, settings, inside)
        # A program may have pools of one name in two of these.
        made = {pool.name: Pool(f"{name}-{pool.name}", broker, inside, pool=pool.name) for pool in settings.pools}
        self.vhost = broker.vhost
        self.addresses = pulumi.Output.secret(
            pulumi.Output.all(**{pool: component.addresses for pool, component in made.items()})
        )
        self.register_outputs({"vhost": self.vhost, "addresses": self.addresses})
