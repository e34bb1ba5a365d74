"""Drift: the differences between a live broker and the declared topology. Pure; reports, never repairs.

It compares objects by name, and then which policy wins on each of them, because one foreign policy of higher priority
silently disables dead-lettering or the alternate exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from osrdyne_pool.broker import default_login
from osrdyne_pool.broker.changes import others
from osrdyne_pool.differences import between
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
        impersonators = (user.name for user in live.users if "impersonator" in user.tags)
        findings += [Finding("impersonator", f"user {name}", _IMPERSONATES) for name in impersonators]
    return findings


def concerning(expected: Topology, live: Topology) -> Topology:
    """Return the objects of a live broker that affect a pool, for `lint`, without those of others.

    Request queues are left out: `lint` gets their names separately.
    """
    names = {exchange.name for exchange in expected.exchanges} | {queue.name for queue in expected.queues}
    objects = list(_objects(expected, live))
    policies = [policy for policy in live.policies if any(matches(policy, kind, name) for kind, name in objects)]
    ours = {policy.name for policy in expected.policies}
    targets = {str(policy.definition.get("dead-letter-exchange")) for policy in policies}
    return replace(
        live,
        exchanges=tuple(exchange for exchange in live.exchanges if exchange.name in names | targets),
        queues=tuple(queue for queue in live.queues if queue.name in names),
        policies=tuple(policy for policy in live.policies if policy in policies or policy.name in ours),
        pool=expected.pool,
    )


def request_queues(pool: str, live: Topology) -> list[Queue]:
    """Return the live queues whose names begin like those of a pool's request queues."""
    prefix = PoolNames(pool).request_queue_prefix
    return [queue for queue in live.queues if queue.name.startswith(prefix)]


def _objects(expected: Topology, live: Topology) -> Iterator[tuple[str, str]]:
    """Kind and name of all our objects that a policy can apply to, including request queues."""
    yield from (("exchange", exchange.name) for exchange in expected.exchanges)
    yield from ((queue.type, queue.name) for queue in expected.queues)
    if expected.pool:
        there = {request_queue.name: request_queue.type for request_queue in request_queues(expected.pool, live)}
        yield from ((kind, name) for name, kind in there.items())
        yield from (("quorum", name) for name in sample_request_queues(expected.pool) if name not in there)


def _overridden(expected: Topology, live: Topology) -> Iterator[Finding]:
    here = {policy.name: policy for policy in live.policies}
    for kind, name in _objects(expected, live):
        declared = effective(expected.policies, kind, name)
        ours = here.get(declared.name, declared) if declared else None
        rivals = [
            policy
            for policy in live.policies
            if matches(policy, kind, name)
            and (ours is None or (policy.name != ours.name and policy.priority >= ours.priority))
        ]
        if not rivals:
            continue
        winner = max(rivals, key=lambda rival: rival.priority)
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
    for name in sorted(others(expected, live) - {*expected.neighbours}):
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
    for binding in expected.bindings:
        if binding not in there:
            yield Finding(
                "missing", f"binding {binding.exchange} -> {binding.queue}", f"is not on the broker; {_APPLY}"
            )


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
    return [replace(user, role="", tags=tuple(sorted(user.tags))) for user in users]


def _differences(kind: str, expected: Iterable[Any], live: Iterable[Any], *, by: str = "name") -> Iterator[Finding]:
    """Compare values of one class, matched by one of their fields, field for field."""
    there = {getattr(item, by): item for item in live}
    for item in expected:
        name = getattr(item, by)
        actual = there.get(name)
        if actual is None:
            yield Finding("missing", f"{kind} {name}", f"is not on the broker; {_APPLY}")
            continue
        for part in item.__dataclass_fields__:
            values = list(between({part: getattr(actual, part)}, {part: getattr(item, part)}))
            if values:
                yield Finding("differs", f"{kind} {name}", f"{', '.join(map(str, values))}; {_APPLY}")
