"""The vhost of the stack, and the right of the stack's administrator to declare things in it."""

from __future__ import annotations

import pulumi
import pulumi_rabbitmq as rabbitmq

from osrdyne_infra.configuration import StackSettings
from osrdyne_infra.guard import Claim
from osrdyne_infra.ordering import child


class Vhost(pulumi.ComponentResource):
    """One vhost, which no other stack has."""

    def __init__(self, settings: StackSettings, users: list[str], provider: rabbitmq.Provider) -> None:
        super().__init__("osrdyne:broker:Vhost", "vhost", None, pulumi.ResourceOptions(provider=provider))
        self.claim = Claim("vhost", settings, users, child(self))
        # Called alike whatever the vhost's name: another name is then a replacement, which a guard may refuse.
        made = rabbitmq.VHost(
            "vhost",
            name=settings.vhost,
            opts=child(self, [self.claim]),
        )
        # Who makes a vhost may use it at once; the next administrator may not.
        self.admin = rabbitmq.Permissions(
            "admin",
            user=settings.broker.admin,
            vhost=made.name,
            permissions=rabbitmq.PermissionsPermissionsArgs(configure=".*", write=".*", read=".*"),
            opts=child(self),
        )
        #: Known once things can be declared in it.
        self.name = pulumi.Output.all(made.name, self.admin.id).apply(lambda known: str(known[0]))
        self.register_outputs({"name": self.name})
