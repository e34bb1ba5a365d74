"""The topology linter: mistakes that a broker accepts silently and that lose messages later.

Pure. Each rule is a function from a topology to findings; `lint` runs them all. It checks the model before it
is applied, and, through `drift`, the objects of a live broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from osrdyne_pool.topology import Policy, Queue, QueueType, Topology, sample_request_queues
from osrdyne_protocol.keys import SHORT_STRING_BYTES

#: Keys that only queues understand (RabbitMQ documentation, "Policies").
QUEUE_ONLY_KEYS = frozenset(
    {
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
        "overflow",
        "delivery-limit",
        "message-ttl",
        "max-length",
        "max-length-bytes",
        "consumer-timeout",
        "expires",
        "max-age",
    }
)

#: Types of arguments and policy keys that a broker checks late or not at all.
EXPECTED_TYPES: Mapping[str, type] = {
    "alternate-exchange": str,
    "dead-letter-exchange": str,
    "dead-letter-routing-key": str,
    "dead-letter-strategy": str,
    "overflow": str,
    "max-age": str,
    "delivery-limit": int,
    "message-ttl": int,
    "max-length": int,
    "max-length-bytes": int,
    "consumer-timeout": int,
    "expires": int,
    "queue-type": str,
    "single-active-consumer": bool,
    "stream-max-segment-size-bytes": int,
}

#: What a policy's `apply-to` means by queue type; `queues` and `all` take every type.
_QUEUE_TYPES: Mapping[str, str] = {"quorum_queues": "quorum", "classic_queues": "classic", "streams": "stream"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake: which rule, on which object, what is wrong and what to do."""

    rule: str
    object: str
    problem: str


def lint(topology: Topology, request_queues: Iterable[str] = ()) -> list[Finding]:
    """Return all findings.

    `request_queues` are names of dynamic quorum queues that must be covered too, for example the live ones. A
    topology that names its pool is also judged with samples of them.
    """
    samples = sample_request_queues(topology.pool) if topology.pool else ()
    dynamic = [Queue(name) for name in dict.fromkeys((*samples, *request_queues))]
    whole = replace(topology, queues=(*topology.queues, *dynamic))
    return [finding for rule in _RULES for finding in rule(whole, dynamic)]


def matches(policy: Policy, kind: str | QueueType, name: str) -> bool:
    """Return whether a policy applies to an object: `kind` is `exchange` or a queue type.

    A pattern that this cannot read (the broker's dialect, PCRE, has more) matches nothing here; `lint` reports it.
    """
    wanted = ("exchanges", "all") if kind == "exchange" else ("queues", "all")
    if policy.apply_to not in wanted and _QUEUE_TYPES.get(policy.apply_to) != kind:
        return False
    try:
        return re.search(policy.pattern, name) is not None
    except re.error:
        return False


def effective(policies: Iterable[Policy], kind: str | QueueType, name: str) -> Policy | None:
    """Return the policy that wins for an object: the matching one of highest priority."""
    return max(
        (policy for policy in policies if matches(policy, kind, name)), key=lambda policy: policy.priority, default=None
    )


def _objects(topology: Topology) -> Iterator[tuple[str, str]]:
    yield from (("exchange", exchange.name) for exchange in topology.exchanges)
    yield from ((queue.type, queue.name) for queue in topology.queues)


def _overlaps(topology: Topology, _: list[Queue]) -> Iterator[Finding]:
    seen: set[frozenset[str]] = set()
    for kind, name in _objects(topology):
        matching = [policy for policy in topology.policies if matches(policy, kind, name)]
        for index, policy in enumerate(matching):
            for other in matching[index + 1 :]:
                pair = frozenset((policy.name, other.name))
                if policy.priority == other.priority and pair not in seen:
                    seen.add(pair)
                    yield Finding(
                        "policy-overlap",
                        f"policies {policy.name} and {other.name}",
                        f"both match {kind} '{name}' with priority {policy.priority}, so the broker picks either; "
                        "give them different priorities or patterns that do not overlap",
                    )


def _unanchored(topology: Topology, _: list[Queue]) -> Iterator[Finding]:
    for policy in topology.policies:
        try:
            re.compile(policy.pattern)
        except re.error as error:
            yield Finding("policy-pattern", f"policy {policy.name}", f"pattern {policy.pattern!r}: {error}")
            continue
        if not all(alternative.startswith("^") for alternative in _alternatives(policy.pattern)):
            yield Finding(
                "policy-unanchored",
                f"policy {policy.name}",
                f"pattern {policy.pattern!r} also matches names that only contain it; "
                "begin it, and each part between '|', with '^'",
            )


