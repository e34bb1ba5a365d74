"""A topology becomes requests of the management API, and what the API then lists becomes the topology again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from osrdyne_pool.broker import management_json
from osrdyne_pool.broker.management_json import ManagementRequest
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import Binding, Policy, topology

DECLARED = topology(PoolSettings("core", "dev"))


def listed(one: ManagementRequest) -> tuple[str, dict[str, Any]]:
    """The listing that shows an object, and how."""
    kind, *rest = one.path
    shown: dict[str, Mapping[str, Any]] = {
        "users": {"name": rest[0]},
        "permissions": {"user": rest[-1]},
        "policies": {"name": rest[-1]},
        "exchanges": {"name": rest[-1]},
        "queues": {"name": rest[-1], "type": one.body.get("arguments", {}).get("x-queue-type")},
        "bindings": {"source": rest[2] if kind == "bindings" else "", "destination": rest[-1]},
    }
    extra = {"destination_type": "queue"} if kind == "bindings" else {}
    return kind, {**one.body, **shown[kind], **extra}


def test_what_is_declared_is_what_is_read() -> None:
    listings: dict[str, list[dict[str, Any]]] = {
        "vhost-limits": [{"vhost": "v", "value": dict(DECLARED.vhost_limits)}],
    }
    limits = {user.name: dict(user.limits) for user in DECLARED.users}
    for request in management_json.requests(DECLARED, "v"):
        if request.path[0].endswith("-limits"):
            continue
        kind, raw = listed(request)
        if kind == "users":
            raw["limits"] = limits[raw["name"]]
        listings.setdefault(kind, []).append(raw)

    found = management_json.read(listings)

    # The API knows neither pools nor roles, and the request exchange is declared last.
    nameless = tuple(dataclasses.replace(user, role="") for user in DECLARED.users)
    assert sorted(exchange.name for exchange in found.exchanges) == sorted(
        exchange.name for exchange in DECLARED.exchanges
    )
    assert found == dataclasses.replace(DECLARED, pool="", users=nameless, exchanges=found.exchanges)


def test_nothing_can_be_lost_while_it_is_declared() -> None:
    kinds = [(request.path[0], request.path[-1]) for request in management_json.requests(DECLARED, "v")]
    order = [kind for number, (kind, _) in enumerate(kinds) if number == 0 or kinds[number - 1][0] != kind]

    of_vhost, *rest = order
    assert of_vhost == "vhost-limits"
    assert rest == ["users", "user-limits", "permissions", "policies", "exchanges", "queues", "bindings", "exchanges"]
    assert kinds[-1] == ("exchanges", "core-req-xchg")


def test_every_limit_of_a_user_and_of_the_virtual_host_is_requested() -> None:
    requested = {
        request.path: request.body["value"]
        for request in management_json.requests(DECLARED, "v")
        if "value" in request.body
    }

    assert requested == {
        **{("vhost-limits", "v", name): value for name, value in DECLARED.vhost_limits.items()},
        **{("user-limits", user.name, name): value for user in DECLARED.users for name, value in user.limits.items()},
    }
    assert {path[2] for path in requested} == {"max-queues", "max-connections", "max-channels"}


def test_bindings_of_queues_and_exchanges_are_distinguished_without_the_default_exchange() -> None:
    def binding(source: str, to: str) -> dict[str, Any]:
        return {"source": source, "destination": "x", "destination_type": to, "routing_key": "k"}

    found = management_json.read({"bindings": [binding("", "queue"), binding("a", "queue"), binding("a", "exchange")]})

    assert found.bindings == (Binding("a", "x", "k"), Binding("a", "x", "k", "exchange"))
    assert (found.exchanges, found.queues) == ((), ())


def test_policies_of_the_operator_are_apart() -> None:
    raw = {"name": "p", "pattern": ".*", "apply-to": "all", "definition": {"max-length": 1}, "priority": 0}

    found = management_json.read({"operator-policies": [raw], "exchanges": [{"name": ""}]})

    assert found.operator_policies == (Policy("p", ".*", "all", {"max-length": 1}, 0),)
    assert found.policies == ()
