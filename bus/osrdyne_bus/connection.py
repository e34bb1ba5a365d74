"""One AMQP 1.0 connection on an asyncio loop. The only module that imports proton.

proton reads and writes frames and keeps the state of links. This module moves bytes between it and a socket, and makes
calls of its events. TLS is that of Python, below proton. Use everything here only in the loop of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

try:
    import proton
except ImportError as error:
    raise ImportError(
        "osrdyne_bus.connection needs proton: install osrdyne-bus[proton], which compiles C (docs/decisions/0030)"
    ) from error
from proton import Collector, Delivery, Event, Link, Message, Terminus, symbol

from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.errors import (
    ConnectFailed,
    DeliveryFailure,
    DeliveryRejected,
    LinkRefused,
    LoginRefused,
    MessagingError,
    PeerLost,
    SendTimedOut,
)

#: Seconds without a frame after which the peer counts as gone. proton sends empty frames in time for the peer's own.
IDLE = 30.0
#: Seconds for each of: connecting, logging in, and attaching a link.
PATIENCE = 10.0
#: Most sessions of a connection, where the peer allows as many; RabbitMQ allows 64.
MOST_SESSIONS = 64


@dataclass(frozen=True, slots=True)
class Login:
    """A login: with a user PLAIN or SCRAM, without one EXTERNAL where TLS has a certificate, or ANONYMOUS.

    `mechanisms` are names of SASL mechanisms with spaces between; only these are used then.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanisms: str | None = None


class Incoming:
    """A message that came over a subscription. Settle it, by one of its methods; the first one counts."""

    __slots__ = ("_delivery", "_settled", "_subscription", "message")

    def __init__(self, message: Message, delivery: Delivery, subscription: Subscription) -> None:
        self.message = message
        self._delivery = delivery
        self._subscription = subscription
        self._settled = False

    def accept(self) -> None:
        """Acknowledge it."""
        self._settle(Delivery.ACCEPTED)

    def release(self) -> None:
        """Give it back as if it had never come: another receiver may get it."""
        self._settle(Delivery.RELEASED)

    def reject(self, condition: str, description: str) -> None:
        """Refuse it for good; the sender sees both texts."""
        if self._subscription.is_open:
            self._delivery.local.condition = proton.Condition(condition, description)
        self._settle(Delivery.REJECTED)

    def _settle(self, state: int) -> None:
        if self._settled or not self._subscription.is_open:
            return  # it went with its link: the peer delivers it again where it keeps messages
        self._settled = True
        self._delivery.update(state)
        self._delivery.settle()
        self._subscription.settled()


#: Called with each message of a subscription, in the loop; it must not raise.
Received = Callable[[Incoming], None]


class _End:
    """What both kinds of links share: how they are attached, and how they end."""

    def __init__(self, owner: BusConnection, link: Any) -> None:
        self._owner = owner
        self._link = link
        self._attached: asyncio.Future[None] = owner.loop.create_future()
        #: Why the link ended; None while it is there.
        self.ended: MessagingError | None = None
        link.context = self

    @property
    def session(self) -> Any:
        return self._link.session

    @property
    def is_open(self) -> bool:
        return self.ended is None and self._attached.done()

    async def attached(self) -> Self:
        """Wait until the peer has taken the link. Raises LinkRefused and PeerLost."""
        self._link.open()
        self._owner.flush_soon()
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(self._attached)
        except TimeoutError:
            raise LinkRefused(f"{self._owner.peer} did not attach {self.address!r} within {PATIENCE:g} s") from None
        finally:
            if not self.is_open:
                self.close()
        return self

    @property
    def address(self) -> str:
        raise NotImplementedError

    def opened(self) -> None:
        """The peer attached the link."""
        if not self._attached.done():
            self._attached.set_result(None)

    def end(self, why: MessagingError) -> None:
        """The link is no longer there."""
        if self.ended is not None:
            return
        self.ended = why
        if not self._attached.done():
            self._attached.set_exception(why)
            self._attached.exception()  # a wait may have ended before

    def close(self) -> None:
        """Detach the link."""
        if self.ended is None:
            self.end(PeerLost(f"the link to {self.address!r} was closed here"))
            self._link.close()
            self._owner.gone(self)
            self._owner.flush_soon()


