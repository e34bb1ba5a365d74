"""Publishing that must arrive: the message that breaks a channel is refused, and the innocent ones get through."""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from osrdyne.broker.channel_pool import ChannelPool
from osrdyne.broker.publisher import MessageRefused, Publisher
from osrdyne_amqp import Channel, Connection, Properties
from osrdyne_amqp.errors import (
    BrokerError,
    BrokerTimeout,
    ChannelClosed,
    ConnectionLost,
    Nacked,
    NotFound,
    PreconditionFailed,
    Returned,
    Unencodable,
)

pytestmark = pytest.mark.looptime

TIMEOUT = 10.0


class ConfirmChannel(Channel):
    """A confirm channel that a body `breaks: ...` closes, failing all that waits on it."""

    def __init__(self, connection: BreakableConnection) -> None:
        self._broker = connection
        self._waiting: list[asyncio.Future[Any]] = []
        self._reason: BrokerError | None = None
        self._stalled = False

    @property
    def is_open(self) -> bool:
        return self._reason is None

    def publish(
        self,
        exchange: str,
        routing_key: str | bytes,
        body: bytes,
        properties: Properties | None = None,
        *,
        mandatory: bool = False,
        publish_id: str | None = None,
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if self._reason is not None:
            future.set_exception(self._reason.again())
            return future
        if body == b"cannot be sent":
            raise Unencodable("a header does not fit")
        self._broker.published.append(body)
        self._waiting.append(future)
        # A broker stops with the first message that it cannot bring to its queue, and with all behind it.
        self._stalled = self._stalled or routing_key in self._broker.stalling
        if body != b"never confirmed" and not self._stalled and self._broker.delay is not None:
            # In order: timers of the same moment are in none.
            loop.call_later(self._broker.delay + len(self._broker.published) / 1e6, self._settle, future, body)
        return future

    def publish_final(
        self,
        exchange: str,
        routing_key: str | bytes,
        body: bytes,
        properties: Properties | None = None,
    ) -> asyncio.Future[bool]:
        return self.publish(exchange, routing_key, body, properties)

    def _settle(self, future: asyncio.Future[Any], body: bytes) -> None:
        errors = self._broker.errors
        if body.startswith(b"breaks"):
            self.fail(self._broker.reason)
        elif not future.done():
            if body in errors:
                future.set_exception(errors[body])
            else:
                self._broker.arrived.append(body)
                future.set_result(True)

    def fail(self, reason: BrokerError) -> None:
        self._reason = self._reason or reason
        for confirm in self._waiting:
            if not confirm.done():
                confirm.set_exception(reason.again())

    async def close(self) -> None:
        self.fail(ChannelClosed())


@dataclass
class BreakableConnection(Connection):
    is_open: bool = True
    blocked: bool = False
    reason: BrokerError = field(default_factory=lambda: PreconditionFailed("message size too large", code=406))
    errors: dict[bytes, BrokerError] = field(default_factory=dict)
    channels: list[ConfirmChannel] = field(default_factory=list)
    published: list[bytes] = field(default_factory=list)
    arrived: list[bytes] = field(default_factory=list)
    #: Routing keys whose queue does not answer.
    stalling: set[str] = field(default_factory=set)
    #: Seconds that a confirm takes; None for one that waits for `confirm_all`.
    delay: float | None = 0.9

    def confirm_all(self) -> None:
        for confirm in (future for channel in self.channels for future in channel._waiting):
            if not confirm.done():
                confirm.set_result(True)

    async def unblocked(self) -> None:
        while self.blocked:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)

    async def channel(self, *, confirm: bool = False, prefetch: int | None = None) -> ConfirmChannel:
        self.channels.append(ConfirmChannel(self))
        return self.channels[-1]


@pytest.fixture
def connection() -> BreakableConnection:
    return BreakableConnection()


@pytest.fixture
def publisher(connection: BreakableConnection) -> Publisher:
    return Publisher(connection, timeout=TIMEOUT)


