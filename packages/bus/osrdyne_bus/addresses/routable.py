"""Addresses for a mesh of routers: the address space comes first, as routers match the longest prefix. Pure.

| for | address |
|---|---|
| all servers | `{root}/rpc/multicast/{exchange}/{topic}` |
| one server | `{root}/rpc/unicast/{exchange}/{topic}/{server}` |
| any server | `{root}/rpc/anycast/{exchange}/{topic}` |
| notifications | `{root}/notify/anycast/{exchange}/{topic}.{priority}` |

A router gives each space its semantics by the prefix, and can send `notify` to a broker and `rpc` from peer to peer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from osrdyne_bus.addresses.schemes import quoted, server_of
from osrdyne_bus.targets import Priority, Target

#: The root, unless a setting says another.
ROOT = "osrdyne/bus"


@dataclass(frozen=True, slots=True)
class Routable:
    """Addresses below one root, which keeps this bus apart from other applications on the mesh."""

    root: str = ROOT
    routed: ClassVar[bool] = True

    def shared(self, target: Target) -> str:
        return self._of("rpc/anycast", target.exchange, target.topic)

    def server(self, target: Target) -> str:
        return self._of("rpc/unicast", target.exchange, target.topic, server_of(target))

    def fanout(self, target: Target) -> str:
        return self._of("rpc/multicast", target.exchange, target.topic)

    def fanout_subscription(self, target: Target) -> str:
        server_of(target)
        return self.fanout(target)

    def notifications(self, target: Target, priority: Priority) -> str:
        return f"{self._of('notify/anycast', target.exchange, target.topic)}.{priority}"

    def sends_settled(self, address: str) -> bool:
        """For all servers: a router has the outcome when the slowest of them has said it, and 250 wait for theirs."""
        return address.startswith(f"{self.root}/rpc/multicast/")

    def capabilities(self, address: str) -> tuple[str, ...]:
        return ()

    def _of(self, space: str, *names: str) -> str:
        return "/".join((self.root, space, *map(quoted, names)))