def _alternatives(pattern: str) -> list[str]:
    """Split a pattern at each '|' that is outside of parentheses, classes and escapes."""
    parts, depth, in_class, escaped = [""], 0, False, False
    for character in pattern:
        if not (escaped or in_class):
            depth += {"(": 1, ")": -1}.get(character, 0)
            if character == "|" and depth == 0:
                parts.append("")
                continue
        if not escaped and character in "[]":
            in_class = character == "["
        escaped = character == "\\" and not escaped
        parts[-1] += character
    return parts


def _misplaced_keys(topology: Topology, _: list[Queue]) -> Iterator[Finding]:
    for policy in topology.policies:
        if policy.apply_to in ("exchanges", "all"):
            for key in sorted(QUEUE_ONLY_KEYS & policy.definition.keys()):
                yield Finding(
                    "queue-key-in-exchange-policy",
                    f"policy {policy.name}",
                    f"'{key}' has no effect on an exchange; put it in a policy that applies to queues",
                )
        if policy.apply_to != "exchanges" and "alternate-exchange" in policy.definition:
            yield Finding(
                "exchange-key-in-queue-policy",
                f"policy {policy.name}",
                "'alternate-exchange' has no effect on a queue; put it in a policy that applies to exchanges",
            )
        for key in ("queue-type", "x-queue-type"):
            if key in policy.definition:
                yield Finding(
                    "queue-type-in-policy",
                    f"policy {policy.name}",
                    "a policy cannot set the queue type; give the queue the argument 'x-queue-type'",
                )


def _dead_letter_routes(topology: Topology, dynamic: list[Queue]) -> Iterator[Finding]:
    exchanges = {exchange.name for exchange in topology.exchanges}
    bound = {binding.exchange for binding in topology.bindings}
    alternates = {
        policy.definition.get("alternate-exchange")
        for policy in topology.policies
        if policy.apply_to in ("exchanges", "all")
    }
    holds_requests = {binding.queue for binding in topology.bindings if binding.exchange in alternates}
    holds_requests |= {queue.name for queue in dynamic}
    for queue in topology.queues:
        policy = effective(topology.policies, queue.type, queue.name)
        definition = dict(policy.definition) if policy else {}
        target = queue.arguments.get("x-dead-letter-exchange", definition.get("dead-letter-exchange"))
        if target is None:
            if queue.name in holds_requests:
                yield Finding(
                    "no-dead-letter-route",
                    f"queue {queue.name}",
                    "what expires or fails here vanishes without an answer; set 'dead-letter-exchange' by policy",
                )
            continue
        if target not in exchanges or target not in bound:
            yield Finding(
                "dead-letter-route-ends",
                f"queue {queue.name}",
                f"dead-letter exchange '{target}' {'has no queue' if target in exchanges else 'does not exist'}; "
                "declare it and bind a queue to it",
            )
        # What is dropped on purpose is only counted.
        counted = queue.name not in holds_requests and definition.get("dead-letter-strategy") == "at-most-once"
        if (
            not counted
            and queue.type == "quorum"
            and not (
                definition.get("dead-letter-strategy") == "at-least-once"
                and definition.get("overflow") == "reject-publish"
            )
        ):
            yield Finding(
                "dead-letter-at-most-once",
                f"queue {queue.name}",
                "dead letters can be lost; set 'dead-letter-strategy: at-least-once' and 'overflow: reject-publish'",
            )


def _types(topology: Topology, _: list[Queue]) -> Iterator[Finding]:
    tables: list[tuple[str, Mapping[str, object]]] = [
        *((f"policy {policy.name}", policy.definition) for policy in topology.policies),
        *((f"queue {queue.name}", queue.arguments) for queue in topology.queues),
        *((f"exchange {exchange.name}", exchange.arguments) for exchange in topology.exchanges),
    ]
    for owner, table in tables:
        for name, value in table.items():
            expected = EXPECTED_TYPES.get(name.removeprefix("x-"))
            if expected is not None and type(value) is not expected:
                yield Finding(
                    "argument-type",
                    owner,
                    f"'{name}' is {value!r} of type {type(value).__name__}; give it as {expected.__name__}",
                )


def _long_names(topology: Topology, _: list[Queue]) -> Iterator[Finding]:
    for kind, name in [*_objects(topology), *(("policy", policy.name) for policy in topology.policies)]:
        length = len(name.encode("utf-8"))
        if length > SHORT_STRING_BYTES:
            yield Finding(
                "name-too-long",
                f"{kind} {name[:40]}...",
                f"name of {length} bytes; a broker holds at most {SHORT_STRING_BYTES}",
            )


_RULES: tuple[Callable[[Topology, list[Queue]], Iterator[Finding]], ...] = (
    _overlaps,
    _unanchored,
    _misplaced_keys,
    _dead_letter_routes,
    _types,
    _long_names,
)