async def outcomes(publisher: Publisher, *bodies: bytes) -> list[object]:
    publishes = [publisher.publish("x", "key", body, Properties()) for body in bodies]
    return await asyncio.gather(*publishes, return_exceptions=True)


async def test_the_message_that_breaks_the_channel_is_refused_and_the_innocent_ones_get_through(
    publisher: Publisher, connection: BreakableConnection
) -> None:
    found = await outcomes(publisher, b"a", b"breaks it", b"b", b"c")
    assert isinstance(found[1], MessageRefused)
    assert "message size too large" in str(found[1])
    assert [found[0], *found[2:]] == [None, None, None]
    assert set(connection.arrived) == {b"a", b"b", b"c"}
    # And the next ones share a channel again
    channels = len(connection.channels)
    assert await outcomes(publisher, b"d", b"e") == [None, None]
    assert len(connection.channels) == channels


async def test_several_culprits_are_each_found(publisher: Publisher, connection: BreakableConnection) -> None:
    found = await outcomes(publisher, b"breaks 1", b"a", b"breaks 2")
    assert [isinstance(error, MessageRefused) for error in found] == [True, False, True]
    assert connection.arrived == [b"a"]


async def test_channels_of_suspects_are_closed_again(publisher: Publisher, connection: BreakableConnection) -> None:
    await outcomes(publisher, b"breaks it", b"a", b"b")
    # Open is the one that all share, which "breaks it" never reached.
    assert [channel for channel in connection.channels if channel.is_open] == connection.channels[:1]


async def test_what_amqp_cannot_carry_is_refused_and_costs_nothing(
    publisher: Publisher, connection: BreakableConnection
) -> None:
    found = await outcomes(publisher, b"cannot be sent", b"a")
    assert isinstance(found[0], MessageRefused)
    assert found[1] is None
    assert all(channel.is_open for channel in connection.channels)


@pytest.mark.parametrize("error", [Nacked(), Returned("no queue")])
async def test_what_the_broker_says_of_one_message_is_reported_as_it_is(
    publisher: Publisher, connection: BreakableConnection, error: BrokerError
) -> None:
    connection.errors[b"a"] = error
    assert await outcomes(publisher, b"a", b"b") == [error, None]


@pytest.mark.looptime(False)
async def test_a_confirm_that_came_while_the_loop_stood_still_is_taken_and_nothing_is_sent_again(
    connection: BreakableConnection,
) -> None:
    loop = asyncio.get_running_loop()
    publisher = Publisher(connection, timeout=0.2)
    # Given a proven key, and a confirm that is read some turns after the loop stood still for longer than the wait
    connection.delay = 0.0
    await publisher.publish("x", "key", b"a", Properties())
    connection.delay = None

    def stand_still(turns: int) -> None:
        if turns == 3:
            time.sleep(0.5)
        if turns:
            loop.call_soon(stand_still, turns - 1)
        else:
            connection.confirm_all()

    loop.call_later(0.05, stand_still, 3)
    await publisher.publish("x", "key", b"b", Properties())

    assert connection.published == [b"a", b"b"]


async def test_a_key_that_is_not_confirmed_delays_no_other_key_no_reply_and_no_copy(
    publisher: Publisher, connection: BreakableConnection
) -> None:
    connection.stalling.add("lost")
    lost = asyncio.ensure_future(publisher.publish("x", "lost", b"a", Properties()))
    await asyncio.sleep(0.1)
    began = asyncio.get_running_loop().time()
    await asyncio.gather(
        publisher.publish("x", "well", b"b", Properties()),
        publisher.reply("reply-1", b"", Properties()),
        publisher.publish("", "core-poison", b"c", Properties()),
    )
    assert asyncio.get_running_loop().time() - began == pytest.approx(1.0, abs=0.1)
    with pytest.raises(BrokerTimeout):
        await lost


