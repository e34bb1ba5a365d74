"""From what the management API lists to the objects of a virtual host. Pure.

Every function raises TypeError, KeyError, ValueError or AttributeError for what a RabbitMQ never answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from osrdyne_protocol import headers
from osrdyne_protocol.broker.topology import (
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
from osrdyne_protocol.names import PoolNames

_Listed = Iterable[Mapping[str, Any]]


def topology(
    exchanges: _Listed,
    queues: _Listed,
    bindings: _Listed,
    policies: _Listed,
    operator_policies: _Listed,
    users: _Listed,
    permissions: _Listed,
) -> Topology:
    """Return the objects of a virtual host; the default exchange and its bindings are left out."""
    return Topology(
        tuple(_exchange(one) for one in exchanges if one["name"]),
        tuple(_queue(one) for one in queues),
        tuple(
            Binding(
                text(one, "source"),
                text(one, "destination"),
                text(one, "routing_key"),
                "queue" if one["destination_type"] == "queue" else "exchange",
            )
            for one in bindings
            if one["source"]
        ),
        _policies(policies),
        tuple(User(text(one, "name"), "", tuple(_tags(one["tags"]))) for one in users),
        tuple(_permission(one) for one in permissions),
        operator_policies=_policies(operator_policies),
    )


def own_key(raw: Mapping[str, Any]) -> str | None:
    """Return the key of a queue that is what the daemon declares under its name; None for any other."""
    name = text(raw, "name")
    key = headers.text(table(raw, "arguments").get(headers.X_OSRDYNE_KEY))
    if key is None or raw.get("type") != "quorum":
        return None
    return key if PoolNames(name.partition("-req-")[0]).request_queue(key) == name else None


def alarms(answer: str) -> str | None:
    """Return the resources that a failed check of alarms names, for example `memory`; None when it is none."""
    try:
        found = {str(one["resource"]) for one in json.loads(answer)["alarms"]}
    except (ValueError, TypeError, KeyError):
        return None
    return ", ".join(sorted(found)) or None


def text(raw: Mapping[str, Any], name: str) -> str:
    value = raw[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is no text")
    return value


def table(raw: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = raw.get(name) or {}
    if not isinstance(value, dict):
        raise TypeError(f"{name} is no table")
    return value


def _exchange(raw: Mapping[str, Any]) -> Exchange:
    return Exchange(text(raw, "name"), text(raw, "type"), table(raw, "arguments"))


def _queue(raw: Mapping[str, Any]) -> Queue:
    arguments = {name: value for name, value in table(raw, "arguments").items() if name != "x-queue-type"}
    return Queue(text(raw, "name"), cast("QueueType", text(raw, "type")), arguments)


def _policies(raw: Iterable[Mapping[str, Any]]) -> tuple[Policy, ...]:
    return tuple(
        Policy(
            text(one, "name"),
            text(one, "pattern"),
            cast("ApplyTo", text(one, "apply-to")),
            table(one, "definition"),
            int(one["priority"]),
        )
        for one in raw
    )


def _permission(raw: Mapping[str, Any]) -> Permission:
    return Permission(text(raw, "user"), text(raw, "configure"), text(raw, "write"), text(raw, "read"))


def _tags(tags: object) -> list[str]:
    found = tags if isinstance(tags, list) else str(tags).split(",")
    return [str(one) for one in found if one]
