"""One AMQP 1.0 connection on an asyncio loop.

proton keeps the state of links. This module attaches them, and makes calls of proton's events. Use everything here only
in the loop of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar

import proton
from cproton import addressof, pn_delivery_link, pn_event_delivery, pn_event_type
from proton import Delivery, Endpoint, Event, Link, Terminus, symbol

from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine.handshake import Handshake, NotAmqp
from osrdyne_bus.engine.links import BusLink, refuse, said_by
from osrdyne_bus.engine.senders import SendLink
from osrdyne_bus.engine.sessions import MOST_SESSIONS, Sessions
from osrdyne_bus.engine.subscriptions import LARGEST_MESSAGE, Received, Subscription
from osrdyne_bus.engine.transport import ProtonTransport
from osrdyne_bus.errors import ConnectFailed, LinkRefused, LoginRefused, MessagingError, PeerLost
from osrdyne_bus.logins import ANYONE, CannotLogIn, Login
from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_runtime import certificate_faults

#: Seconds for the peer to open a connection, login included.
ANSWER_SECONDS = 10.0
#: Seconds until the end of a session by the peer is answered.
SESSION_END_SECONDS = 1.0


def _put(terminus: Terminus, capabilities: tuple[str, ...]) -> None:
    # RabbitMQ understands an array, and not the single symbol that stands for an array of one.
    if capabilities:
        terminus.capabilities.put_object(
            proton.Array(proton.UNDESCRIBED, proton.Data.SYMBOL, *map(symbol, capabilities))
        )


def _paired(link: Any, address: str) -> Any:
    link.source.address = link.target.address = address
    link.snd_settle_mode = Link.SND_SETTLED
    link.properties = {symbol("paired"): True}
    return link


LinkT = TypeVar("LinkT", bound=BusLink)


class BusConnection:
    """A connection to a peer. `await BusConnection.connect(...)` opens one."""

    def __init__(self, peer: str) -> None:
        self.loop = asyncio.get_running_loop()
        #: The peer's address, for people.
        self.peer = peer
        self._lost: Callable[[MessagingError], None] | None = None
        self._connection = proton.Connection()
        # By the address of the link, and not in proton's objects: what these refer to lives as long as they do, and no
        # collector sees it.
        self._links: dict[int, BusLink] = {}
        self._sessions = Sessions(self._begin_session, lambda: self._most_sessions, self._links)
        self._transport = ProtonTransport(
            self._connection, self._happened, not_logged_in=self._not_logged_in, disconnected=self._disconnected
        )
        self._engine = self._transport.engine
        #: Write what there is to write before the loop waits again.
        self.flush_soon = self._transport.flush_soon
        self._open: asyncio.Future[None] = self.loop.create_future()
        self._abort_later: asyncio.TimerHandle | None = None
        self._number = 0
        #: Why the connection ended; None while it is there.
        self.ended: MessagingError | None = None

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        login: Login = ANYONE,
        tls: ssl.SSLContext | None = None,
        authority: str | None = None,
        virtual_host: str | None = None,
        container: str = "osrdyne",
        lost: Callable[[MessagingError], None] | None = None,
    ) -> Self:
        """Connect, log in and open. `lost` is called once when an open connection ends without `close`.

        `authority` says what names the CA that `tls` trusts; None if nothing does. Raises ConnectFailed and
        LoginRefused.
        """
        loop = asyncio.get_running_loop()
        peer = f"{host}:{port}"
        made = cls(peer)
        made._prepare(login, virtual_host or host, container)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await loop.create_connection(lambda: made._transport, host, port, ssl=tls)
                await asyncio.shield(made._open)
        except TimeoutError:
            made._abort(ConnectFailed(f"{peer} did not open an AMQP 1.0 connection within {ANSWER_SECONDS:g} s"))
            raise made.ended or ConnectFailed(peer) from None
        except (OSError, UnicodeError) as error:  # a host that is not a name is a UnicodeError
            fault = certificate_faults.fault(error, authority=authority, setting="`tls`, or --ca-file of a command")
            # asyncio says nothing of a peer that ends the connection during the handshake.
            during = "it ended the connection while TLS began: check that this port of it is one for TLS"
            why = fault or str(error) or (during if tls is not None else type(error).__name__)
            raise ConnectFailed(f"cannot connect to {peer}: {why}") from error
        except BaseException:
            made._abort(None)
            raise
        # A peer that refuses may open first, and close at once.
        if made.ended is not None:
            made._abort(None)
            raise ConnectFailed(str(made.ended))
        made._lost = lost
        return made

    def _prepare(self, login: Login, virtual_host: str, container: str) -> None:
        self._connection.container = container
        self._connection.hostname = virtual_host
        # PLAIN without TLS is what the address asked for, as over AMQP 0-9-1.
        self._transport.begin(Handshake(login, virtual_host))

    @property
    def properties(self) -> Mapping[object, object]:
        """What the peer says of itself, its `product` among it."""
        return {str(key): value for key, value in (self._connection.remote_properties or {}).items()}

    @property
    def capabilities(self) -> frozenset[str]:
        """What the peer offers, `ANONYMOUS-RELAY` among it where one link can reach any address."""
        return frozenset(map(str, self._connection.remote_offered_capabilities or ()))

    async def subscribe(
        self,
        address: str | None,
        window: CreditWindow,
        received: Received,
        *,
        capabilities: tuple[str, ...] = (),
        settled: bool = False,
        any_body: bool = False,
        drains: bool = False,
    ) -> Subscription:
        """Attach a receiver; without an address the peer makes one. Raises LinkRefused and PeerLost.

        With `settled`, a message counts as delivered for the peer when it leaves. It is settled here all the same, for
        its credit. With `any_body` a message may have another body than bytes or text, as its `value`.
        `drains`: the peer takes back what is given back, and gives it to another receiver or its sender.
        """
        async with self._sessions.one() as session:
            link = session.receiver(self._name())
            if address is None:
                link.source.dynamic = True
                link.source.expiry_policy = Terminus.EXPIRE_WITH_LINK
            else:
                link.source.address = address
            _put(link.source, capabilities)
            link.max_message_size = LARGEST_MESSAGE
            if settled:
                link.snd_settle_mode = Link.SND_SETTLED
            return await self._attach(
                link, Subscription(self, link, window, received, any_body=any_body, drains=drains)
            )

    async def sender(
        self, address: str | None, *, capabilities: tuple[str, ...] = (), settled: bool = False
    ) -> SendLink:
        """Attach a sender; without an address it reaches any, named by each message. Raises LinkRefused and PeerLost.

        Without an address it is the `anonymous terminus` of AMQP, for peers with the capability ANONYMOUS-RELAY. With
        `settled`, a message counts as taken when it leaves.
        """
        async with self._sessions.one() as session:
            link = session.sender(self._name())
            link.target.address = address
            _put(link.target, capabilities)
            link.snd_settle_mode = Link.SND_SETTLED if settled else Link.SND_UNSETTLED
            return await self._attach(link, SendLink(self, link, settled=settled))

    async def pair(self, address: str, window: CreditWindow, received: Received) -> tuple[SendLink, Subscription]:
        """Attach a sender and a receiver of one name, for requests to the peer itself. Raises LinkRefused and PeerLost.

        Neither settles: this is the "link pair" of RabbitMQ's management over AMQP 1.0.
        """
        async with self._sessions.one() as session:
            name = self._name()
            back = _paired(session.receiver(name), address)
            answers = await self._attach(back, Subscription(self, back, window, received, any_body=True))
            try:
                if answers.ended is not None:  # its whole session, between its attachment and this line
                    raise answers.ended
                out = _paired(session.sender(name), address)
                return await self._attach(out, SendLink(self, out, settled=True)), answers
            except BaseException:
                answers.close()
                raise

    async def _attach(self, link: Any, ours: LinkT) -> LinkT:
        self._links[hash(link)] = ours
        await ours.attach()
        return ours

    def _begin_session(self) -> Any:
        session = self._connection.session()
        session.open()
        return session

    @property
    def _most_sessions(self) -> int:
        return min(MOST_SESSIONS, int(self._engine.remote_channel_max) + 1)

    def gone(self, link: BusLink) -> None:
        """Forget a link."""
        self._links.pop(link.key, None)

    def given_up(self, link: Any) -> None:
        """A link is closed before the peer has answered it."""
        self._sessions.given_up(link)

    def _name(self) -> str:
        self._number += 1
        return f"{self._connection.container}-{self._number}"

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Close the connection; the peer has `timeout` seconds to say that it is closed. Safe to repeat."""
        self._lost = None
        try:
            if self.ended is None:
                self._end(PeerLost(f"the connection to {self.peer} was closed here"))
                self._connection.close()
                self._transport.work()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await self._transport.gone.wait()
        finally:
            self._abort(None)

    def abort(self, why: MessagingError) -> None:
        """End the connection at once, as if it had been lost."""
        self._abort(why)

    # --- of proton ----------------------------------------------------------------------------------------------------

    def _happened(self, event: Any) -> None:
        # An Event wraps all that it belongs to, five objects: too much for each message and each outcome.
        number = pn_event_type(event)
        if number == Event.DELIVERY.number:
            self._delivered(Delivery.wrap(pn_event_delivery(event)))
        elif (handle := self._HANDLERS.get(number)) is not None:
            handle(self, Event.wrap(event))

    def _not_logged_in(self, error: CannotLogIn | NotAmqp) -> None:
        if isinstance(error, CannotLogIn):
            self._end(LoginRefused(f"{self.peer} {error}"))
        else:
            self._end(self._not_opened(str(error)))

    def _disconnected(self, exc: Exception | None) -> None:
        why = f": {exc}" if exc else ""
        if self._transport.logs_in:
            self._end(self._not_opened(f"it ended the connection during the login{why}"))
        self._end(PeerLost(f"the connection to {self.peer} ended{why}; what was under way may have been done"))
        if self._abort_later is not None:
            self._abort_later.cancel()

    def _opened(self, event: Event) -> None:
        if not self._open.done():
            self._open.set_result(None)

    def _closed(self, event: Event) -> None:
        name, description = said_by(event.connection.remote_condition)
        self._end(PeerLost(f"{self.peer} closed the connection: {description or name or 'it gave no reason'}"))
        self._connection.close()

    def _session_closed(self, event: Event) -> None:
        session = event.session
        for link in list(self._links.values()):
            if link.session == session:
                self._refused(link, session.remote_condition)
                link.free()
        # Answered late, so that no new session has its channel meanwhile: RabbitMQ 4.0 may still give the first frames
        # of that one to the session that it ended. And not freed: with proton 0.40.0 the process aborts later, when
        # Python collects what refers to it.
        self._sessions.ended(session)
        self.loop.call_later(SESSION_END_SECONDS, self._answer_end, session)

    def _answer_end(self, session: Any) -> None:
        self._sessions.answer(session)
        self._transport.work()

    def _broken(self, event: Event) -> None:
        name, description = said_by(event.transport.condition)
        said = description or name
        if not self._open.done():
            self._end(self._not_opened(said))
        else:
            self._end(PeerLost(f"the connection to {self.peer} broke: {said}; what was under way may have been done"))

    def _not_opened(self, said: str) -> ConnectFailed:
        return ConnectFailed(
            f"{self.peer} ended the connection before it was open ({said}): "
            f"check that it speaks AMQP 1.0 and has the virtual host {self._connection.hostname!r}"
        )

    def _link_opened(self, event: Event) -> None:
        link = event.link
        if link.state & Endpoint.LOCAL_UNINIT:
            refuse(link, "amqp:not-allowed", "this client takes no links")
            return
        # A peer that refuses a link attaches it without a terminus, and detaches it with the reason at once.
        far = link.remote_target if link.is_sender else link.remote_source
        if (ours := self._links.get(hash(link))) and far.type != Terminus.UNSPECIFIED:
            ours.opened()

    def _link_closed(self, event: Event) -> None:
        link = event.link
        self._sessions.answered(link)
        if ours := self._links.get(hash(link)):
            self._refused(ours, link.remote_condition)
        link.close()
        link.free()

    def _refused(self, link: BusLink, condition: Any) -> None:
        name, description = said_by(condition)
        why = f"{self.peer} ended the link to {link.address!r}: {description or name or 'no reason'}"
        link.end(LinkRefused(why, condition=name))
        self.gone(link)

    def _flow(self, event: Event) -> None:
        if (ours := self._links.get(hash(event.link))) is not None:
            ours.flowed()

    def _delivered(self, delivery: Any) -> None:
        ours = self._links.get(addressof(pn_delivery_link(delivery._impl)))  # noqa: SLF001
        if isinstance(ours, SendLink):
            ours.updated(delivery)
        elif isinstance(ours, Subscription) and delivery.readable:
            ours.delivered(delivery)

    _HANDLERS: ClassVar[Mapping[int, Callable[[BusConnection, Event], None]]] = {
        Event.CONNECTION_REMOTE_OPEN.number: _opened,
        Event.CONNECTION_REMOTE_CLOSE.number: _closed,
        Event.SESSION_REMOTE_CLOSE.number: _session_closed,
        Event.TRANSPORT_ERROR.number: _broken,
        Event.LINK_REMOTE_OPEN.number: _link_opened,
        Event.LINK_REMOTE_CLOSE.number: _link_closed,
        Event.LINK_REMOTE_DETACH.number: _link_closed,
        Event.LINK_FLOW.number: _flow,
    }

    def _end(self, why: MessagingError) -> None:
        if self.ended is not None:
            return
        self.ended = why
        self._sessions.close(why)
        if not self._open.done():
            self._open.set_exception(why)
            self._open.exception()
        links = list(self._links.values())
        self._links.clear()
        for link in links:
            link.end(why)
        # A peer that reads nothing would else keep the socket, and what is to be written, for ever.
        self._abort_later = self.loop.call_later(ANSWER_SECONDS, self._abort, None)
        if self._lost is not None:
            self._lost(why)

    def _abort(self, why: MessagingError | None) -> None:
        if why is not None:
            self._end(why)
        if self._abort_later is not None:
            self._abort_later.cancel()
        self._transport.abort()