class Subscription(_End):
    """A receiver, with its credit."""

    def __init__(self, owner: BusConnection, link: Any, window: CreditWindow, received: Received) -> None:
        super().__init__(owner, link)
        self.window = window
        self.received = received

    @property
    def address(self) -> str:
        """Where messages are sent to reach this subscription; the peer chose it if it was asked for a dynamic one."""
        return str(self._link.remote_source.address or self._link.source.address or "")

    def opened(self) -> None:
        super().opened()
        self._link.flow(self.window.opened())

    def settled(self) -> None:
        """A message was settled: grant credit where that is due."""
        if room := self.window.acknowledged():
            self._link.flow(room)
        self._owner.flush_soon()


@dataclass(slots=True, eq=False)
class _Outgoing:
    """A message that waits for credit, or for its outcome."""

    encoded: bytes
    outcome: asyncio.Future[None]
    delivery: Delivery | None = None


class SendLink(_End):
    """A sender to one address. Messages leave in the order of `send`, each as soon as there is credit for it."""

    def __init__(self, owner: BusConnection, link: Any) -> None:
        super().__init__(owner, link)
        self._waiting: deque[_Outgoing] = deque()
        self._unsettled: set[_Outgoing] = set()
        #: When something was last sent, in seconds of the loop's clock.
        self.last_used = owner.loop.time()

    @property
    def address(self) -> str:
        return str(self._link.target.address or "")

    @property
    def credit(self) -> int:
        """Messages that the peer takes now."""
        return int(self._link.credit)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is unsettled."""
        return not self._waiting and not self._unsettled

    async def send(self, message: Message, timeout: float) -> None:
        """Send a message and wait for its outcome, `timeout` seconds at most.

        Raises SendTimedOut, DeliveryFailure (the peer released or modified it), DeliveryRejected, and what ended the
        link or connection meanwhile.
        """
        if self.ended is not None:
            raise self.ended
        one = _Outgoing(message.encode(), self._owner.loop.create_future())
        self._waiting.append(one)
        self.pump()
        try:
            async with asyncio.timeout(timeout):
                await one.outcome
        except TimeoutError:
            raise SendTimedOut(self.address, timeout, sent=one.delivery is not None) from None
        finally:
            self._forget(one)

    def pump(self) -> None:
        """Send what waits, as far as there is credit."""
        while self._waiting and self._link.credit > 0:
            one = self._waiting.popleft()
            one.delivery = self._link.delivery(self._link.delivery_tag())
            one.delivery.context = one
            self._unsettled.add(one)
            self._link.stream(one.encoded)
            self._link.advance()
            self.last_used = self._owner.loop.time()
        self._owner.flush_soon()

    def updated(self, delivery: Delivery) -> None:
        """The peer said what became of a message."""
        one = delivery.context
        state = delivery.remote_state
        if one is None or not (state in _OUTCOMES or delivery.settled):
            return
        if not one.outcome.done():
            if (failure := _failure(delivery, self.address)) is None:
                one.outcome.set_result(None)
            else:
                one.outcome.set_exception(failure)
        self._unsettled.discard(one)
        delivery.settle()

    def end(self, why: MessagingError) -> None:
        super().end(why)
        for one in (*self._waiting, *self._unsettled):
            if not one.outcome.done():
                one.outcome.set_exception(why)
        self._waiting.clear()
        self._unsettled.clear()

    def _forget(self, one: _Outgoing) -> None:
        # One that has left stays unsettled until its outcome comes: proton would send it as settled where it still
        # waits for the peer.
        with contextlib.suppress(ValueError):
            self._waiting.remove(one)


_OUTCOMES = {Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED}


def _failure(delivery: Delivery, address: str) -> MessagingError | None:
    """What an outcome means to the sender; None where the message was taken."""
    state = delivery.remote_state
    if state in (Delivery.RELEASED, Delivery.MODIFIED):
        word = "released" if state == Delivery.RELEASED else "modified"
        return DeliveryFailure(f"the message to {address!r} was {word}: no receiver took it")
    if state == Delivery.REJECTED:
        return DeliveryRejected(address, *_words(delivery.remote.condition))
    return None


def _put(terminus: Terminus, capabilities: tuple[str, ...]) -> None:
    # RabbitMQ understands an array, and not the single symbol that stands for an array of one.
    if capabilities:
        terminus.capabilities.put_object(
            proton.Array(proton.UNDESCRIBED, proton.Data.SYMBOL, *map(symbol, capabilities))
        )


def _words(condition: Any) -> tuple[str, str]:
    return (str(condition.name or ""), str(condition.description or "")) if condition else ("", "")


EndT = TypeVar("EndT", bound=_End)


class BusConnection(asyncio.Protocol):
    """A connection to a peer. `await BusConnection.connect(...)` opens one."""

    def __init__(self, peer: str, lost: Callable[[MessagingError], None] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        #: The peer's address, for people.
        self.peer = peer
        self._lost = lost
        self._socket: asyncio.Transport | None = None
        self._connection = proton.Connection()
        self._collector = Collector()
        self._connection.collect(self._collector)
        self._engine = proton.Transport()
        self._ends: set[_End] = set()
        self._open: asyncio.Future[None] = self.loop.create_future()
        self._flush: asyncio.Handle | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._sessions: list[Any] = []
        self._number = 0
        self._gone = asyncio.Event()
        #: Why the connection ended; None while it is there.
        self.ended: MessagingError | None = None

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        login: Login = Login(),
        tls: ssl.SSLContext | None = None,
        virtual_host: str | None = None,
        container: str = "osrdyne",
        lost: Callable[[MessagingError], None] | None = None,
    ) -> Self:
        """Connect, log in and open. `lost` is called once when an open connection ends without `close`.

        Raises ConnectFailed and LoginRefused.
        """
        loop = asyncio.get_running_loop()
        peer = f"{host}:{port}"
        made = cls(peer, lost)
        made._prepare(login, virtual_host or host, container)
        try:
            async with asyncio.timeout(PATIENCE):
                await loop.create_connection(lambda: made, host, port, ssl=tls)
                await asyncio.shield(made._open)
        except TimeoutError:
            made._abort(ConnectFailed(f"{peer} did not open an AMQP 1.0 connection within {PATIENCE:g} s"))
            raise made.ended or ConnectFailed(peer) from None
        except OSError as error:
            raise ConnectFailed(f"cannot connect to {peer}: {error}") from error
        except asyncio.CancelledError:
            made._abort(None)
            raise
        return made

    def _prepare(self, login: Login, virtual_host: str, container: str) -> None:
        self._connection.container = container
        self._connection.hostname = virtual_host
        if login.user is not None:
            self._connection.user = login.user
            self._connection.password = login.password or ""
        sasl = self._engine.sasl()
        # PLAIN without TLS is what the address asked for: whether that may be is decided there.
        sasl.allow_insecure_mechs = True
        if login.mechanisms:
            sasl.allowed_mechs(login.mechanisms)
        self._engine.idle_timeout = IDLE
        self._engine.bind(self._connection)
        self._connection.open()

    @property
    def properties(self) -> Mapping[object, object]:
        """What the peer says of itself, its `product` among it."""
        return {str(key): value for key, value in (self._connection.remote_properties or {}).items()}

    async def subscribe(
        self,
        address: str | None,
        window: CreditWindow,
        received: Received,
        *,
        capabilities: tuple[str, ...] = (),
        settled: bool = False,
    ) -> Subscription:
        """Attach a receiver; without an address the peer makes one. Raises LinkRefused and PeerLost."""
        link = self._session().receiver(self._name())
        if address is None:
            link.source.dynamic = True
            link.source.expiry_policy = Terminus.EXPIRE_WITH_LINK
        else:
            link.source.address = address
        _put(link.source, capabilities)
        if settled:
            link.snd_settle_mode = Link.SND_SETTLED
        return await self._attach(Subscription(self, link, window, received))

    async def sender(self, address: str, *, capabilities: tuple[str, ...] = ()) -> SendLink:
        """Attach a sender. Raises LinkRefused and PeerLost."""
        link = self._session().sender(self._name())
        link.target.address = address
        _put(link.target, capabilities)
        link.snd_settle_mode = Link.SND_UNSETTLED
        return await self._attach(SendLink(self, link))

    async def _attach(self, end: EndT) -> EndT:
        if self.ended is not None:
            raise self.ended
        self._ends.add(end)
        await end.attached()
        return end

    def _session(self) -> Any:
        # RabbitMQ 4.0 ends the whole session of a link that it refuses. So each link has a session of its own, as long
        # as the peer allows one more; then links share those with the fewest. One without links is used again: RabbitMQ
        # does not follow when a session is ended and another one begun at once.
        links = Counter(end.session for end in self._ends)
        if all(links[one] for one in self._sessions) and len(self._sessions) < self._most_sessions:
            session = self._connection.session()
            session.open()
            self._sessions.append(session)
            return session
        return min(self._sessions, key=links.__getitem__)

    @property
    def _most_sessions(self) -> int:
        return min(MOST_SESSIONS, int(self._engine.remote_channel_max) + 1)

    def gone(self, end: _End) -> None:
        """Forget a link."""
        self._ends.discard(end)

    def _name(self) -> str:
        self._number += 1
        return f"{self._connection.container}-{self._number}"

    async def close(self) -> None:
        """Close the connection; the peer has PATIENCE to say that it is closed. Safe to repeat."""
        if self.ended is not None:
            return
        self._end(PeerLost(f"the connection to {self.peer} was closed here"), report=False)
        self._connection.close()
        self._work()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._gone.wait()
        self._abort(None)

    # --- of asyncio ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        self._work()

    def data_received(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            capacity = self._engine.capacity()
            if capacity <= 0:
                break  # the engine takes no more: its connection has ended
            self._engine.push(bytes(view[:capacity]))
            view = view[capacity:]
            self._events()
        self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        with contextlib.suppress(proton.ProtonException):
            self._engine.close_tail()
            self._engine.close_head()
        self._events()
        why = f": {exc}" if exc else ""
        self._end(PeerLost(f"the connection to {self.peer} ended{why}; what was under way may have been done"))
        if self._tick is not None:
            self._tick.cancel()

    def flush_soon(self) -> None:
        """Write what there is to write before the loop waits again."""
        if self._flush is None:
            self._flush = self.loop.call_soon(self._work)

    # --- of proton ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Handle all events, and write all there is to write."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._socket is None or self._gone.is_set():
            return
        self._keep_time()
        while True:
            self._events()
            pending = self._engine.pending()
            if pending <= 0:
                break
            self._socket.write(self._engine.peek(pending))
            self._engine.pop(pending)
        if pending < 0 or self._engine.closed:
            self._socket.close()

    def _keep_time(self) -> None:
        # This may make an empty frame, which is written with the others.
        if self._tick is not None:
            self._tick.cancel()
        now = time.monotonic()
        deadline = self._engine.tick(now)
        if deadline:
            self._tick = self.loop.call_later(max(0.0, deadline - now), self._work)

    def _events(self) -> None:
        while (event := self._collector.peek()) is not None:
            try:
                if (handle := self._HANDLERS.get(event.type)) is not None:
                    handle(self, event)
            finally:
                self._collector.pop()

    def _opened(self, event: Event) -> None:
        if not self._open.done():
            self._open.set_result(None)

    def _closed(self, event: Event) -> None:
        name, description = _words(event.connection.remote_condition)
        self._end(PeerLost(f"{self.peer} closed the connection: {description or name or 'it gave no reason'}"))
        self._connection.close()

    def _session_closed(self, event: Event) -> None:
        session = event.session
        for end in [one for one in self._ends if one.session == session]:
            self._refused(end, session.remote_condition)
        self._sessions.remove(session)
        session.close()
        session.free()

    def _broken(self, event: Event) -> None:
        name, description = _words(event.transport.condition)
        said = description or name
        if self._engine.sasl().outcome not in (proton.SASL.OK, None):
            self._end(LoginRefused(f"{self.peer} refused the login: {said}"))
        elif not self._open.done():
            self._end(
                ConnectFailed(
                    f"{self.peer} ended the connection before it was open ({said}): "
                    f"check that it speaks AMQP 1.0 and has the virtual host {self._connection.hostname!r}"
                )
            )
        else:
            self._end(PeerLost(f"the connection to {self.peer} broke: {said}; what was under way may have been done"))

    def _link_opened(self, event: Event) -> None:
        link = event.link
        # A peer that refuses a link attaches it without an address, and detaches it with the reason at once.
        far = link.remote_target if link.is_sender else link.remote_source
        if link.context is not None and far.address:
            link.context.opened()

    def _link_closed(self, event: Event) -> None:
        link = event.link
        if link.context is not None:
            self._refused(link.context, link.remote_condition)
        link.close()
        link.free()

    def _refused(self, end: _End, condition: Any) -> None:
        name, description = _words(condition)
        end.end(LinkRefused(f"{self.peer} ended the link to {end.address!r}: {description or name or 'no reason'}"))
        self.gone(end)

    def _flow(self, event: Event) -> None:
        if event.link.is_sender and event.link.context is not None:
            event.link.context.pump()

    def _delivered(self, event: Event) -> None:
        delivery, link = event.delivery, event.link
        if link.is_sender:
            link.context.updated(delivery)
        elif delivery.aborted:
            link.advance()
            delivery.settle()
            link.context.settled()
        elif delivery.readable and not delivery.partial:
            encoded = link.recv(delivery.pending)
            link.advance()
            subscription: Subscription = link.context
            if subscription.ended is not None:
                return  # closed here while it was on its way: the peer takes it back
            subscription.window.arrived()
            message = Message()
            try:
                message.decode(encoded or b"")
            except proton.MessageException as error:
                Incoming(message, delivery, subscription).reject("amqp:decode-error", str(error)[:200])
            else:
                subscription.received(Incoming(message, delivery, subscription))

    _HANDLERS: ClassVar[Mapping[Any, Callable[[BusConnection, Event], None]]] = {
        Event.CONNECTION_REMOTE_OPEN: _opened,
        Event.CONNECTION_REMOTE_CLOSE: _closed,
        Event.SESSION_REMOTE_CLOSE: _session_closed,
        Event.TRANSPORT_ERROR: _broken,
        Event.LINK_REMOTE_OPEN: _link_opened,
        Event.LINK_REMOTE_CLOSE: _link_closed,
        Event.LINK_REMOTE_DETACH: _link_closed,
        Event.LINK_FLOW: _flow,
        Event.DELIVERY: _delivered,
    }

    def _end(self, why: MessagingError, *, report: bool = True) -> None:
        if self.ended is not None:
            return
        self.ended = why
        was_open = self._open.done()
        if not was_open:
            self._open.set_exception(why)
            self._open.exception()
        for end in list(self._ends):
            end.end(why)
        self._ends.clear()
        if was_open and report and self._lost is not None:
            self._lost(why)

    def _abort(self, why: MessagingError | None) -> None:
        if why is not None:
            self._end(why, report=False)
        if self._socket is not None:
            self._socket.abort()
