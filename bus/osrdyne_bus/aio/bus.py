"""One connection of a program to a broker or mesh, kept up: requests, replies and notifications go over it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from osrdyne_bus.addresses import DYNAMIC, Scheme, scheme_for
from osrdyne_bus.aio.joined import Joined, join
from osrdyne_bus.aio.senders import AnyAddress, seen
from osrdyne_bus.aio.subscriptions import KeptSubscription
from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine import BusConnection, Incoming, Login, SendLink
from osrdyne_bus.engine.links import expire
from osrdyne_bus.envelopes import Envelope
from osrdyne_bus.errors import (
    BusClosed,
    DeliveryFailure,
    InvalidTarget,
    LinkRefused,
    MessagingError,
    MessagingTimeout,
    OutcomeUnknown,
    PeerLost,
    RepliesLost,
    SendTimedOut,
    Unsent,
)
from osrdyne_bus.peers import Peer, peers_of
from osrdyne_bus.settings import BusSettings
from osrdyne_client.slots import Slots
from osrdyne_protocol.names import reply_queue
from osrdyne_protocol.pauses import jittered

log = logging.getLogger(__name__)

#: Seconds for the broker to delete a reply queue when the bus is closed.
DELETION = 2.0
#: Seconds after which a connection counts as one that works: the next one is then opened without a pause.
SETTLED = 5.0
#: What AMQP calls a missing right.
REFUSED = "amqp:unauthorized-access"
#: What a message is sent to, and what it is, by the connection that it leaves over.
AddressOf = Callable[[Joined], str | AnyAddress]
Make = Callable[[Joined], Envelope]


#: The link that all replies leave over, where one will do.
REPLIES = AnyAddress("replies")


def may_be_sent_again(lost: MessagingError) -> bool:
    """Return whether a message is worth another try whose link or connection ended before its outcome came."""
    if isinstance(lost, OutcomeUnknown):
        return lost.condition not in ("", REFUSED)
    return True


@dataclass(slots=True, eq=False)
class _Call:
    """A call that waits for its reply."""

    reply: asyncio.Future[Envelope]
    #: The peer has its request.
    sent: bool = False


class AsyncBus:
    """A connection to one of several peers. Use it with `async with`, in one asyncio loop.

    When it ends, the next peer is tried, with growing pauses; subscriptions are attached again, and what was not sent
    waits. Calls whose reply cannot come any more end with PeerLost.
    """

    def __init__(
        self,
        peers: str | Sequence[str],
        *,
        settings: BusSettings | None = None,
        tls: ssl.SSLContext | None = None,
        mechanisms: str | None = None,
        name: str = "osrdyne",
    ) -> None:
        """Prepare a bus; nothing is sent before it is opened.

        `peers`: addresses as in `Peer.parse`, tried in their order. `tls`: the context for `amqps://`, by default
        that of the system; with a client certificate in it, and no user in the address, the login is EXTERNAL.
        `mechanisms`: names of SASL mechanisms with spaces between; only these are used. `name`: what the peer shows.

        Raises InvalidPeer, and MessagingError for an addressing that there is not.
        """
        self.settings = settings or BusSettings()
        if self.settings.addressing != DYNAMIC:
            scheme_for(self.settings.addressing, {})
        self._peers = peers_of(peers)
        self._tls = tls
        self._mechanisms = mechanisms
        self._name = f"{name}-{secrets.token_hex(4)}"
        self._slots: Slots[_Call] = Slots(self.settings.slots, secrets.token_hex(8))
        self._reply_queue = self._new_reply_queue()
        #: The present connection, or the next one.
        self._next: asyncio.Future[Joined] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[MessagingError]
        self._at = 0
        self._called = False
        self._task: asyncio.Task[None] | None = None
        self._subscriptions: list[KeptSubscription] = []
        #: Connections that were opened.
        self.connections = 0

    def _new_reply_queue(self) -> str:
        return reply_queue(self._peers[0].user or "anonymous")

    async def open(self) -> None:
        """Connect to the first peer that can be reached. Raises ConnectFailed and LoginRefused, of the last peer."""
        if self._next is not None:
            raise BusClosed("this bus was opened before; make another one")
        self._next = asyncio.get_running_loop().create_future()
        await self._connect()
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """End calls that wait with BusClosed, and disconnect. Safe to repeat."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        joined = self._joined
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        self._next.set_exception(BusClosed())
        self._next.exception()
        self._fail_calls(BusClosed(), unsent=True)
        if joined is not None:
            joined.senders.close()
            if joined.replies is not None:
                joined.replies.close()
                await self._delete_replies(joined)
            await joined.connection.close()
        for one in self._subscriptions:
            await one.close()

    async def _delete_replies(self, joined: Joined) -> None:
        # A queue that stays is deleted by the broker, later.
        if joined.nodes is not None:
            with contextlib.suppress(MessagingError, TimeoutError):
                async with asyncio.timeout(DELETION):
                    await joined.nodes.delete(self._reply_queue)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def is_connected(self) -> bool:
        return self._joined is not None

    @property
    def peer(self) -> str | None:
        """Host and port of the present peer; None while there is none."""
        return None if self._joined is None else self._joined.connection.peer

    @property
    def senders(self) -> int:
        """How many sender links are attached."""
        return 0 if self._joined is None else len(self._joined.senders)

    @property
    def stalls(self) -> int:
        """How often a subscription's peer had used up its credit."""
        return sum(one.window.stalls for one in self._subscriptions)

    @property
    def _joined(self) -> Joined | None:
        future = self._next
        if future is None or not future.done() or future.cancelled() or future.exception() is not None:
            return None
        return future.result()

    def _join_soon(self) -> asyncio.Future[Joined]:
        """Return the present connection, or the next one. Raises BusClosed."""
        if self._next is None:
            raise BusClosed("the bus is not open; open it with `async with`")
        return self._next

    # --- messages -----------------------------------------------------------------------------------------------------

    async def send(
        self,
        address: Callable[[Scheme], str | AnyAddress],
        envelope: Envelope,
        timeout: float,
        *,
        resend: bool = False,
    ) -> None:
        """Send a message and wait for its outcome, `timeout` seconds at most, also for a connection.

        Where `address` gives AnyAddress, the message says in `to` where it goes. With `resend` it is sent again where
        its link or connection ended before its outcome came, so that it may arrive twice.

        Raises SendTimedOut, DeliveryFailure, DeliveryRejected, OutcomeUnknown, LinkRefused, PeerLost, BusClosed.
        """
        await self._send(lambda joined: address(joined.scheme), lambda _: envelope, timeout, resend=resend)

    async def reply(self, envelope: Envelope, timeout: float) -> None:
        """Send a message to its own address `to`, where a caller takes replies. Raises as `send`, and InvalidTarget."""

        def address(joined: Joined) -> str | AnyAddress:
            to = envelope.to or ""
            if not joined.is_reply_address(to):
                raise InvalidTarget(f"{to!r} is no address that a reply can be sent to")
            return REPLIES if joined.replies_by_any_link else to

        await self._send(address, lambda _: envelope, timeout)

    async def call(
        self,
        address: Callable[[Scheme], str | AnyAddress],
        make: Callable[[str, str], Envelope],
        timeout: float,
        *,
        resend: bool = False,
    ) -> Envelope:
        """Send a request and return the reply to it, within `timeout` seconds. `resend` is as with `send`.

        `make` gets the name of the call and where its reply has to go. Raises as `send`, MessagingTimeout where the
        request was sent and nothing came back, and NoFreeSlot.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        call = _Call(loop.create_future())
        name = self._slots.take(call, now=loop.time(), deadline=deadline)
        try:
            try:
                joined = await self._send(
                    lambda joined: address(joined.scheme),
                    lambda joined: make(name, joined.reply_to),
                    timeout,
                    call=call,
                    resend=resend,
                )
            except MessagingError:
                if not call.reply.done():  # a reply shows that the request arrived
                    raise
            else:
                call.sent = True
                if joined.connection.ended is not None and joined.nodes is None and not call.reply.done():
                    raise RepliesLost(str(joined.connection.ended))
            timer = loop.call_at(deadline, expire, call.reply)
            try:
                return await call.reply
            finally:
                timer.cancel()
        except TimeoutError:
            raise MessagingTimeout(
                f"no reply within {timeout:g} s; the request was delivered, and may be under way"
            ) from None
        finally:
            self._slots.release(name)

    async def subscribe(
        self, address: Callable[[Scheme], str], credit: int, received: Callable[[Incoming], None]
    ) -> KeptSubscription:
        """Receive what is sent to an address, also over later connections. Raises LinkRefused, PeerLost, BusClosed."""
        made = KeptSubscription(self._join_soon, address, credit, received)
        await made.open()
        self._subscriptions.append(made)
        return made

    async def unsubscribe(self, subscription: KeptSubscription) -> None:
        """Detach a subscription. What is not settled by now goes back to the peer."""
        self._subscriptions.remove(subscription)
        await subscription.close()

    async def _send(
        self,
        address: AddressOf,
        make: Make,
        timeout: float,
        *,
        call: _Call | None = None,
        resend: bool = False,
    ) -> Joined:
        """Send a message, of a call where one is given, and return the connection that it left over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        wants_reply = call is not None
        failures = resends = 0
        left = False
        while True:
            try:
                joined = self._joined
                link = None if joined is None else joined.senders.ready(address(joined))
                if joined is None or link is None or (wants_reply and not joined.reply_to):
                    joined, link = await self._ready(address, timeout, deadline, wants_reply=wants_reply)
                await link.send(make(joined), max(0.0, deadline - loop.time()))
                return joined
            except SendTimedOut as late:
                sent = left or late.sent
                raise SendTimedOut(late.address, timeout, sent=sent, connected=sent or late.connected) from None
            except Unsent:
                failures += 1
            except (PeerLost, OutcomeUnknown) as lost:
                answered = call is not None and call.reply.done()
                if not resend or answered or not may_be_sent_again(lost):
                    raise
                left = True
                failures += 1
            except DeliveryFailure as failure:
                if not failure.released or resends >= self.settings.resends:
                    raise
                failures = resends = resends + 1
            await asyncio.sleep(max(0.0, min(jittered(failures, first=0.05, limit=2.0), deadline - loop.time())))

    async def _ready(
        self, address: AddressOf, timeout: float, deadline: float, *, wants_reply: bool
    ) -> tuple[Joined, SendLink]:
        """Return a connection, and its link to the address. Raises SendTimedOut, LinkRefused, Unsent, BusClosed."""
        to: str | AnyAddress = ""
        try:
            async with asyncio.timeout_at(deadline):
                joined = await asyncio.shield(self._join_soon())
                to = address(joined)
                if wants_reply:
                    await self._receive_replies(joined)
                return joined, await joined.sender(to)
        except TimeoutError:
            at = to if isinstance(to, str) else to.purpose
            raise SendTimedOut(at, timeout, sent=False, connected=self.is_connected) from None
        except LinkRefused as refused:
            if refused.condition:
                raise
            raise Unsent(str(refused)) from refused  # the peer was slow: it may be quicker next time
        except PeerLost as lost:
            raise Unsent(str(lost)) from lost

    async def _receive_replies(self, joined: Joined) -> None:
        """Have an address for replies to this connection. Raises LinkRefused and PeerLost."""
        if joined.reply_to:
            return
        if joined.attaching_replies is None:
            joined.attaching_replies = asyncio.create_task(self._attach_replies(joined))
            joined.attaching_replies.add_done_callback(seen)
        await asyncio.shield(joined.attaching_replies)

    async def _attach_replies(self, joined: Joined) -> None:
        connection = joined.connection
        try:
            address = await joined.provide_reply_queue(self._reply_queue) if joined.nodes is not None else None
            window = CreditWindow(self.settings.reply_credit)
            link = joined.replies = await connection.subscribe(address, window, self._replied)

            def ended(why: MessagingError) -> None:
                # Without replies the connection is of little use.
                connection.abort(PeerLost(f"no more replies come over the connection to {connection.peer}: {why}"))

            link.on_end = ended
            if link.ended is not None:  # between its attachment and this line
                ended(link.ended)
                raise PeerLost(str(link.ended))
            joined.reply_to = link.address
            self._called = True
        finally:
            joined.attaching_replies = None

    def _replied(self, incoming: Incoming) -> None:
        call = self._slots.match(incoming.envelope.correlation_id)
        incoming.accept()
        if call is not None and not call.reply.done():
            call.reply.set_result(incoming.envelope)

    # --- the connection -----------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Connect to the next peer that can be reached. Raises the error of the last one."""
        for tried in range(len(self._peers)):
            peer = self._peers[(self._at + tried) % len(self._peers)]
            try:
                joined = await self._join(peer)
            except MessagingError as error:
                if tried + 1 == len(self._peers):
                    raise
                log.warning("%s; the next peer is tried", error)
            else:
                self._at = (self._at + tried) % len(self._peers)
                self.connections += 1
                assert self._next is not None
                self._next.set_result(joined)
                return

    async def _join(self, peer: Peer) -> Joined:
        login = Login(peer.user, peer.password, self._mechanisms)
        tls = (self._tls or ssl.create_default_context()) if peer.tls else None
        lost: asyncio.Future[MessagingError] = asyncio.get_running_loop().create_future()
        connection = await BusConnection.connect(
            peer.host,
            peer.port,
            login=login,
            tls=tls,
            virtual_host=peer.hostname,
            container=self._name,
            lost=lost.set_result,
        )
        joined: Joined | None = None
        try:
            joined = join(
                connection,
                scheme_for(self.settings.addressing, connection.properties),
                unused=self.settings.unused_links,
            )
            if self._called:
                await self._receive_replies_again(joined)
        except BaseException:
            if joined is not None:
                joined.senders.close()
            await connection.close()
            raise
        self._lost = lost
        return joined

    async def _receive_replies_again(self, joined: Joined) -> None:
        """Have the replies to earlier calls, too. Raises PeerLost.

        A queue that cannot be had any more, because its node of a cluster is down for example, is given up, with the
        calls that wait for it. The next call has another one.
        """
        try:
            await self._receive_replies(joined)
        except MessagingError as error:
            if joined.connection.ended is not None:
                raise
            lost = RepliesLost(f"the replies to earlier calls cannot be received any more: {error}")
            log.warning("%s", lost)
            self._reply_queue = self._new_reply_queue()
            self._fail_calls(lost, unsent=False)

    async def _keep(self) -> None:
        """Connect again whenever the connection ends."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            why = await asyncio.shield(self._lost)
            ended = self._joined
            self._next = loop.create_future()
            if ended is not None:
                ended.senders.close()
            # A queue for replies outlives the connection, and what came meanwhile waits there.
            if ended is None or ended.nodes is None:
                self._fail_calls(RepliesLost(str(why)), unsent=False)
            log.warning("%s; connecting again", why)
            self._at += 1
            # One that ends again and again must not be opened without pause.
            failures = 0 if loop.time() - began > SETTLED else failures + 1
            warned = False
            while True:
                try:
                    await asyncio.sleep(jittered(failures) if failures else 0)
                    await self._connect()
                except MessagingError as error:
                    failures += 1
                    if not warned:
                        log.warning("%s; trying again until a peer can be reached", error)
                    warned = True
                except Exception:
                    failures += 1
                    log.exception("cannot connect; trying again")
                else:
                    break
            log.info("connected to %s", self.peer)

    def _fail_calls(self, why: MessagingError, *, unsent: bool) -> None:
        for call in self._slots.waiting():
            if (call.sent or unsent) and not call.reply.done():
                call.reply.set_exception(why)
