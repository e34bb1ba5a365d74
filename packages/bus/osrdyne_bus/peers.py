"""Where a bus connects to: the addresses of its peers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import unquote, urlsplit

from osrdyne_bus.errors import MessagingError
from osrdyne_runtime import addresses

_LOOKS_LIKE = "it looks like amqp://user:password@host:5672/vhost, or amqps:// for TLS"


#: One address or several, or a function that returns the present ones.
Addresses = str | Sequence[str] | Callable[[], str | Sequence[str]]


class InvalidPeer(MessagingError, ValueError):
    """The address of a peer cannot be read; the text does not repeat it, because it may hold a password."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One broker or router."""

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    #: What the open frame names as `hostname`; None stands for the host.
    hostname: str | None = None
    tls: bool = False

    @classmethod
    def parse(cls, address: str) -> Self:
        """Read `amqp://user:password@host:port/vhost`, or `amqps://` for TLS. Raises InvalidPeer.

        The ports are 5672 and 5671 unless the address says otherwise. A virtual host is sent as RabbitMQ reads it,
        `vhost:NAME` in the field `hostname` of the open frame. Other peers have a form of their own there:
        `?hostname=TEXT` sends that text as it is. An address has one of them.
        """
        if wrong := addresses.problem(address, "amqp", "amqps"):
            raise InvalidPeer(f"the address of a peer {wrong}; {_LOOKS_LIKE}")
        parts = urlsplit(address)
        try:
            query = addresses.parameters(parts.query, ("hostname",))
        except addresses.UnusableQuery as error:
            raise InvalidPeer(f"the address of a peer {error}; {_LOOKS_LIKE}") from None
        if parts.password and not parts.username:
            raise InvalidPeer(f"the address of a peer has a password and no user; {_LOOKS_LIKE}")
        host, port = str(parts.hostname), parts.port
        names = [None if part is None else unquote(part) for part in (parts.username, parts.password)]
        path = unquote(parts.path.removeprefix("/"))
        if path and query:
            raise InvalidPeer(
                "the address of a peer has a path and ?hostname=; give one of them: both name a virtual host"
            )
        tls = parts.scheme == "amqps"
        hostname = query["hostname"] if query else f"vhost:{path}" if path else None
        return cls(host, port or (5671 if tls else 5672), names[0] or None, names[1], hostname, tls)


def peers_of(given: Addresses) -> tuple[Peer, ...]:
    """Return the peers of one address or several. Raises InvalidPeer, also for none, and where they cannot be read."""
    found = addresses.given(given, "the address of a peer", InvalidPeer)
    if isinstance(found, bytes) or not isinstance(found, Sequence):
        raise InvalidPeer(f"the address of a peer is {type(found).__name__}, neither text nor a sequence of texts")
    if not found:
        raise InvalidPeer(f"there is no peer to connect to; give one address or several: {_LOOKS_LIKE}")
    return tuple(map(Peer.parse, [found] if isinstance(found, str) else found))
