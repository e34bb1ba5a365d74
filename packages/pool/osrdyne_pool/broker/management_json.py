"""The topology in RabbitMQ's management API: listings become a topology, and a topology becomes requests.

Pure: the callers use HTTP. The daemon, the Pulumi program, the Ansible module and the tests use this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from osrdyne_pool.broker import default_login
from osrdyne_pool.topology import (
    ApplyTo,
    Binding,
    Exchange,
    Permission,
    Policy,
    Queue,
    QueueType,
    Topology,
    User,
)

Listings = Mapping[str, Iterable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class ManagementRequest:
    """A request that declares one object. `path` follows `/api`, in parts that are not quoted yet."""

    method: Literal["PUT", "POST"]
    path: tuple[str, ...]
    body: Mapping[str, Any]


def read(listings: Listings) -> Topology:
    """Return the objects that the API lists for a vhost, without the default exchange and its bindings.

    The keys are the API's names: `exchanges`, `queues`, `bindings`, `policies`, `operator-policies`, `users`,
    `permissions` and `vhost-limits`; what is left out is empty. Raises TypeError, KeyError, ValueError or
    AttributeError for what a RabbitMQ never lists.
    """
    return Topology(
        exchanges=tuple(
            Exchange(text(raw, "name"), text(raw, "type"), table(raw, "arguments"))
            for raw in listings.get("exchanges", ())
            if raw["name"]
        ),
        queues=tuple(queue(raw) for raw in listings.get("queues", ())),
        bindings=tuple(_binding(raw) for raw in listings.get("bindings", ()) if raw["source"]),
        policies=tuple(_policy(raw) for raw in listings.get("policies", ())),
        users=tuple(User(text(raw, "name"), "", tags(raw), table(raw, "limits")) for raw in listings.get("users", ())),
        permissions=tuple(
            Permission(text(raw, "user"), text(raw, "configure"), text(raw, "write"), text(raw, "read"))
            for raw in listings.get("permissions", ())
        ),
        operator_policies=tuple(_policy(raw) for raw in listings.get("operator-policies", ())),
        default_login="".join(default_login.problem(raw) for raw in listings.get("users", ())),
        vhost_limits={
            name: value for limit in listings.get("vhost-limits", ()) for name, value in table(limit, "value").items()
        },
    )


def requests(declared: Topology, vhost: str) -> list[ManagementRequest]:
    """Return the requests that declare a topology in an existing vhost, in the order in which no message can be lost.

    Policies come before their objects, and the request exchange comes last: no request can arrive before there is a
    way for orphans. A user's request has no credentials; the caller adds `password`, or `password_hash`.
    """
    # Only the request exchange is of this type.
    last = [exchange for exchange in declared.exchanges if exchange.type == "direct"]
    return [
        *(_limit("vhost-limits", vhost, name, value) for name, value in declared.vhost_limits.items()),
        *(ManagementRequest("PUT", ("users", user.name), {"tags": ",".join(user.tags)}) for user in declared.users),
        *(
            _limit("user-limits", user.name, name, value)
            for user in declared.users
            for name, value in user.limits.items()
        ),
        *(
            ManagementRequest(
                "PUT",
                ("permissions", vhost, permission.user),
                {"configure": permission.configure, "write": permission.write, "read": permission.read},
            )
            for permission in declared.permissions
        ),
        *(
            ManagementRequest(
                "PUT",
                ("policies", vhost, policy.name),
                {
                    "pattern": policy.pattern,
                    "apply-to": policy.apply_to,
                    "definition": dict(policy.definition),
                    "priority": policy.priority,
                },
            )
            for policy in declared.policies
        ),
        *(_declare_exchange(exchange, vhost) for exchange in declared.exchanges if exchange not in last),
        *(
            _declare(
                "queues",
                vhost,
                declared_queue.name,
                {"arguments": {"x-queue-type": declared_queue.type, **declared_queue.arguments}},
            )
            for declared_queue in declared.queues
        ),
        *(
            ManagementRequest(
                "POST",
                ("bindings", vhost, "e", binding.exchange, "q", binding.queue),
                {"routing_key": binding.routing_key, "arguments": {}},
            )
            for binding in declared.bindings
        ),
        *(_declare_exchange(exchange, vhost) for exchange in last),
    ]


def _limit(kind: str, owner: str, name: str, value: int) -> ManagementRequest:
    return ManagementRequest("PUT", (kind, owner, name), {"value": value})


def text(raw: Mapping[str, Any], name: str) -> str:
    """Return a field that is a text. Raises TypeError, KeyError."""
    value = raw[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is not text")
    return value


def table(raw: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a field that is a table, empty where it is left out. Raises TypeError."""
    value = raw.get(name) or {}
    if not isinstance(value, dict):
        raise TypeError(f"{name} is not a table")
    return value


def tags(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tags of a user, which are a list, or a text with commas."""
    found = raw["tags"]
    return tuple(str(tag) for tag in (found if isinstance(found, list) else str(found).split(",")) if tag)


def _declare_exchange(one: Exchange, vhost: str) -> ManagementRequest:
    return _declare("exchanges", vhost, one.name, {"type": one.type, "arguments": dict(one.arguments)})


def _declare(kind: str, vhost: str, name: str, body: Mapping[str, Any]) -> ManagementRequest:
    return ManagementRequest("PUT", (kind, vhost, name), {"durable": True, "auto_delete": False, **body})


def queue(raw: Mapping[str, Any]) -> Queue:
    """Return a queue as the API lists it. Raises TypeError, KeyError."""
    arguments = {name: value for name, value in table(raw, "arguments").items() if name != "x-queue-type"}
    return Queue(text(raw, "name"), cast("QueueType", text(raw, "type")), arguments)


def _binding(raw: Mapping[str, Any]) -> Binding:
    to: Literal["queue", "exchange"] = "queue" if raw["destination_type"] == "queue" else "exchange"
    return Binding(text(raw, "source"), text(raw, "destination"), text(raw, "routing_key"), to)


def _policy(raw: Mapping[str, Any]) -> Policy:
    apply_to = cast("ApplyTo", text(raw, "apply-to"))
    return Policy(text(raw, "name"), text(raw, "pattern"), apply_to, table(raw, "definition"), int(raw["priority"]))
