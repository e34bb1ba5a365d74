"""Addresses for Apache Qpid Broker-J: queues that it makes when a program attaches, and its exchange for topics. Pure.

Queues are those of `brokered`. The broker makes no exchange for a receiver, so what is for all servers goes over one
that each virtual host has: `amq.topic/broadcast.{exchange}.{topic}`. Each receiver there has a queue of its own.
"""

from __future__ import annotations

from osrdyne_bus.addresses.brokered import Brokered
from osrdyne_bus.targets import Target

#: How the address of the exchange for topics begins.
_TOPICS = "amq.topic/"


class Qpid(Brokered):
    """Names of queues, and routing keys of the exchange `amq.topic`."""

    __slots__ = ()

    def fanout(self, target: Target) -> str:
        return f"{_TOPICS}{super().fanout(target)}"

    def capabilities(self, address: str) -> tuple[str, ...]:
        return ()
