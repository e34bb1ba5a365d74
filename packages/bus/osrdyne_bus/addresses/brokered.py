"""Addresses for brokers that make a queue or topic when a program attaches: the first word says which. Pure.

| for | address | the broker makes |
|---|---|---|
| all servers | `broadcast.{exchange}.{topic}` | a topic |
| one server | `exclusive.{exchange}.{topic}.{server}` | a queue |
| any server | `unicast.{exchange}.{topic}` | a queue |
| notifications | `notify.{exchange}.{topic}.{priority}` | a queue |

A link asks for that by a capability, `queue` or `topic`: without one, Artemis makes topics of all of them.
"""

from __future__ import annotations

from osrdyne_bus.addresses.schemes import quoted, server_of
from osrdyne_bus.targets import Priority, Target

_ASKED = {"unicast": ("queue",), "exclusive": ("queue",), "broadcast": ("topic",), "notify": ("queue",)}


class Brokered:
    """Names of queues and topics, with dots between words."""

    __slots__ = ()
    routed = False

    def shared(self, target: Target) -> str:
        return dotted("unicast", target.exchange, target.topic)

    def server(self, target: Target) -> str:
        return dotted("exclusive", target.exchange, target.topic, server_of(target))

    def fanout(self, target: Target) -> str:
        return dotted("broadcast", target.exchange, target.topic)

    def fanout_subscription(self, target: Target) -> str:
        server_of(target)
        return self.fanout(target)

    def notifications(self, target: Target, priority: Priority) -> str:
        return dotted("notify", target.exchange, target.topic, priority)

    def sends_settled(self, address: str) -> bool:
        return False

    def capabilities(self, address: str) -> tuple[str, ...]:
        return _ASKED.get(address.partition(".")[0], ())


def dotted(*names: str) -> str:
    """Return names as the words of one."""
    return ".".join(map(quoted, names))