async def test_what_was_not_confirmed_is_not_sent_again_behind_itself(
    publisher: Publisher, connection: BreakableConnection
) -> None:
    connection.stalling.add("lost")
    for _ in range(3):
        with pytest.raises(BrokerTimeout):
            await publisher.publish("x", "lost", b"a", Properties())
    assert connection.published == [b"a"] * 3
    assert [len(channel._waiting) for channel in connection.channels] == [0, 1, 1, 1]


async def test_a_missing_exchange_is_not_the_fault_of_a_message(
    publisher: Publisher, connection: BreakableConnection
) -> None:
    connection.reason = NotFound("no exchange 'core-req-xchg'", code=404)
    (found,) = await outcomes(publisher, b"breaks it")
    assert isinstance(found, NotFound)


async def test_a_slow_broker_makes_no_innocent_message_refused(publisher: Publisher) -> None:
    found = await outcomes(publisher, b"breaks it", b"never confirmed")
    assert isinstance(found[0], MessageRefused)
    assert isinstance(found[1], BrokerTimeout)


async def test_a_confirm_that_does_not_come_is_a_timeout(publisher: Publisher) -> None:
    (found,) = await outcomes(publisher, b"never confirmed")
    assert isinstance(found, BrokerTimeout)
    assert asyncio.get_running_loop().time() == pytest.approx(TIMEOUT, abs=0.1)


async def test_a_broker_in_alarm_is_waited_for(publisher: Publisher, connection: BreakableConnection) -> None:
    connection.blocked = True
    waiting = asyncio.ensure_future(publisher.publish("x", "key", b"never confirmed", Properties()))
    await asyncio.sleep(5 * TIMEOUT)
    assert not waiting.done()
    connection.blocked = False
    with pytest.raises(BrokerTimeout):
        await waiting


async def test_a_lost_connection_is_not_taken_for_a_refusal(
    publisher: Publisher, connection: BreakableConnection
) -> None:
    waiting = asyncio.ensure_future(publisher.publish("x", "key", b"a", Properties()))
    await asyncio.sleep(0.5)
    connection.is_open = False
    for channel in connection.channels:
        channel.fail(ConnectionLost())
    with pytest.raises(ConnectionLost):
        await waiting


async def test_a_confirm_that_comes_too_late_leaves_no_unread_error(
    publisher: Publisher, connection: BreakableConnection
) -> None:
    complaints = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    await outcomes(publisher, b"never confirmed")
    given_up = asyncio.ensure_future(publisher.publish("x", "key", b"never confirmed", Properties()))
    await asyncio.sleep(0.5)
    given_up.cancel()
    await asyncio.wait((given_up,))
    for channel in connection.channels:
        channel.fail(ConnectionLost())
    # Then asyncio does not complain when the confirms are forgotten
    connection.channels.clear()
    publisher._lanes = None
    del given_up
    await asyncio.sleep(1.0)
    gc.collect()
    assert complaints == []


class Operation:
    """An operation that holds a channel until the test ends it."""

    def __init__(self) -> None:
        self.channel: Any = None
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __call__(self, channel: Channel) -> None:
        self.channel = channel
        await self.end


async def test_a_pool_of_channels_gives_each_to_one_and_none_that_is_closed(connection: BreakableConnection) -> None:
    pool = ChannelPool(connection, 2)
    operations = [Operation() for _ in range(4)]
    tasks = [asyncio.ensure_future(pool.run(operation, suspect=False)) for operation in operations]
    await asyncio.sleep(1.0)
    first, second, third, fourth = operations
    assert first.channel is not second.channel
    assert [operation.channel is None for operation in operations] == [False, False, True, True]
    # When an operation breaks its channel, the next gets a new one
    await first.channel.close()
    first.end.set_result(None)
    await asyncio.sleep(1.0)
    assert third.channel is not None
    assert third.channel is not first.channel
    # And a channel that works is lent again
    second.end.set_result(None)
    await asyncio.sleep(1.0)
    assert fourth.channel is second.channel
    third.end.set_result(None)
    fourth.end.set_result(None)
    await asyncio.gather(*tasks)


