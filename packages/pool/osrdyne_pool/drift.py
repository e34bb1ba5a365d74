"""Drift: the differences between a live broker and the declared topology. Pure; reports, never repairs.

It compares objects by name, and then which policy wins on each of them, because one foreign policy of higher priority
silently disables dead-lettering or the alternate exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from osrdyne_pool.broker import default_login
from osrdyne_pool.limits import Limits
from osrdyne_pool.lint import Finding, effective, matches
from osrdyne_pool.topology import Binding, Policy, Queue, Topology, User, own_key, sample_request_queues
from osrdyne_protocol.headers import X_OSRDYNE_KEY, text
from osrdyne_protocol.names import PoolNames

_APPLY = "apply the topology"
_IMPERSONATES = (
    "has the tag impersonator, so it can send as any other user and as the daemon, and no budget of new keys binds it; "
    "take the tag away with `rabbitmqctl set_user_tags`"
)


def drift(expected: Topology, live: Topology, *, with_users: bool = False) -> list[Finding]:
    """Compare two topologies. Objects of other pools that are only in `live` are left alone.

    `with_users` also compares users and permissions, which only an administrator can list. Rules: `missing`,
    `differs`, `overridden` (another policy wins), `neighbour` (a pool that no limit counts), `foreign-binding` and
    `foreign-queue` (in the pool's names), and with users `default-login` (guest has the password guest) and
    `impersonator` (a user that can send as the daemon).
    """
    findings = [
        *_differences("exchange", expected.exchanges, live.exchanges),
        *_differences("queue", expected.queues, live.queues),
        *_differences("policy", expected.policies, live.policies),
        *_missing_bindings(expected, live),
        *_overridden(expected, live),
        *_changed_by_operator(expected, live),
        *_limits(expected.vhost_limits, live.vhost_limits),
    ]
    if expected.pool:
        findings += _neighbours(expected, live)
        findings += _strays(PoolNames(expected.pool), expected, live)
    if with_users:
        findings += _differences("user", _comparable(expected.users), _comparable(live.users))
        findings += _differences("permission of", expected.permissions, live.permissions, by="user")
        if live.default_login:
            findings.append(Finding("default-login", f"user {default_login.NAME}", live.default_login))
        impersonators = (one.name for one in live.users if "impersonator" in one.tags)
        findings += [Finding("impersonator", f"user {name}", _IMPERSONATES) for name in impersonators]
    return findings


def concerning(expected: Topology, live: Topology) -> Topology:
    """Return the objects of a live broker that affect a pool, for `lint`, without those of others.

    Request queues are left out: `lint` gets their names separately.
    """
    names = {one.name for one in expected.exchanges} | {one.name for one in expected.queues}
    objects = list(_objects(expected, live))
    policies = [one for one in live.policies if any(matches(one, kind, name) for kind, name in objects)]
    ours = {one.name for one in expected.policies}
    targets = {str(one.definition.get("dead-letter-exchange")) for one in policies}
    return replace(
        live,
        exchanges=tuple(one for one in live.exchanges if one.name in names | targets),
        queues=tuple(one for one in live.queues if one.name in names),
        policies=tuple(one for one in live.policies if one in policies or one.name in ours),
        pool=expected.pool,
    )


def request_queues(pool: str, live: Topology) -> list[Queue]:
    """Return the live queues whose names begin like those of a pool's request queues."""
    prefix = PoolNames(pool).request_queue_prefix
    return [one for one in live.queues if one.name.startswith(prefix)]


def _objects(expected: Topology, live: Topology) -> Iterator[tuple[str, str]]:
    """Kind and name of all our objects that a policy can apply to, including request queues."""
    yield from (("exchange", one.name) for one in expected.exchanges)
    yield from ((one.type, one.name) for one in expected.queues)
    if expected.pool:
        there = {one.name: one.type for one in request_queues(expected.pool, live)}
        yield from ((kind, name) for name, kind in there.items())
        yield from (("quorum", name) for name in sample_request_queues(expected.pool) if name not in there)


def _overridden(expected: Topology, live: Topology) -> Iterator[Finding]:
    here = {one.name: one for one in live.policies}
    for kind, name in _objects(expected, live):
        declared = effective(expected.policies, kind, name)
        ours = here.get(declared.name, declared) if declared else None
        rivals = [
            one
            for one in live.policies
            if matches(one, kind, name) and (ours is None or (one.name != ours.name and one.priority >= ours.priority))
        ]
        if not rivals:
            continue
        winner = max(rivals, key=lambda one: one.priority)
        what = "exchange" if kind == "exchange" else "queue"
        yield Finding("overridden", f"{what} {name}", _lost_to(winner, ours))


def _lost_to(winner: Policy, ours: Policy | None) -> str:
    instead = f"in place of {ours.name} (priority {ours.priority})" if ours else "where none is declared"
    verb = "may be overridden" if ours and winner.priority == ours.priority else "overridden"
    return (
        f"{verb} by policy {winner.name} (priority {winner.priority}, pattern {winner.pattern!r}), {instead}; "
        "remove that policy, or give it a pattern that leaves this pool out"
    )


def _changed_by_operator(expected: Topology, live: Topology) -> Iterator[Finding]:
    """An operator policy is merged into the one that wins: find where that changes what is declared."""
    for kind, name in _objects(expected, live):
        operator = effective(live.operator_policies, kind, name)
        if operator is None or kind == "exchange":
            continue
        declared = effective(expected.policies, kind, name)
        wanted = declared.definition if declared else {}
        changed = [f"{key} {value!r}" for key, value in operator.definition.items() if wanted.get(key) != value]
        if changed:
            problem = f"overridden by operator policy {operator.name}, which sets {', '.join(changed)}"
            yield Finding("overridden", f"queue {name}", f"{problem}; have it leave this pool out, or declare the same")


def _neighbours(expected: Topology, live: Topology) -> Iterator[Finding]:
    """Other pools of the virtual host whose needs its limits do not count: no limit is higher than what ours needs.

    A pool whose own settings do not name a neighbour sees so that infrastructure code counted it.
    """
    counted = (live.vhost_limits.get(name, 0) for name in expected.vhost_limits)
    if not any(0 <= there <= least for there, least in zip(counted, expected.vhost_limits.values(), strict=True)):
        return
    tail = PoolNames("p").request_exchange[1:]
    pools = {one.name.removesuffix(tail) for one in live.exchanges if one.name.endswith(tail)}
    for name in sorted(pools - {expected.pool, *expected.neighbours}):
        problem = (
            "shares the virtual host, and its limits do not count it; name it in the setting pool.neighbours, with its "
            f"limits, and {_APPLY}"
        )
        yield Finding("neighbour", f"pool {name}", problem)


def _limits(needed: Limits, there: Limits) -> Iterator[Finding]:
    """A virtual host that several pools share has higher limits than one of them needs."""
    for name, least in needed.items():
        if name not in there:
            yield Finding("missing", f"limit {name} of the virtual host", f"is not on the broker; {_APPLY}")
        elif 0 <= there[name] < least:
            problem = f"is {there[name]}, the pool needs {least}; {_APPLY}"
            yield Finding("differs", f"limit {name} of the virtual host", problem)


def _missing_bindings(expected: Topology, live: Topology) -> Iterator[Finding]:
    there = set(live.bindings)
    for one in expected.bindings:
        if one not in there:
            yield Finding("missing", f"binding {one.exchange} -> {one.queue}", f"is not on the broker; {_APPLY}")


def _strays(names: PoolNames, expected: Topology, live: Topology) -> Iterator[Finding]:
    for binding in live.bindings:
        problem = None if binding in expected.bindings else _foreign_binding(names, binding)
        if problem is not None:
            yield Finding("foreign-binding", f"binding {binding.exchange} -> {binding.queue}", problem)
    for queue in request_queues(names.pool, live):
        if own_key(queue) is None:
            key = text(queue.arguments.get(X_OSRDYNE_KEY))
            yield Finding(
                "foreign-queue",
                f"queue {queue.name}",
                f"has the name of a request queue and is none (type {queue.type}, key {key!r}); remove or rename it",
            )


def _foreign_binding(names: PoolNames, binding: Binding) -> str | None:
    """Return what an undeclared binding takes from the pool; None when it takes nothing."""
    what = "" if binding.to == "queue" else " (an exchange)"
    if binding.exchange in (names.orphan_exchange, names.dead_letter_exchange):
        return f"copies every message of {binding.exchange} to {binding.queue}{what}, which is not ours; remove it"
    ours = binding.to == "queue" and binding.queue == names.request_queue(binding.routing_key)
    if binding.exchange == names.request_exchange and not ours:
        return f"takes requests of key {binding.routing_key!r}{what} that no worker of it will see; remove it"
    return None


def _comparable(users: Iterable[User]) -> list[User]:
    """Return users in a comparable form: a broker knows no roles and no order of tags."""
    return [replace(one, role="", tags=tuple(sorted(one.tags))) for one in users]


def _differences(kind: str, expected: Iterable[Any], live: Iterable[Any], *, by: str = "name") -> Iterator[Finding]:
    """Compare values of one class, matched by one of their fields, field for field."""
    there = {getattr(one, by): one for one in live}
    for one in expected:
        name = getattr(one, by)
        actual = there.get(name)
        if actual is None:
            yield Finding("missing", f"{kind} {name}", f"is not on the broker; {_APPLY}")
            continue
        for part in one.__dataclass_fields__:
            wanted, found = getattr(one, part), getattr(actual, part)
            if wanted != found:
                yield Finding(
                    "differs", f"{kind} {name}", f"{part} is {_plain(found)}, declared is {_plain(wanted)}; {_APPLY}"
                )


def _plain(value: object) -> str:
    return repr(dict(value) if isinstance(value, Mapping) else value)
