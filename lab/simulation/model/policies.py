"""Which policy holds for an object, and the rules of a queue that follow from it and from the queue's arguments. Pure.

As in RabbitMQ: of all policies that match an object, the one of the highest priority holds, alone. Where an argument
and a policy both give a number, the smaller holds; of two delivery limits, "no limit" does not hold. Where both give a
text, the argument's holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from osrdyne_pool.topology import Policy

#: Kinds of objects that a policy applies to, by its `apply-to`.
_APPLIES: Mapping[str, tuple[str, ...]] = {
    "exchanges": ("exchange",),
    "queues": ("classic", "quorum", "stream"),
    "classic_queues": ("classic",),
    "quorum_queues": ("quorum",),
    "streams": ("stream",),
    "all": ("exchange", "classic", "quorum", "stream"),
}


@lru_cache(maxsize=4096)
def matches(pattern: str, name: str) -> bool:
    return re.search(pattern, name) is not None


def effective(policies: Iterable[Policy], kind: str, name: str) -> Mapping[str, Any]:
    """Return the definition of the policy that holds for an exchange or a queue of a type."""
    fitting = [policy for policy in policies if kind in _APPLIES[policy.apply_to] and matches(policy.pattern, name)]
    return max(fitting, key=lambda policy: policy.priority).definition if fitting else {}


@dataclass(frozen=True, slots=True)
class Rules:
    """What a queue does with its messages; times in seconds."""

    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    at_least_once: bool = False
    #: How often a message may come back; None for no limit.
    delivery_limit: int | None = None
    ttl: float | None = None
    max_length: int | None = None
    reject_publish: bool = False
    consumer_timeout: float | None = None
    #: A queue that is unused for so long is deleted.
    expires: float | None = None


#: RabbitMQ's own: the delivery limit of quorum queues since 4.0, and the consumer timeout.
_DELIVERY_LIMIT = 20
_CONSUMER_TIMEOUT_SECONDS = 1800.0


def rules(kind: str, arguments: Mapping[str, Any], policy: Mapping[str, Any]) -> Rules:
    """Return what holds for a queue of a type."""

    def text(name: str) -> Any:
        return arguments.get(f"x-{name}", policy.get(name))

    def numbers(name: str) -> list[int]:
        return [number for number in (arguments.get(f"x-{name}"), policy.get(name)) if number is not None]

    def least(name: str) -> int | None:
        return min(numbers(name), default=None)

    def seconds(name: str) -> float | None:
        value = least(name)
        return None if value is None else value / 1000

    limit = None
    if kind == "quorum":
        limits = numbers("delivery-limit")
        limit = (max(limits) if min(limits) < 0 else min(limits)) if limits else _DELIVERY_LIMIT
    reject = text("overflow") == "reject-publish"
    exchange = text("dead-letter-exchange")
    return Rules(
        dead_letter_exchange=exchange,
        dead_letter_routing_key=text("dead-letter-routing-key"),
        at_least_once=kind == "quorum" and text("dead-letter-strategy") == "at-least-once" and reject,
        delivery_limit=None if limit is None or limit < 0 else limit,
        ttl=seconds("message-ttl"),
        max_length=least("max-length"),
        reject_publish=reject,
        consumer_timeout=seconds("consumer-timeout") or _CONSUMER_TIMEOUT_SECONDS,
        expires=seconds("expires"),
    )