async def test_a_channel_that_does_not_answer_is_closed_and_lent_to_no_other(connection: BreakableConnection) -> None:
    pool = ChannelPool(connection, 1)
    lent = list[Channel]()

    async def unanswered(channel: Channel) -> None:
        lent.append(channel)
        raise BrokerTimeout

    for _ in range(2):
        with pytest.raises(BrokerTimeout):
            await pool.run(unanswered, suspect=False)
    assert lent[0] is not lent[1]
    assert not lent[0].is_open


async def test_operations_that_may_hang_leave_half_of_the_channels_to_the_others(
    connection: BreakableConnection,
) -> None:
    pool = ChannelPool(connection, 4)
    suspects, other = [Operation() for _ in range(4)], Operation()
    tasks = [asyncio.ensure_future(pool.run(suspect, suspect=True)) for suspect in suspects]
    await asyncio.sleep(1.0)
    assert [suspect.channel is not None for suspect in suspects] == [True, True, False, False]
    tasks.append(asyncio.ensure_future(pool.run(other, suspect=False)))
    await asyncio.sleep(1.0)
    assert other.channel is not None
    for suspect in (*suspects, other):
        suspect.end.set_result(None)
    await asyncio.gather(*tasks)


async def test_a_channel_that_cannot_be_opened_does_not_take_its_place_in_the_pool_for_ever() -> None:
    class RefusingConnection(BreakableConnection):
        async def channel(self, *, confirm: bool = False, prefetch: int | None = None) -> ConfirmChannel:
            raise BrokerTimeout

    pool = ChannelPool(RefusingConnection(), 1)
    for _ in range(3):
        with pytest.raises(BrokerTimeout):
            await pool.run(Operation(), suspect=False)


async def test_while_the_broker_has_blocked_the_connection_nothing_is_sent(
    publisher: Publisher, connection: BreakableConnection
) -> None:
    await publisher.publish("x", "known", b"first", Properties())
    connection.blocked = True
    waiting = [
        *(asyncio.ensure_future(publisher.publish("x", key, b"second", Properties())) for key in ("known", "new")),
        asyncio.ensure_future(publisher.reply("reply-1", b"second", Properties())),
    ]
    await asyncio.sleep(100.0)
    assert connection.published == [b"first"]
    connection.blocked = False
    await asyncio.gather(*waiting)
    assert connection.arrived == [b"first", *[b"second"] * 3]


async def test_a_message_that_waits_for_its_turn_is_not_sent_on_a_connection_blocked_meanwhile(
    publisher: Publisher, connection: BreakableConnection
) -> None:
    # More than a lane holds before the first of them is answered
    sent = [asyncio.ensure_future(publisher.publish("x", "key", b"%d" % number, Properties())) for number in range(40)]
    await asyncio.sleep(0.5)
    left = len(connection.published)
    assert 0 < left < 40
    connection.blocked = True
    await asyncio.sleep(100.0)
    assert len(connection.published) == left
    connection.blocked = False
    await asyncio.gather(*sent)
    assert len(connection.arrived) == 40


async def test_the_properties_of_a_message_are_made_when_it_leaves(
    publisher: Publisher, connection: BreakableConnection
) -> None:
    made: list[float] = []

    def properties() -> Properties:
        made.append(asyncio.get_running_loop().time())
        return Properties()

    connection.blocked = True
    publish = asyncio.ensure_future(publisher.publish("x", "key", b"a", properties))
    await asyncio.sleep(100.0)
    connection.blocked = False
    await publish
    assert made == [pytest.approx(100.0, abs=1.0)]


async def test_a_message_whose_time_is_over_when_it_could_leave_is_not_sent(
    publisher: Publisher, connection: BreakableConnection
) -> None:
    def properties() -> Properties:
        raise TimeoutError

    for key in ("new", "new", "known"):
        if key == "known":
            await publisher.publish("x", key, b"a", Properties())
        with pytest.raises(TimeoutError):
            await publisher.publish("x", key, b"late", properties)
    assert connection.published == [b"a"]
