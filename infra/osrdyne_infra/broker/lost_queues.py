"""Which static queues the broker lost when it was killed. Only asks; `mend` declares them again."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Protocol

from osrdyne_infra.errors import BrokerUnusable
from osrdyne_pool.broker import lost, quorum
from osrdyne_pool.broker.lost import Evidence


class Members(Protocol):
    """Says what the members of a quorum queue report; `management.Management` does."""

    def members(self, vhost: str, queue: str) -> tuple[quorum.Member, ...]: ...


def find(broker: Members, vhost: str, queues: Collection[str]) -> frozenset[str]:
    """Return those of some quorum queues that are lost. Takes `LOOK_AGAIN_SECONDS` where one may be."""
    evidence = Evidence().after(_look(broker, vhost, queues), time.monotonic())
    if not evidence.suspects:
        return frozenset()
    time.sleep(lost.LOOK_AGAIN_SECONDS)
    return evidence.after(_look(broker, vhost, evidence.suspects), time.monotonic()).lost


def _look(broker: Members, vhost: str, queues: Collection[str]) -> dict[str, bool]:
    looks: dict[str, bool] = {}
    for name in queues:
        try:
            looks[name] = quorum.never_led(broker.members(vhost, name))
        except BrokerUnusable:
            continue  # as while the broker starts the queue: that proves nothing
    return looks
