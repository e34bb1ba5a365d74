"""What must change on a broker so that it has a topology, and what speaks against that. Pure.

Each object is compared as the request that declares it, so what differs is what would be sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from osrdyne_pool.broker.management_json import ManagementRequest, requests
from osrdyne_pool.differences import Difference, between
from osrdyne_pool.topology import Topology
from osrdyne_protocol.names import PoolNames

#: What an object is called, by the first part of its path; the kinds of `management_json.requests`.
KINDS: Final[dict[str, str]] = {
    "vhosts": "virtual host",
    "vhost-limits": "limit of the virtual host",
    "users": "user",
    "user-limits": "limit of user",
    "permissions": "permission of",
    "policies": "policy",
    "exchanges": "exchange",
    "queues": "queue",
    "bindings": "binding",
}
#: Kinds that a broker cannot change in place.
_FIXED = ("exchanges", "queues")


@dataclass(frozen=True, slots=True)
class TopologyChange:
    """One object that is not as declared: the values that differ, and the request that makes it so."""

    request: ManagementRequest
    values: tuple[Difference, ...]
    #: Whether the broker has no such object.
    missing: bool

    @property
    def refused(self) -> bool:
        """Whether a broker cannot change it in place."""
        return not self.missing and self.request.path[0] in _FIXED

    def __str__(self) -> str:
        return name(self.request)


def name(request: ManagementRequest) -> str:
    """Return kind and name of what a request declares."""
    kind, _, *rest = request.path
    if kind == "bindings":
        shown = f"{rest[1]} -> {rest[3]}"
    elif kind == "user-limits":
        shown = f"{request.path[1]}: {rest[0]}"
    else:
        shown = request.path[-1]
    return f"{KINDS[kind]} {shown}"


def changes(declared: Topology, live: Topology, vhost: str) -> Iterator[TopologyChange]:
    """Yield what is to be sent, in the order of `management_json.requests`. What is only in `live` is left alone."""
    to_queues = tuple(binding for binding in live.bindings if binding.to == "queue")
    there = {_identity(made): made.body for made in requests(replace(live, bindings=to_queues), vhost)}
    for request in requests(declared, vhost):
        found = there.get(_identity(request))
        values = tuple(between(found or {}, request.body))
        if found is None or (values and not _is_enough(request, found)):
            yield TopologyChange(request, values, missing=found is None)


def _identity(request: ManagementRequest) -> tuple[object, ...]:
    return (*request.path, request.body.get("routing_key"))


def _is_enough(request: ManagementRequest, found: Any) -> bool:
    """Whether a limit of the virtual host, which other pools may need higher, has no less than what is declared."""
    return request.path[0] == "vhost-limits" and (found["value"] < 0 or found["value"] > request.body["value"])


def refusals(declared: Topology, live: Topology, vhost: str) -> Iterator[str]:
    """Yield why users and limits of a pool may not be applied where they touch others, with what to do."""
    ours = {user.name for user in declared.users}
    roles = {user.partition(".")[0] for user in ours}
    there = {permission.user for permission in live.permissions}
    foreign = sorted(user for user in there - ours if user.partition(".")[0] in roles)
    if foreign:
        yield (
            f"virtual host {vhost} holds another instance of this pool, with the users {', '.join(foreign)}, and two "
            f"instances never share a virtual host: name another one, or that instance in pool.instance; delete those "
            f"users if that instance is gone"
        )
    uncounted = sorted(others(declared, live) - {*declared.neighbours})
    if uncounted:
        yield (
            f"virtual host {vhost} holds pool {', '.join(uncounted)}, too, and its limits would not count it: name it "
            f"in the setting pool.neighbours, with its limits, and this pool in the settings of that"
        )


def others(declared: Topology, live: Topology) -> set[str]:
    """Return the names of the other pools of the virtual host."""
    tail = PoolNames("p").request_exchange[1:]
    pools = {exchange.name.removesuffix(tail) for exchange in live.exchanges if exchange.name.endswith(tail)}
    return pools - {declared.pool}
