"""A connection of a bus, with what the bus needs to use it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from osrdyne_bus.addresses import RabbitMQ, Scheme
from osrdyne_bus.addresses.rabbitmq import QUEUES, QueueDeclaration, queue_of
from osrdyne_bus.aio.senders import AnyAddress, Senders
from osrdyne_bus.engine import BusConnection, SendLink, Subscription
from osrdyne_bus.engine.rabbitmq_nodes import RabbitMQNodes
from osrdyne_bus.errors import LinkRefused
from osrdyne_protocol.names import is_reply_address

#: What a peer offers where one link can reach any address.
ANY_ADDRESS = "ANONYMOUS-RELAY"
#: A reply queue on RabbitMQ without a receiver is deleted after this many milliseconds, longer than any reconnection
#: takes. It is classic: RabbitMQ advises against quorum queues that are short-lived.
REPLY_QUEUE: Mapping[str, str | int] = {"x-queue-type": "classic", "x-expires": 600_000}


@dataclass(slots=True)
class PeerConnection:
    """A connection, the addresses that its peer understands, and its sender links."""

    connection: BusConnection
    scheme: Scheme
    senders: Senders
    #: Where queues have to be declared; None where the peer makes what is attached to.
    nodes: RabbitMQNodes | None
    #: Where replies to this connection go, once there is such an address, what attaches to it, and its link.
    reply_to: str = ""
    attaching_replies: asyncio.Task[None] | None = None
    replies: Subscription | None = None

    @property
    def replies_by_any_link(self) -> bool:
        """Whether replies leave over one link for any address.

        A broker releases what no queue takes. A router passes on the credit of one receiver, so that each needs a link.
        """
        return ANY_ADDRESS in self.connection.capabilities and self.nodes is not None

    def is_reply_address(self, address: str) -> bool:
        """Whether a reply may go there. On RabbitMQ only to what is for replies: `address` comes from a caller, whose
        own rights may not reach other queues. An exchange could refuse the link of all replies.
        """
        if self.nodes is None:
            return True
        return address.startswith(QUEUES) and is_reply_address(unquote(address.removeprefix(QUEUES)))

    async def provide(self, address: str) -> None:
        """Make what a receiver attaches to, where the peer does not. Raises MessagingError."""
        if self.nodes is not None:
            await self.nodes.declare(queue_of(address))

    async def sender(self, address: str | AnyAddress) -> SendLink:
        """Return the link to an address, attached where it is not yet. Raises LinkRefused and PeerLost.

        RabbitMQ 4.0 ends the session of a link that it refuses, and proton keeps what a session was. So a queue that is
        not there is not attached to.
        """
        if self.nodes is not None and isinstance(address, str) and address.startswith(QUEUES):
            name = unquote(address.removeprefix(QUEUES))
            if self.senders.ready(address) is None and not await self.nodes.has(name):
                said = f"{self.connection.peer} has no queue {name!r}: no server was ever there"
                raise LinkRefused(said, condition="amqp:not-found")
        return await self.senders.attached(address)

    async def provide_reply_queue(self, name: str) -> str:
        """Make a queue for replies on RabbitMQ, unless it is there, and return its address. Raises MessagingError."""
        assert self.nodes is not None
        await self.nodes.declare(QueueDeclaration(name, REPLY_QUEUE))
        return f"{QUEUES}{quote(name, safe='')}"


def join(connection: BusConnection, scheme: Scheme, *, unused: float) -> PeerConnection:
    """Set up a connection that was just opened."""
    nodes = RabbitMQNodes(connection) if isinstance(scheme, RabbitMQ) else None
    return PeerConnection(connection, scheme, Senders(connection, scheme, unused=unused), nodes)
