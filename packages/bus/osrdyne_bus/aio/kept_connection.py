"""The connection of a bus, kept up: the next peer is tried when it ends, and replies to earlier calls still come."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Callable

from osrdyne_bus.addresses import scheme_for
from osrdyne_bus.aio.peer_connection import PeerConnection, join
from osrdyne_bus.aio.senders import seen
from osrdyne_bus.counts import BusCounts
from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine import BusConnection, IncomingMessage, Login
from osrdyne_bus.errors import BusClosed, MessagingError, PeerLost, RepliesLost
from osrdyne_bus.peers import Addresses, Peer, peers_of
from osrdyne_bus.settings import BusSettings
from osrdyne_protocol.names import reply_queue
from osrdyne_runtime import log_lines
from osrdyne_runtime.forks import OwnerProcess
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry

log = log_lines.logger(__name__)

#: Seconds after which a connection counts as one that works: the next one is then opened without a pause.
STABLE_CONNECTION_SECONDS = 5.0
#: After so many connections in a row that do not work, replies have another queue: RabbitMQ closes the connection of a
#: receiver where it cannot deliver a message, and keeps that message.
QUICK_ENDS = 4


#: What `amqps://` is opened with, or a function that returns the present one; None for that of the system.
Tls = ssl.SSLContext | Callable[[], ssl.SSLContext | None] | None


class KeptConnection:
    """One connection to one of several peers, and its address for replies."""

    def __init__(
        self,
        peers: Addresses,
        settings: BusSettings,
        *,
        tls: Tls,
        mechanisms: str | None,
        name: str,
        replied: Callable[[IncomingMessage], None],
        replies_lost: Callable[[MessagingError], None],
        counts: BusCounts,
    ) -> None:
        """`replied` gets each reply. `replies_lost` is called where those to earlier calls cannot come any more."""
        self._addresses = peers
        self._peers = peers_of(peers)
        self._settings = settings
        self._tls = tls
        self._mechanisms = mechanisms
        self._name = f"{name}-{secrets.token_hex(4)}"
        self._replied = replied
        self._replies_lost = replies_lost
        self._counts = counts
        #: The credit of the address for replies, on whatever connection.
        self.replies = CreditWindow(settings.reply_credit, counts)
        self._reply_queue = self._new_reply_queue()
        self._home: OwnerProcess | None = None
        #: The present connection, or the next one.
        self._next: asyncio.Future[PeerConnection] | None = None
        self._lost: asyncio.Future[MessagingError]
        self._at = 0
        self._called = False
        #: Why the last connection ended, or why the last try to open one failed.
        self.trouble: str | None = None
        #: Connections in a row that ended soon after they were opened.
        self._quick_ends = 0
        self._task: asyncio.Task[None] | None = None

    def _new_reply_queue(self) -> str:
        return reply_queue(self._peers[0].user or "anonymous")

    @property
    def present(self) -> PeerConnection | None:
        """The connection; None while there is none."""
        future = self._next
        if not self.is_here:
            return None
        if future is None or not future.done() or future.cancelled() or future.exception() is not None:
            return None
        return future.result()

    @property
    def is_here(self) -> bool:
        """Whether it was not opened in a process of which this one is a fork."""
        return self._home is None or self._home.is_here

    def check_here(self) -> None:
        """Raise OtherProcess in a fork of the process that opened it."""
        if self._home is not None:
            self._home.check("this bus")

    def soon(self) -> asyncio.Future[PeerConnection]:
        """Return the present connection, or the next one. Raises BusClosed, and OtherProcess in a fork."""
        self.check_here()
        if self._next is None:
            raise BusClosed("the bus is not open; open it with `async with`")
        return self._next

    async def open(self) -> None:
        """Connect to the first peer that can be reached. Raises ConnectFailed and LoginRefused, of the last peer."""
        self.check_here()
        if self._next is not None:
            raise BusClosed("this bus was opened before; make another one")
        self._home = OwnerProcess()
        self._next = asyncio.get_running_loop().create_future()
        try:
            await self._connect()
        except BaseException as error:
            if not self._next.done():
                # Nothing will come: who waits for a connection hears it at once.
                self._next.set_exception(error if isinstance(error, MessagingError) else BusClosed())
                self._next.exception()
            raise
        self._task = asyncio.create_task(self._keep())

    async def end(self) -> PeerConnection | None:
        """Connect no more, and return the last connection for `leave`. Who waits for the next one gets BusClosed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        last = self.present
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        self._next.set_exception(BusClosed())
        self._next.exception()
        return last

    async def leave(self, last: PeerConnection, timeout: float) -> None:
        """Disconnect within `timeout` seconds."""
        last.senders.close()
        if last.replies is not None:
            last.replies.close()
            await self._delete_replies(last, timeout / 2)
        await last.connection.close(timeout / 2)

    async def receive_replies(self, to_peer: PeerConnection) -> None:
        """Have an address for replies to this connection. Raises LinkRefused and PeerLost."""
        if to_peer.reply_to:
            return
        if to_peer.attaching_replies is None:
            to_peer.attaching_replies = asyncio.create_task(self._attach_replies(to_peer))
            to_peer.attaching_replies.add_done_callback(seen)
        await asyncio.shield(to_peer.attaching_replies)

    async def _attach_replies(self, to_peer: PeerConnection) -> None:
        connection = to_peer.connection
        try:
            address = await to_peer.provide_reply_queue(self._reply_queue) if to_peer.nodes is not None else None
            link = to_peer.replies = await connection.subscribe(address, self.replies, self._replied)

            def ended(why: MessagingError) -> None:
                self.replies.closed()
                # Without replies the connection is of little use.
                connection.abort(PeerLost(f"no more replies come over the connection to {connection.peer}: {why}"))

            link.on_end = ended
            if link.ended is not None:  # between its attachment and this line
                ended(link.ended)
                raise PeerLost(str(link.ended))
            to_peer.reply_to = link.address
            self._called = True
        finally:
            to_peer.attaching_replies = None

    async def _connect(self) -> None:
        """Connect to the next peer that can be reached. Raises the error of the last one."""
        self._peers = peers_of(self._addresses)
        passed_over: list[MessagingError] = []
        for tried in range(len(self._peers)):
            peer = self._peers[(self._at + tried) % len(self._peers)]
            try:
                to_peer = await self._join(peer)
            except MessagingError as error:
                if tried + 1 == len(self._peers):
                    raise
                if self._task is None:  # it is being opened, and the caller gets the last error alone
                    log.warning("the next peer is tried", extra={"reason": str(error)})
                passed_over.append(error)
            else:
                assert self._next is not None
                if self._next.done():  # by `end`, meanwhile
                    to_peer.senders.close()
                    await to_peer.connection.close()
                    raise BusClosed
                self._at = (self._at + tried) % len(self._peers)
                for why in passed_over if self._task else ():  # while none is reached, the outage is logged
                    log.warning("the next peer is used", extra={"reason": str(why)})
                self._counts.connections += 1
                self._next.set_result(to_peer)
                return

    async def _join(self, peer: Peer) -> PeerConnection:
        login = Login(peer.user, peer.password, self._mechanisms)
        own = self._tls() if callable(self._tls) else self._tls
        tls = (own or ssl.create_default_context()) if peer.tls else None
        lost: asyncio.Future[MessagingError] = asyncio.get_running_loop().create_future()
        connection = await BusConnection.connect(
            peer.host,
            peer.port,
            login=login,
            tls=tls,
            authority="the authorities of `tls` (--ca-file)" if own else None,
            virtual_host=peer.hostname,
            container=self._name,
            lost=lost.set_result,
        )
        to_peer: PeerConnection | None = None
        try:
            to_peer = join(
                connection,
                scheme_for(self._settings.addressing, connection.properties, self._settings.root),
                unused=self._settings.unused_links,
            )
            if self._called:
                await self._receive_replies_again(to_peer)
        except BaseException:
            if to_peer is not None:
                to_peer.senders.close()
            await connection.close()
            raise
        self._lost = lost
        return to_peer

    async def _receive_replies_again(self, to_peer: PeerConnection) -> None:
        """Have the replies to earlier calls, too. Raises PeerLost.

        A queue that cannot be had any more, because its node of a cluster is down for example, is given up, with the
        calls that wait for it. The next call has another one.
        """
        try:
            await self.receive_replies(to_peer)
        except MessagingError as error:
            if to_peer.connection.ended is not None:
                raise
            self._give_up_replies(error)

    def _give_up_replies(self, why: MessagingError) -> None:
        lost = RepliesLost(f"the replies to earlier calls cannot be received any more: {why}")
        log.warning("replies to earlier calls are lost", extra={"reason": str(why)})
        self._reply_queue = self._new_reply_queue()
        self._replies_lost(lost)

    def _ended_soon(self, why: MessagingError) -> None:
        """Note a connection that was opened and has ended, or could not be opened; give up replies after some."""
        self._quick_ends += isinstance(why, PeerLost)
        if self._quick_ends == QUICK_ENDS:
            self._quick_ends = 0
            if self._called:
                self._give_up_replies(why)

    async def _keep(self) -> None:
        """Connect again whenever the connection ends."""
        loop = asyncio.get_running_loop()
        retry, outage = Retry(), OutageLog(log, "the peer")
        while True:
            began = loop.time()
            why = await asyncio.shield(self._lost)
            ended = self.present
            self._next = loop.create_future()
            if ended is not None:
                ended.senders.close()
            # A queue for replies outlives the connection, and what came meanwhile waits there.
            if ended is None or ended.nodes is None:
                self._replies_lost(RepliesLost(str(why)))
            self.trouble = str(why)
            outage.failed(self.trouble, loop.time())
            self._at += 1
            # One that ends again and again must not be opened without pause.
            worked_for = loop.time() - began
            pause = retry.failed()
            if worked_for > STABLE_CONNECTION_SECONDS:
                # It is opened again at once. The first pause is that after a try that fails.
                retry.worked()
                pause = self._quick_ends = 0
            else:
                self._ended_soon(why)
            while True:
                try:
                    await asyncio.sleep(pause)
                    await self._connect()
                except MessagingError as error:
                    self._ended_soon(error)
                    self.trouble = str(error)
                    outage.failed(self.trouble, loop.time())
                except Exception as error:
                    peers = [f"{peer.host}:{peer.port}" for peer in self._peers]
                    log.exception("connecting failed unexpectedly", extra={"peers": peers})
                    outage.failed(repr(error), loop.time())
                else:
                    break
                pause = retry.failed()
            to_peer = self.present
            outage.over(loop.time(), peer=str(to_peer and to_peer.connection.peer))

    async def _delete_replies(self, to_peer: PeerConnection, timeout: float) -> None:
        # A queue that stays is deleted by the broker, later.
        if to_peer.nodes is not None:
            with contextlib.suppress(MessagingError, TimeoutError):
                async with asyncio.timeout(timeout):
                    await to_peer.nodes.delete(self._reply_queue)
