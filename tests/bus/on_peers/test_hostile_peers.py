"""Peers that do what RabbitMQ does not: each ends in an error or a message, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial
from typing import Any

import pytest
from proton import Condition, Delivery

from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus, AsyncBusClient
from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine import MOST_SESSIONS, BusConnection, IncomingMessage, connection, senders, transport
from osrdyne_bus.engine.messages import encoded
from osrdyne_bus.errors import ConnectFailed, LinkRefused, MessagingError, OutcomeUnknown, PeerLost, SendTimedOut
from osrdyne_bus.messages.envelopes import Envelope
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.scripted_peer import ScriptedPeer, serving
from tests.bus.on_peers.test_messages import nested

GOOD = encoded(Envelope(body=b"good"))


async def test_what_was_sent_and_what_was_closed_is_forgotten() -> None:
    async with serving(ScriptedPeer()) as port:
        made = await BusConnection.connect("127.0.0.1", port)
        kept = await made.sender("q")
        for _ in range(20):
            await kept.send(Envelope(body=b"x" * 1000), PATIENCE_SECONDS)
        closed = await made.sender("q")
        closed.close()
        subscription = await made.subscribe("q", CreditWindow(1), print)
        watched = [weakref.ref(thing) for thing in (made, kept, closed, subscription)]
        await made.close()
        del made, kept, closed, subscription

        gc.collect()
        assert [reference() for reference in watched] == [None] * 4
        assert not [thing for thing in gc.get_objects() if type(thing) is senders._OutgoingMessage]


async def test_a_peer_that_opens_and_closes_at_once_refuses_the_connection() -> None:
    class RefusingPeer(ScriptedPeer):
        def on_connection_remote_open(self, event: Any) -> None:
            super().on_connection_remote_open(event)
            self.connection.condition = Condition("amqp:not-allowed", "no such host")
            self.connection.close()

    lost: list[MessagingError] = []
    async with serving(RefusingPeer()) as port:
        with pytest.raises(ConnectFailed, match="closed the connection: no such host"):
            await BusConnection.connect("127.0.0.1", port, lost=lost.append)
    assert lost == []


async def test_a_message_that_was_settled_without_an_outcome_is_not_taken_for_delivered() -> None:
    class Silent(ScriptedPeer):
        def took(self, delivery: Any) -> None:
            delivery.settle()

    async with serving(Silent()) as port:
        made = await BusConnection.connect("127.0.0.1", port)
        link = await made.sender("q")
        with pytest.raises(OutcomeUnknown, match="settled the message to 'q' and did not say whether it was taken"):
            await link.send(Envelope(), PATIENCE_SECONDS)
        await made.close()


async def test_a_message_that_was_modified_differs_from_one_that_was_released() -> None:
    class ModifyingPeer(ScriptedPeer):
        def took(self, delivery: Any) -> None:
            delivery.update(Delivery.MODIFIED)
            delivery.settle()

    async with serving(ModifyingPeer()) as port:
        made = await BusConnection.connect("127.0.0.1", port)
        link = await made.sender("q")
        with pytest.raises(MessagingError, match="was modified: a receiver gave it back, and may have begun"):
            await link.send(Envelope(), PATIENCE_SECONDS)
        await made.close()


async def test_deliveries_that_are_aborted_cost_no_credit_and_no_other_message() -> None:
    peer, seen = ScriptedPeer(), []
    async with serving(peer) as port:
        made = await BusConnection.connect("127.0.0.1", port)
        window = CreditWindow(4)

        def received(incoming: IncomingMessage) -> None:
            seen.append(incoming.envelope.body)
            incoming.accept()

        await made.subscribe("a", window, received)
        await made.subscribe("b", CreditWindow(4), lambda incoming: incoming.accept())
        first, second = peer.links
        for number in range(6):
            await until_async(lambda: first.credit > 0)
            # In one read: a part of a message, one of another link, the end of the first, and a whole message
            data = b""
            delivery = first.delivery(f"aborted-{number}")
            first.stream(b"y" * 40_000)
            data += peer.pending()
            peer.send(second, GOOD)
            data += peer.pending()
            delivery.abort()
            data += peer.pending()
            await until_async(lambda: first.credit > 0)
            peer.send(first, GOOD)
            peer.write(data + peer.pending())
            await until_async(partial(reached, seen, number + 1))

        assert seen == [b"good"] * 6
        assert window.unacknowledged == 0
        await made.close()


async def test_a_message_that_cannot_be_read_is_rejected_and_the_next_one_is_shown() -> None:
    peer, seen = ScriptedPeer(), []
    async with serving(peer) as port:
        made = await BusConnection.connect("127.0.0.1", port)

        def received(incoming: IncomingMessage) -> None:
            seen.append(incoming.envelope.body)
            incoming.accept()

        await made.subscribe("q", CreditWindow(4), received)
        await until_async(lambda: bool(peer.links) and peer.links[0].credit > 0)
        peer.send(peer.links[0], nested(900))
        peer.send(peer.links[0], GOOD)
        peer.flush()

        await until_async(lambda: len(peer.outcomes) == 2)
        assert peer.outcomes == [Delivery.REJECTED, Delivery.ACCEPTED]
        assert seen == [b"good"]
        await made.close()


async def test_a_peer_that_reads_nothing_more_does_not_keep_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "IDLE_SECONDS", 1.0)
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 1.0)
    peer = ScriptedPeer()
    lost: list[MessagingError] = []
    async with serving(peer) as port:
        made = await BusConnection.connect("127.0.0.1", port, lost=lost.append)
        link = await made.sender("q")
        peer.socket.pause_reading()

        sending = [asyncio.create_task(link.send(Envelope(body=b"z" * 200_000), PATIENCE_SECONDS)) for _ in range(90)]
        ended = await asyncio.gather(*sending, return_exceptions=True)

        assert {type(result) for result in ended} == {PeerLost}
        assert len(lost) == 1
        await asyncio.wait_for(made._transport.gone.wait(), PATIENCE_SECONDS)
        assert made._transport._socket is not None
        assert made._transport._socket.get_extra_info("socket").fileno() == -1


async def test_sessions_and_links_that_the_peer_begins_harm_nothing() -> None:
    peer = ScriptedPeer()
    async with serving(peer) as port:
        made = await BusConnection.connect("127.0.0.1", port)
        link = await made.sender("q")
        session = peer.connection.session()
        session.open()
        foreign = peer.links[0].session.sender("of the peer")
        foreign.target.address = foreign.source.address = "x"
        foreign.open()
        peer.flush()
        await link.send(Envelope(), PATIENCE_SECONDS)
        session.close()
        peer.flush()

        await link.send(Envelope(), PATIENCE_SECONDS)
        assert foreign.remote_condition.description == "this client takes no links"
        assert made.ended is None
        await made.close()


def reached(seen: list[bytes], number: int) -> bool:
    return len(seen) == number


def transfer(number: int, handle: int = 0) -> bytes:
    """A frame with a message, whether there is credit for it or not: proton itself would wait."""
    tag = str(number).encode()
    fields = b"\x52" + bytes([handle]) + b"\x52" + bytes([number]) + b"\xa0" + bytes([len(tag)]) + tag + b"\x43\x42"
    performative = b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 5]) + fields
    frame = performative + GOOD
    return (len(frame) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + frame


async def test_a_peer_that_sends_more_than_its_credit_loses_the_link_and_fills_no_memory() -> None:
    peer = ScriptedPeer()
    held: list[IncomingMessage] = []
    async with serving(peer) as port:
        made = await BusConnection.connect("127.0.0.1", port)
        subscription = await made.subscribe("q", CreditWindow(2), held.append)
        await until_async(lambda: bool(peer.links) and peer.links[0].credit == 2)

        for number in range(12):
            peer.write(transfer(number))

        await until_async(lambda: subscription.ended is not None)
        assert len(held) == 2
        assert isinstance(subscription.ended, LinkRefused)
        assert "it sent more than it had credit for" in str(subscription.ended)
        assert made.ended is None
        await made.close()


async def test_a_link_that_is_attached_just_as_its_wait_is_cancelled_is_closed() -> None:
    async with serving(ScriptedPeer()) as port:
        made = await BusConnection.connect("127.0.0.1", port)
        window = CreditWindow(3)
        task = asyncio.create_task(made.subscribe("q", window, print))
        await asyncio.sleep(0)
        (end,) = made._links.values()
        end._attached.add_done_callback(lambda _: task.cancel())

        await asyncio.wait([task])

        assert task.cancelled()
        assert isinstance(end.ended, PeerLost)
        await made.close()


async def test_a_link_that_is_attached_after_its_wait_was_cancelled_grants_nothing() -> None:
    async with serving(ScriptedPeer()) as port:
        made = await BusConnection.connect("127.0.0.1", port)
        window = CreditWindow(3)
        task = asyncio.create_task(made.subscribe("q", window, print))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

        await (await made.sender("q")).send(Envelope(), PATIENCE_SECONDS)

        assert window.credit == 0
        await made.close()


async def test_an_error_that_is_raised_again_and_again_does_not_grow() -> None:
    async with serving(ScriptedPeer()) as port:
        made = await BusConnection.connect("127.0.0.1", port)
        await made.close()
        for _ in range(50):
            with pytest.raises(PeerLost):
                await made.sender("q")

        entries, at = 0, made.ended.__traceback__ if made.ended else None
        while at is not None:
            entries, at = entries + 1, at.tb_next
        assert 0 < entries < 10


async def test_a_pair_of_links_whose_session_ends_in_between_is_refused_at_once() -> None:
    class EndsSession(ScriptedPeer):
        def on_link_remote_open(self, event: Any) -> None:
            super().on_link_remote_open(event)
            event.session.condition = Condition("amqp:internal-error", "as it likes")
            event.session.close()

    async with serving(EndsSession()) as port:
        made = await BusConnection.connect("127.0.0.1", port)

        with pytest.raises(LinkRefused, match="ended the link to 'm': as it likes"):
            await made.pair("m", CreditWindow(1), print)

        await made.close()


async def test_a_peer_that_answers_no_link_gets_more_links_than_it_allows_sessions() -> None:
    class Silent(ScriptedPeer):
        def on_link_remote_open(self, event: Any) -> None:
            self.links.append(event.link)

        def has(self, links: int) -> bool:
            return len(self.links) >= links

    peer = Silent()
    async with serving(peer) as port:
        made = await BusConnection.connect("127.0.0.1", port)
        for at in range(MOST_SESSIONS + 5):
            given_up = asyncio.create_task(made.sender("q"))
            await until_async(partial(peer.has, at + 1))
            given_up.cancel()
            await asyncio.wait([given_up])
        await made.close()


async def test_a_message_waits_while_the_peer_withdraws_its_credit_and_then_leaves() -> None:
    peer = ScriptedPeer()
    async with serving(peer) as port:
        made = await BusConnection.connect("127.0.0.1", port)
        link = await made.sender("q")
        await link.send(Envelope(), PATIENCE_SECONDS)
        (far,) = peer.links

        far.drain(0)
        peer.flush()
        # The peer hears that its credit is used up: nothing more is on its way.
        await until_async(lambda: far.credit == 0 and not far.draining())

        with pytest.raises(SendTimedOut, match="the message to 'q' had no credit; it was not sent"):
            await link.send(Envelope(), 0.2)
        waiting = asyncio.create_task(link.send(Envelope(), PATIENCE_SECONDS))
        far.drain_mode = False
        far.flow(1)
        peer.flush()
        await waiting
        await made.close()


async def test_a_link_that_is_detached_with_an_error_ends_what_is_under_way_with_its_reason() -> None:
    class DetachingPeer(ScriptedPeer):
        def took(self, delivery: Any) -> None:
            delivery.link.condition = Condition("amqp:resource-limit-exceeded", "the disk is full")
            delivery.link.close()

    async with serving(DetachingPeer()) as port, AsyncBus(f"amqp://127.0.0.1:{port}") as bus:
        for send in (AsyncBusClient(bus).call, AsyncBusClient(bus).cast):
            with pytest.raises(OutcomeUnknown, match="the disk is full; it may have been delivered"):
                await send(Target("maps"), "find", timeout=PATIENCE_SECONDS)
