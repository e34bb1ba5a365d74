"""Addresses for RabbitMQ from 4.0: its address format v2. Pure.

| for | a sender's address | a receiver's address |
|---|---|---|
| all servers | `/exchanges/broadcast.{exchange}.{topic}` | `/queues/broadcast.{exchange}.{topic}.{server}` |
| one server | `/queues/exclusive.{exchange}.{topic}.{server}` | the same |
| any server | `/queues/unicast.{exchange}.{topic}` | the same |
| notifications | `/queues/notify.{exchange}.{topic}.{priority}` | the same |

RabbitMQ takes percent encoding off, so the names of queues and exchanges are those words, in which each name is encoded
once more. The broker makes none of them when a program attaches (www.rabbitmq.com/docs/amqp, "Address v2").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from osrdyne_bus.addresses.brokered import dotted
from osrdyne_bus.addresses.schemes import server_of
from osrdyne_bus.errors import InvalidTarget
from osrdyne_bus.targets import Priority, Target

#: How the address of a queue begins.
QUEUES = "/queues/"
#: Most bytes of the name of a queue or exchange.
MOST_NAME = 255
#: Milliseconds after which the queue of a server that is gone is deleted, with what is in it.
SERVER_QUEUE_EXPIRES_MS = 30 * 60 * 1000


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A queue as it has to be declared before a receiver attaches to it."""

    name: str
    arguments: Mapping[str, str | int]
    #: The exchange of the type fanout that it is bound to.
    exchange: str | None = None


def queue_of(address: str) -> QueueDeclaration:
    """Return the queue behind a receiver's address, one of those above.

    What any server of a topic takes is kept until one does; what one server takes is deleted some time after it.
    """
    name = unquote(address.removeprefix(QUEUES))
    kind, *words = name.split(".")
    arguments: dict[str, str | int] = {"x-queue-type": "quorum"}
    if kind in ("exclusive", "broadcast"):
        arguments["x-expires"] = SERVER_QUEUE_EXPIRES_MS
    return QueueDeclaration(name, arguments, ".".join((kind, *words[:2])) if kind == "broadcast" else None)


class RabbitMQ:
    """Queues, and an exchange of the type fanout for each topic that has one."""

    __slots__ = ()
    routed = False

    def shared(self, target: Target) -> str:
        return _queue("unicast", target.exchange, target.topic)

    def server(self, target: Target) -> str:
        return _queue("exclusive", target.exchange, target.topic, server_of(target))

    def fanout(self, target: Target) -> str:
        return f"/exchanges/{_quoted('broadcast', target.exchange, target.topic)}"

    def fanout_subscription(self, target: Target) -> str:
        return _queue("broadcast", target.exchange, target.topic, server_of(target))

    def notifications(self, target: Target, priority: Priority) -> str:
        return _queue("notify", target.exchange, target.topic, priority)

    def sends_settled(self, address: str) -> bool:
        return False

    def capabilities(self, address: str) -> tuple[str, ...]:
        return ()


def _queue(*names: str) -> str:
    return f"{QUEUES}{_quoted(*names)}"


def _quoted(*names: str) -> str:
    name = dotted(*names)
    if len(name) > MOST_NAME:
        raise InvalidTarget(
            f"{names[1]!r}, {names[2]!r}: the name on RabbitMQ has {len(name)} bytes, and {MOST_NAME} are allowed; "
            "shorten exchange, topic or server (a byte that is not an ASCII letter or digit counts as three)"
        )
    return quote(name, safe="")
