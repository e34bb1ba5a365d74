"""How a message leaves: over the present connection or the next one, and again where that does nothing twice."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

from osrdyne_bus.aio.kept_connection import KeptConnection
from osrdyne_bus.aio.peer_connection import PeerConnection
from osrdyne_bus.aio.senders import AnyAddress
from osrdyne_bus.engine import SendLink
from osrdyne_bus.errors import DeliveryFailure, LinkRefused, PeerLost, SendTimedOut, Unsent
from osrdyne_bus.messages.envelopes import Envelope
from osrdyne_bus.settings import BusSettings
from osrdyne_protocol.durations import timeout_of
from osrdyne_runtime.retry import Retry

#: What a message is sent to, and what it is, by the connection that it leaves over.
AddressOf = Callable[[PeerConnection], str | AnyAddress]
EnvelopeOf = Callable[[PeerConnection], Envelope]


class MessageSender:
    """Sends the messages of a bus, whatever becomes of its connection meanwhile."""

    def __init__(self, connection: KeptConnection, settings: BusSettings) -> None:
        self._connection = connection
        self._settings = settings

    async def send(
        self,
        address: AddressOf,
        make: EnvelopeOf,
        timeout: float,
        *,
        wants_reply: bool = False,
    ) -> PeerConnection:
        """Send a message, and return the connection that it left over. Raises as `AsyncBus.send`."""
        timeout = timeout_of(timeout)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        retry, resends = Retry(first=0.05, limit=2.0), 0
        given_back: DeliveryFailure | None = None
        while True:
            try:
                to_peer = self._connection.present
                link = None if to_peer is None else to_peer.senders.ready(address(to_peer))
                if to_peer is None or link is None or (wants_reply and not to_peer.reply_to):
                    to_peer, link = await self._ready(address, timeout, deadline, wants_reply=wants_reply)
                message = make(to_peer)
                if self._settings.text_bodies:
                    message = replace(message, text=True)
                await link.send(message, max(0.0, deadline - loop.time()))
                return to_peer
            except SendTimedOut as late:
                if given_back is not None and not late.sent:
                    raise given_back from None
                connected = late.sent or late.connected
                raise SendTimedOut(
                    late.address, timeout, sent=late.sent, connected=connected, trouble=late.trouble
                ) from None
            except Unsent:
                pause = retry.failed()
            except DeliveryFailure as failure:
                assert to_peer is not None
                most = math.inf if to_peer.scheme.routed else 0
                if self._settings.resends is not None:
                    most = self._settings.resends
                if not (failure.released or self._settings.resend_modified) or resends >= most:
                    raise
                pause, resends, given_back = retry.failed(), resends + 1, failure
            await asyncio.sleep(max(0.0, min(pause, deadline - loop.time())))

    async def _ready(
        self, address: AddressOf, timeout: float, deadline: float, *, wants_reply: bool
    ) -> tuple[PeerConnection, SendLink]:
        """Return a connection, and its link to the address. Raises SendTimedOut, LinkRefused, Unsent, BusClosed."""
        to: str | AnyAddress = ""
        try:
            async with asyncio.timeout_at(deadline):
                to_peer = await asyncio.shield(self._connection.soon())
                to = address(to_peer)
                if wants_reply:
                    await self._connection.receive_replies(to_peer)
                    to = address(to_peer)
                return to_peer, await to_peer.sender(to)
        except TimeoutError:
            at = to if isinstance(to, str) else to.purpose
            connected = self._connection.present is not None
            trouble = self._connection.trouble
            raise SendTimedOut(at, timeout, sent=False, connected=connected, trouble=trouble) from None
        except LinkRefused as refused:
            if refused.condition:
                raise
            raise Unsent(str(refused)) from refused  # the peer was slow: it may be quicker next time
        except PeerLost as lost:
            raise Unsent(str(lost)) from lost
