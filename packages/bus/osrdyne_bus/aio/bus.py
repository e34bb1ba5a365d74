"""The bus of a program: its connection to a broker or mesh, and the messages that leave and come over it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from osrdyne_bus.addresses import DYNAMIC, Scheme, name_of, scheme_for
from osrdyne_bus.aio import mesh
from osrdyne_bus.aio.calls import WaitingCalls
from osrdyne_bus.aio.kept_connection import KeptConnection, Tls
from osrdyne_bus.aio.peer_connection import PeerConnection
from osrdyne_bus.aio.senders import AnyAddress
from osrdyne_bus.aio.sending import AddressOf, MessageSender
from osrdyne_bus.aio.subscriptions import KeptSubscription
from osrdyne_bus.counts import BusCounts, OutcomeCounter
from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine import IncomingMessage
from osrdyne_bus.errors import BusClosed, InvalidTarget, StartTimedOut
from osrdyne_bus.messages.envelopes import Envelope
from osrdyne_bus.peers import Addresses
from osrdyne_bus.settings import BusSettings
from osrdyne_bus.targets import Target
from osrdyne_calls.closing import CLOSE_SECONDS, in_time
from osrdyne_protocol.durations import timeout_of

#: The link that all replies leave over, where one will do.
REPLIES = AnyAddress("replies")
#: Stands for the own address for replies, until there is one.
ITSELF = AnyAddress("itself")


class AsyncBus:
    """A connection to one of several peers. Use it with `async with`, in one asyncio loop.

    When it ends, the next peer is tried, with growing pauses; subscriptions are attached again, and what was not sent
    waits. Calls whose reply cannot come any more end with PeerLost.
    """

    def __init__(
        self,
        peers: Addresses,
        *,
        settings: BusSettings | None = None,
        tls: Tls = None,
        mechanisms: str | None = None,
        name: str = "osrdyne",
    ) -> None:
        """Prepare a bus; nothing is sent before it is opened.

        `peers`: addresses as in `Peer.parse`, tried in their order. `tls`: the context for `amqps://`, by default
        that of the system; with a client certificate in it, and no user in the address, the login is EXTERNAL. Both
        may be functions, which are called at each connection: so a bus goes on with a new password or certificate.
        `mechanisms`: names of SASL mechanisms with spaces between; only these are used. `name`: what the peer shows.

        Raises InvalidPeer, and MessagingError for an addressing that there is not.
        """
        self.settings = settings or BusSettings()
        if self.settings.addressing != DYNAMIC:
            scheme_for(self.settings.addressing, {})
        #: What a peer shows of this program.
        self.name = name
        self.counts = BusCounts()
        self._count_message, self._count_reply, self._count_call = (
            OutcomeCounter(self.counts, kind) for kind in ("message", "reply", "call")
        )
        self._calls = WaitingCalls(self.settings.slots)
        self._connection = KeptConnection(
            peers,
            self.settings,
            tls=tls,
            mechanisms=mechanisms,
            name=name,
            replied=self._calls.replied,
            replies_lost=self._calls.fail_sent,
            counts=self.counts,
        )
        self._sender = MessageSender(self._connection, self.settings)
        self._closing: asyncio.Task[bool] | None = None
        self._subscriptions: list[KeptSubscription] = []

    async def open(self) -> None:
        """Connect to the first peer that can be reached. Raises ConnectFailed and LoginRefused, of the last peer."""
        await self._connection.open()

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """End calls that wait with BusClosed, and disconnect. Safe to repeat.

        Takes `timeout` seconds at most, whatever the peer does: then it disconnects without the peer's word. Does
        nothing in a fork: the connection is the other process's.
        """
        if not self._connection.is_here:
            return
        if self._closing is None:
            self._closing = asyncio.create_task(in_time(self._close(timeout), timeout))
        await asyncio.shield(self._closing)

    async def _close(self, timeout: float) -> None:
        last = await self._connection.end()
        self._calls.fail_all(BusClosed)
        if last is not None:
            await self._connection.leave(last, timeout)
        for subscription in list(self._subscriptions):
            await subscription.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def is_connected(self) -> bool:
        return self._connection.present is not None

    @property
    def peer(self) -> str | None:
        """Host and port of the present peer; None while there is none."""
        to_peer = self._connection.present
        return None if to_peer is None else to_peer.connection.peer

    @property
    def connections(self) -> int:
        """Connections that were opened."""
        return self.counts.connections

    @property
    def senders(self) -> int:
        """How many sender links are attached."""
        to_peer = self._connection.present
        return 0 if to_peer is None else len(to_peer.senders)

    @property
    def stalls(self) -> int:
        """How often a peer had used up the credit of a subscription, or of the address for replies."""
        return self.counts.stalls

    @property
    def received(self) -> int:
        """Messages that came, replies among them."""
        return self.counts.received

    @property
    def in_hand(self) -> int:
        """Messages that came and are not acknowledged."""
        windows = [self._connection.replies, *(subscription.window for subscription in list(self._subscriptions))]
        return sum(window.unacknowledged for window in windows)

    @property
    def calls(self) -> int:
        """Calls that wait for their reply."""
        return self._calls.number

    @property
    def addressing(self) -> str | None:
        """Which addresses targets have on the present connection; None while there is none."""
        to_peer = self._connection.present
        return None if to_peer is None else name_of(to_peer.scheme)

    @property
    def product(self) -> str | None:
        """What the present peer says it is, as in "RabbitMQ 4.3.6"; None where it says nothing."""
        to_peer = self._connection.present
        said = {} if to_peer is None else to_peer.connection.properties
        return " ".join(str(said[name]) for name in ("product", "version") if said.get(name)) or None

    # --- messages -----------------------------------------------------------------------------------------------------

    async def send(
        self,
        address: Callable[[Scheme], str],
        envelope: Envelope | Callable[[Scheme], Envelope],
        timeout: float,
    ) -> None:
        """Send a message and wait for its outcome, `timeout` seconds at most, also for a connection.

        The message may be a function of the addresses of the peer that it is sent to.

        Raises SendTimedOut, DeliveryFailure, DeliveryRejected, OutcomeUnknown, LinkRefused, PeerLost, BusClosed,
        InvalidTimeout, and OtherProcess in a fork of the process that opened this bus.
        """
        with self._count_message:
            await self._sender.send(
                lambda to_peer: address(to_peer.scheme),
                lambda to_peer: envelope(to_peer.scheme) if callable(envelope) else envelope,
                timeout,
            )

    async def reply(self, envelope: Envelope, timeout: float) -> None:
        """Send a message to its own address `to`, where a caller takes replies. Raises as `send`, and InvalidTarget."""

        def address(to_peer: PeerConnection) -> str | AnyAddress:
            to = envelope.to or ""
            if not to_peer.is_reply_address(to):
                raise InvalidTarget(f"{to!r} is not an address that a reply can be sent to")
            return REPLIES if to_peer.replies_by_any_link else to

        with self._count_reply:
            await self._sender.send(address, lambda _: envelope, timeout)

    async def call(
        self,
        address: Callable[[Scheme], str],
        make: Callable[[str, str], Envelope],
        timeout: float,
    ) -> Envelope:
        """Send a request and return the reply to it, within `timeout` seconds.

        `make` gets the name of the call and where its reply has to go. Raises as `send`, MessagingTimeout where the
        request was sent and nothing came back, and NoFreeSlot.
        """
        with self._count_call:
            return await self._call(lambda to_peer: address(to_peer.scheme), make, timeout)

    async def ping(self, timeout: float) -> None:
        """Send a message by way of the peer to this bus itself. Raises as `call`."""

        def address(to_peer: PeerConnection) -> str | AnyAddress:
            return REPLIES if to_peer.replies_by_any_link else to_peer.reply_to or ITSELF

        await self._call(address, lambda name, reply_to: Envelope(to=reply_to, correlation_id=name), timeout)

    async def _call(self, address: AddressOf, make: Callable[[str, str], Envelope], timeout: float) -> Envelope:
        self._connection.check_here()
        return await self._calls.call(self._sender, address, make, timeout)

    async def subscribe(
        self,
        address: Callable[[Scheme], str],
        credit: int,
        received: Callable[[IncomingMessage], None],
        *,
        timeout: float | None = None,
    ) -> KeptSubscription:
        """Receive what is sent to an address, also over later connections.

        It is attached within `timeout` seconds, also where there is no connection yet: by default within the setting
        `start_timeout`. Raises StartTimedOut, LinkRefused, PeerLost, BusClosed, InvalidTimeout.
        """
        self._connection.check_here()
        timeout = self.settings.start_timeout if timeout is None else timeout_of(timeout)
        made = KeptSubscription(self._connection.soon, address, CreditWindow(credit, self.counts), received)
        try:
            async with asyncio.timeout(timeout):
                await made.open()
        except TimeoutError:
            to_peer = self._connection.present
            if to_peer is None:
                raise StartTimedOut("", timeout, peer=None, trouble=self._connection.trouble) from None
            raise StartTimedOut(address(to_peer.scheme), timeout, peer=to_peer.connection.peer) from None
        self._subscriptions.append(made)
        return made

    async def until_known(self, address: Callable[[Scheme], str], timeout: float = mesh.KNOWN_SECONDS) -> None:
        """Return when all routers of a mesh know a subscription of this bus; at once where that cannot be known.

        Takes `timeout` seconds at most; that not all know it by then is logged.
        """
        if (to_peer := self._connection.present) is not None:
            await mesh.until_known(to_peer, address(to_peer.scheme), timeout)

    async def fanouts(self, target: Target, timeout: float) -> str | None:
        """Return how a router delivers a fanout, `multicast` where it is configured; None where that cannot be known.

        `timeout` is in seconds.
        """
        if (to_peer := self._connection.present) is None:
            return None
        return await mesh.distribution(to_peer, to_peer.scheme.fanout(target), timeout)

    async def unsubscribe(self, subscription: KeptSubscription) -> None:
        """Detach a subscription. What is not settled by now goes back to the peer. Safe to repeat, without effect in a
        fork.
        """
        if not self._connection.is_here:
            return
        await subscription.close()
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
