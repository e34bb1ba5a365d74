"""The broker users of one pool, one a role: a generated password, the least permissions, and the address to use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, urlsplit

import pulumi
import pulumi_rabbitmq as rabbitmq

from osrdyne_infra.ordering import child, inside
from osrdyne_infra.password import Password
from osrdyne_pool.topology import Permission, Topology, User

if TYPE_CHECKING:
    from osrdyne_infra.components.broker import Broker

Kind = Literal["amqp", "management"]

#: Where a pod finds the certificate of the CA that vouches for the broker.
AUTHORITY = "/etc/osrdyne/broker/ca.pem"


class PoolUsers(pulumi.ComponentResource):
    """The users of one pool; `addresses` are secret, by the names of `kinds`.

    `figures` is the management address of the user that may see the broker's figures, with the vhost as its path, and
    secret too.
    """

    def __init__(
        self, declared: Topology, broker: Broker, parent: pulumi.ComponentResource, own: Callable[[str], str]
    ) -> None:
        super().__init__("osrdyne:broker:PoolUsers", own(declared.pool), None, inside(parent))
        turns: Mapping[str, str] = broker.settings.rotate.get(declared.pool, {})
        permissions = {permission.user: permission for permission in declared.permissions}
        self._settings, self._own = broker.settings, own
        self.addresses: dict[str, pulumi.Output[str]] = {}
        for declared_user in declared.users:
            turn = turns.get(declared_user.role, "1")
            password = Password(own(declared_user.name), turn, child(self, [broker.claim]))
            user = self._user(declared_user, password)
            self._permissions(permissions[declared_user.name], user, broker)
            self._addresses(declared_user, password)
        self.register_outputs({})

    def _user(self, one: User, password: Password) -> rabbitmq.User:
        return rabbitmq.User(
            self._own(one.name),
            name=one.name,
            password=password.password,
            tags=list(one.tags),
            opts=child(self),
        )

    def _permissions(self, one: Permission, user: rabbitmq.User, broker: Broker) -> None:
        rabbitmq.Permissions(
            self._own(one.user),
            user=user.name,
            vhost=broker.vhost,
            permissions=rabbitmq.PermissionsPermissionsArgs(configure=one.configure, write=one.write, read=one.read),
            opts=child(self),
        )

    def _addresses(self, one: User, password: Password) -> None:
        broker, vhost = self._settings.broker, quote(self._settings.vhost, safe="")
        management = broker.inside_management or broker.management
        file = AUTHORITY if broker.cacertfile and self._settings.cluster else broker.cacertfile
        query = f"cacertfile={quote(file)}" if file else ""
        for name, kind in kinds(one).items():
            if kind == "amqp":
                self.addresses[name] = _address(broker.amqp, one, password, path=f"/{vhost}")
            else:
                self.addresses[name] = _address(management, one, password, query=query)
        if one.role == "monitor":
            self.figures = _address(management, one, password, path=f"/{vhost}")


def kinds(one: User) -> dict[str, Kind]:
    """Return the addresses that a user needs, by name: which interface of the broker each belongs to.

    `hand_over` names the files after them, as the Ansible role `daemon` does.
    """
    found: dict[str, Kind] = {one.role: "amqp"}
    if "management" in one.tags:
        found[f"{one.role}-management"] = "management"
    return found


def _address(place: str, one: User, password: Password, path: str = "", query: str = "") -> pulumi.Output[str]:
    """Return an address with a user and the password in it."""
    split = urlsplit(place)
    tail = f"{split.netloc}{path}{f'?{query or split.query}' if query or split.query else ''}"
    made = password.password.apply(lambda clear: f"{split.scheme}://{quote(one.name)}:{quote(clear)}@{tail}")
    return pulumi.Output.secret(made)
