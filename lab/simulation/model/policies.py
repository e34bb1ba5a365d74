"""Which policy holds for an object, and what a queue makes of it and of its arguments. Pure.

RabbitMQ: of all policies that match an object, the one of the highest priority holds, alone. Numbers that both
an argument and a policy give: the smaller holds, but of two delivery limits never "no limit". Texts: the
argument's holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from osrdyne_pool.topology import Policy

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
    #: how often a message may come back; None: without limit
    delivery_limit: int | None = None
    ttl: float | None = None
    max_length: int | None = None
    reject_publish: bool = False
    consumer_timeout: float | None = None
    #: the queue goes when it is unused for so long
    expires: float | None = None


#: RabbitMQ's own: since 4.0 for quorum queues, and for consumers.
_DELIVERY_LIMIT = 20
_CONSUMER_TIMEOUT = 1800.0


def rules(kind: str, arguments: Mapping[str, Any], policy: Mapping[str, Any]) -> Rules:
    """Return what holds for a queue of a type."""

    def text(name: str) -> Any:
        return arguments.get(f"x-{name}", policy.get(name))

    def least(name: str) -> int | None:
        given = [limit for limit in (arguments.get(f"x-{name}"), policy.get(name)) if limit is not None]
        return min(given) if given else None

    def seconds(name: str) -> float | None:
        value = least(name)
        return None if value is None else value / 1000

    limit = None
    if kind == "quorum":
        limits = [
            limit for limit in (arguments.get("x-delivery-limit"), policy.get("delivery-limit")) if limit is not None
        ]
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
        consumer_timeout=seconds("consumer-timeout") or _CONSUMER_TIMEOUT,
        expires=seconds("expires"),
    )
