"""Large messages: the engine has a small part of each at any time, whichever way it goes."""

from __future__ import annotations

import asyncio
from typing import Any

import proton
import pytest
from proton import Delivery, Endpoint

from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine import BusConnection, SendLink
from osrdyne_bus.engine.subscriptions import IncomingMessage
from osrdyne_bus.errors import DeliveryRejected, OutcomeUnknown
from osrdyne_bus.messages.envelopes import Envelope
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.scripted_peer import ScriptedPeer, serving

#: Bytes that the engine is given at once.
PIECE = 256 * 1024
LARGE = 16 * PIECE


class SlowPeer(ScriptedPeer):
    """Takes two frames at a time, and a message while it comes."""

    def __init__(self) -> None:
        super().__init__()
        self._engine.max_frame_size = 16 * 1024
        self.taken: list[int] = []
        self._size = 0
        #: The link that is watched, and most bytes that its engine had to send.
        self.sender: SendLink | None = None
        self.most = 0

    def on_session_remote_open(self, event: Any) -> None:
        if event.session.state & Endpoint.LOCAL_UNINIT:
            event.session.incoming_capacity = 32 * 1024
            event.session.open()

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if not (link.is_receiver and delivery.readable):
            return
        assert self.sender is not None
        self.most = max(self.most, self.sender._link.session.outgoing_bytes)
        self._size += len(link.recv(delivery.pending) or b"")
        if self.came(delivery, link):
            return
        if not delivery.partial:
            self.taken.append(self._size)
            self._size = 0
            link.advance()
            self.took(delivery)

    def came(self, delivery: Any, link: Any) -> bool:
        """A part came; return whether no more of the message is wanted."""
        return False


async def test_a_large_message_to_a_slow_peer_is_given_to_the_engine_in_pieces_and_others_follow_it() -> None:
    peer = SlowPeer()
    async with serving(peer) as port:
        connection = await BusConnection.connect("127.0.0.1", port)
        sender = peer.sender = await connection.sender("a")
        bodies = [bytes(LARGE), b"small", bytes(LARGE)]
        await asyncio.gather(*(sender.send(Envelope(body), PATIENCE_SECONDS) for body in bodies))
        await connection.close()
    assert [size // PIECE for size in peer.taken] == [16, 0, 16]
    assert 0 < peer.most <= 2 * PIECE


async def test_a_message_of_which_the_peer_has_a_part_when_it_ends_the_link_is_not_sent_again() -> None:
    class EndingPeer(SlowPeer):
        def came(self, delivery: Any, link: Any) -> bool:
            link.condition = proton.Condition("amqp:internal-error", "enough")
            link.close()
            return True

    peer = EndingPeer()
    async with serving(peer) as port:
        connection = await BusConnection.connect("127.0.0.1", port)
        sender = peer.sender = await connection.sender("a")
        with pytest.raises(OutcomeUnknown, match="enough"):
            await sender.send(Envelope(bytes(LARGE)), PATIENCE_SECONDS)
        await connection.close()


async def test_a_message_that_the_peer_refuses_while_it_comes_fails_at_once_and_the_next_one_follows() -> None:
    class RefusingPeer(SlowPeer):
        def came(self, delivery: Any, link: Any) -> bool:
            if self._size >= PIECE and delivery.local_state != Delivery.REJECTED:
                delivery.local.condition = proton.Condition("test:enough", "enough")
                delivery.update(Delivery.REJECTED)
            return False

        def took(self, delivery: Any) -> None:
            if delivery.local_state != Delivery.REJECTED:
                delivery.update(Delivery.ACCEPTED)
            delivery.settle()

    peer = RefusingPeer()
    async with serving(peer) as port:
        connection = await BusConnection.connect("127.0.0.1", port)
        sender = peer.sender = await connection.sender("a")
        sending = asyncio.create_task(sender.send(Envelope(bytes(LARGE)), PATIENCE_SECONDS))
        following = asyncio.create_task(sender.send(Envelope(b"small"), PATIENCE_SECONDS))
        with pytest.raises(DeliveryRejected, match="enough"):
            await sending
        assert not peer.taken
        await following
        await connection.close()


async def test_what_has_come_of_a_large_message_does_not_stay_in_the_engine() -> None:
    peer = ScriptedPeer()
    came: list[IncomingMessage] = []
    async with serving(peer) as port:
        connection = await BusConnection.connect("127.0.0.1", port)
        subscription = await connection.subscribe("a", CreditWindow(10), came.append)
        (link,) = peer.links
        encoded = proton.Message(body=bytes(LARGE), inferred=True).encode()
        link.delivery(link.delivery_tag())
        link.stream(encoded[:LARGE])
        peer.flush()
        await until_async(lambda: subscription.read(0) == LARGE)
        assert subscription._link.session.incoming_bytes == 0
        assert not came
        link.stream(encoded[LARGE:])
        link.advance()
        peer.send(link, proton.Message(body=b"small", inferred=True).encode())
        peer.flush()
        await until_async(lambda: len(came) == 2)
        assert [len(incoming.envelope.body) for incoming in came] == [LARGE, 5]
        await connection.close()
