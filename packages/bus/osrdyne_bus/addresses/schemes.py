"""The interface of all address schemes, and what they share. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol
from urllib.parse import quote

from osrdyne_bus.errors import InvalidTarget
from osrdyne_bus.targets import Priority, Target


class Scheme(Protocol):
    """Gives targets their addresses. Within a scheme, no two targets share one, for whatever kind of message."""

    def shared(self, target: Target) -> str:
        """Return where one of the servers of a topic takes each message. `target.server` does not matter."""
        ...

    def server(self, target: Target) -> str:
        """Return where one server takes all messages. Raises InvalidTarget for a target without a server."""
        ...

    def fanout(self, target: Target) -> str:
        """Return where to send what every server of a topic takes. `target.server` does not matter."""
        ...

    def fanout_subscription(self, target: Target) -> str:
        """Return where one server takes what is sent to `fanout`. Raises InvalidTarget for one without a server."""
        ...

    def notifications(self, target: Target, priority: Priority) -> str:
        """Return where one of the subscribers takes each notification. `target.server` does not matter."""
        ...

    @property
    def routed(self) -> bool:
        """Whether these are addresses of routers: they keep no message, and pass on what its receiver says of it."""
        ...

    def sends_settled(self, address: str) -> bool:
        """Return whether what is sent to one of these addresses is settled when it leaves: no one answers for it."""
        ...

    def capabilities(self, address: str) -> tuple[str, ...]:
        """Return what a link to one of these addresses, or to one for replies, asks of the peer."""
        ...


@lru_cache(4096)
def quoted(name: str) -> str:
    """Return a name in percent encoding (RFC 3986), without the separators and wildcards of any peer.

    A router and Artemis part words at dots as well as at slashes, so a dot is encoded, too.
    """
    return quote(name, safe="").replace(".", "%2E")


def server_of(target: Target) -> str:
    """Return the server of a target. Raises InvalidTarget where it names none."""
    if target.server is None:
        raise InvalidTarget(f"the target {target.topic!r} of {target.exchange!r} names no server; give it `server`")
    return target.server
