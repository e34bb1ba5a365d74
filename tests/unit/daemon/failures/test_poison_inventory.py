"""Work on the poison inventory where the broker hands over too little, or goes away in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from osrdyne.commands.poison.entry import Entry, Selection, read
from osrdyne.commands.poison.inventory import Incomplete, Inventory
from osrdyne_amqp import Message, Properties
from osrdyne_amqp.errors import BrokerError, BrokerUnreachable, PreconditionFailed
from osrdyne_amqp.message import QueueInfo
from osrdyne_protocol.headers import X_POISON_ID, X_POISON_KEY
from osrdyne_protocol.names import PoolNames

pytestmark = pytest.mark.looptime


class Broker:
    """A connection and its one channel, to a broker with `ready` entries, of which it hands over `handed`."""

    def __init__(self, ready: int, handed: int | None = None) -> None:
        self.ready = ready
        self.handed = ready if handed is None else handed
        self.acknowledged: list[int] = []
        self.prefetch: int | None = None
        self.is_open = True
        #: False once the broker has closed the channel
        self.can_publish = True

    async def channel(self, *, prefetch: int | None = None, confirm: bool = False) -> Broker:
        self.prefetch = prefetch
        self.can_publish = self.can_publish or confirm
        return self

    def publish(self, _exchange: str, _key: str, body: bytes, *_: Any, **__: Any) -> asyncio.Future[None]:
        confirm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if body == b"refused" or not self.can_publish:
            self.can_publish = False
            confirm.set_exception(PreconditionFailed("message size 8 is larger than configured max size 7"))
        else:
            confirm.set_result(None)
        return confirm

    async def declare_queue(self, name: str, *, passive: bool) -> QueueInfo:
        if not self.is_open:
            raise BrokerUnreachable("gone")
        return QueueInfo(name, self.ready, 0)

    async def consume(self, _: str, on_message: Callable[[Message], None], *, on_cancel: Callable[[], None]) -> str:
        for tag in range(self.handed):
            on_message(Message(b"", "", "core-poison", Properties(headers={X_POISON_ID: str(tag)}), tag, False))
        return "tag"

    async def limit(self, _: int) -> None:
        """What is handed over is set above."""

    async def cancel(self, _: str) -> None:
        """Nothing more comes anyway."""

    async def wait_closed(self) -> BrokerError:
        never: asyncio.Future[BrokerError] = asyncio.get_running_loop().create_future()
        return await never

    def ack(self, tag: int) -> None:
        self.acknowledged.append(tag)

    async def close(self) -> None:
        """Never raises, as that of a channel."""

    def inventory(self) -> Inventory:
        connection: Any = self
        return Inventory(connection, PoolNames("core"), ("core-poison",), connection, "me")


async def test_entries_that_the_broker_does_not_hand_over_are_not_taken_for_none() -> None:
    with pytest.raises(Incomplete, match="2 of 3 entries"):
        await Broker(3, handed=2).inventory().entries()


async def test_the_broker_is_asked_for_more_than_it_hands_over_unasked() -> None:
    broker = Broker(3)
    assert len(await broker.inventory().entries()) == 3
    assert (broker.prefetch or 0) > 2000


async def test_the_connection_lives_while_many_entries_are_removed() -> None:
    # Given a task that needs the loop, as heartbeats and the acknowledgements themselves do
    broker, acts, turns = Broker(20), 0, 0

    def turn() -> None:
        nonlocal turns
        turns += 1

    async def remove(_: Entry, __: Message) -> None:
        nonlocal acts
        assert turns == acts
        acts += 1
        asyncio.get_running_loop().call_soon(turn)

    await broker.inventory().take_out(Selection(everything=True), remove)
    assert broker.acknowledged == list(range(20))


async def test_what_was_acknowledged_on_a_lost_connection_does_not_count_as_removed() -> None:
    broker = Broker(1)

    async def lose(_: Entry, __: Message) -> None:
        broker.is_open = False

    with pytest.raises(BrokerUnreachable):
        await broker.inventory().take_out(Selection(everything=True), lose)


async def test_an_entry_that_the_broker_refuses_holds_up_no_other() -> None:
    inventory = Broker(2).inventory()

    async def sent(body: bytes) -> str | None:
        message = Message(body, "", "core-poison", Properties(headers={X_POISON_KEY: "42"}), 1, False)
        entry = read(message)
        return await inventory.send_again(entry, message, keep_deadline=False)

    assert "larger than configured" in str(await sent(b"refused"))
    assert await sent(b"good") is None
