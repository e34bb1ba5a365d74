"""Calls of a bus that wait for their replies."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from osrdyne_bus.aio.sending import AddressOf, MessageSender
from osrdyne_bus.engine import IncomingMessage
from osrdyne_bus.engine.senders import expire
from osrdyne_bus.errors import MessagingError, MessagingTimeout, RepliesLost
from osrdyne_bus.messages.envelopes import Envelope
from osrdyne_calls.slots import Slots
from osrdyne_calls.waits import Wait
from osrdyne_protocol.durations import timeout_of


@dataclass(slots=True, eq=False)
class _Call:
    """A call that waits for its reply."""

    reply: asyncio.Future[Envelope]
    #: The peer has its request.
    sent: bool = False

    def fail(self, why: MessagingError) -> None:
        if not self.reply.done():
            self.reply.set_exception(why)


class WaitingCalls:
    """Gives each call a name, by which its reply is known."""

    def __init__(self, slots: int) -> None:
        """`slots`: calls that may wait at once."""
        self._slots: Slots[_Call] = Slots(slots, secrets.token_hex(8))

    @property
    def number(self) -> int:
        """How many calls wait."""
        return self._slots.taken

    async def call(
        self, sender: MessageSender, address: AddressOf, make: Callable[[str, str], Envelope], timeout: float
    ) -> Envelope:
        """Send a request, and return its reply. `make` and what this raises are as in `AsyncBus.call`."""
        timeout = timeout_of(timeout)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        call = _Call(loop.create_future())
        name = self._slots.take(call, now=loop.time(), deadline=deadline)
        try:
            try:
                to_peer = await sender.send(
                    address, lambda to_peer: make(name, to_peer.reply_to), timeout, wants_reply=True
                )
            except MessagingError:
                if not call.reply.done():  # a reply shows that the request arrived
                    raise
            else:
                call.sent = True
                if to_peer.connection.ended is not None and to_peer.nodes is None and not call.reply.done():
                    raise RepliesLost(str(to_peer.connection.ended))
            timer = loop.call_at(deadline, expire, call.reply)
            try:
                return await call.reply
            finally:
                timer.cancel()
        except TimeoutError:
            said = f"no reply within {timeout:g} s; the request was delivered, and may be under way"
            raise MessagingTimeout(said, wait=Wait.CONFIRMED) from None
        finally:
            self._slots.release(name)

    def replied(self, incoming: IncomingMessage) -> None:
        """End the call that a reply is for. One that is for no call is dropped."""
        call = self._slots.match(incoming.envelope.correlation_id)
        incoming.accept()
        if call is not None and not call.reply.done():
            call.reply.set_result(incoming.envelope)

    def fail_sent(self, why: MessagingError) -> None:
        """End the calls whose requests were sent: their replies cannot come any more."""
        for call in self._slots.waiting():
            if call.sent:
                call.fail(why)

    def fail_all(self, why: Callable[[], MessagingError]) -> None:
        """End all calls, each with an error of its own."""
        for call in self._slots.waiting():
            call.fail(why())
