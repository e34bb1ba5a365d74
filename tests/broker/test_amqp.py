"""Connection and channel on a real RabbitMQ of both versions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from osrdyne_amqp import Channel, Connection, Message, Properties
from osrdyne_amqp.codec import frames
from osrdyne_amqp.codec.table import BinaryText
from osrdyne_amqp.errors import (
    AccessRefused,
    BrokerError,
    ConnectionLost,
    Locked,
    Nacked,
    NotFound,
    PreconditionFailed,
    Returned,
    Unencodable,
)
from testbed.broker import Broker
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.conftest import Vhost

QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture
async def connection(vhost: Vhost) -> AsyncIterator[Connection]:
    opened = await Connection.open(vhost.amqp_uri(), name="test-amqp")
    yield opened
    await opened.close()


class Inbox:
    """A queue being consumed: acknowledges and keeps what comes."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.cancelled = asyncio.Event()
        self.tag = ""

    def take(self, message: Message) -> None:
        self.channel.ack(message.delivery_tag)
        self.messages.put_nowait(message)

    async def get(self) -> Message:
        return await asyncio.wait_for(self.messages.get(), PATIENCE_SECONDS)


async def consume(connection: Connection, queue: str, arguments: dict[str, Any] = QUORUM) -> Inbox:
    channel = await connection.channel(prefetch=100)
    inbox = Inbox(channel)
    await channel.declare_queue(queue, arguments=arguments)
    inbox.tag = await channel.consume(queue, inbox.take, on_cancel=inbox.cancelled.set)
    return inbox


# --- connecting ---


async def test_a_wrong_password_is_refused_without_being_shown(vhost: Vhost) -> None:
    with pytest.raises(AccessRefused, match="check user name and password") as caught:
        await Connection.open(vhost.amqp_uri(password="hunter2"), name="test")

    assert caught.value.code == 403
    assert "hunter2" not in str(caught.value)


async def test_a_missing_vhost_is_refused_by_name(vhost: Vhost) -> None:
    uri = vhost.broker.amqp_uri(vhost="no/such vhost")

    with pytest.raises(AccessRefused, match="vhost no/such vhost not found") as caught:
        await Connection.open(uri, name="test")

    assert caught.value.code == 530
    assert vhost.broker.admin_password not in str(caught.value)


async def test_the_connection_is_shown_by_its_name(vhost: Vhost, connection: Connection) -> None:
    def shown() -> bool:
        names = [
            connection.get("client_properties", {}).get("connection_name")
            for connection in management.get("connections")
        ]
        return "test-amqp" in names

    management = vhost.broker.management

    await until_async(shown)
    assert connection.is_open


# --- publishing ---


async def test_confirmed_messages_arrive_in_order_with_all_they_carry(connection: Connection) -> None:
    inbox = await consume(connection, "q")
    channel = await connection.channel(confirm=True)
    properties = Properties(
        correlation_id="c", reply_to="r", headers={"n": 1, "big": 2**40, "f": 1.5, "x": b"\xff", "é": ["a", None]}
    )

    await asyncio.gather(*(channel.publish("", "q", b"%d" % n, properties) for n in range(200)))

    got = [await inbox.get() for _ in range(200)]
    assert [message.body for message in got] == [b"%d" % n for n in range(200)]
    assert got[0].properties == properties
    assert (got[0].exchange, got[0].routing_key, got[0].redelivered) == ("", "q", False)


@pytest.mark.parametrize("size", [0, 131_064, 131_065, 1_000_000, 16 * 1024 * 1024])
async def test_bodies_of_any_allowed_size_arrive_whole(connection: Connection, size: int) -> None:
    inbox = await consume(connection, "q", {})
    channel = await connection.channel(confirm=True)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    await channel.publish("", "q", body)

    assert (await inbox.get()).body == body


async def test_a_body_over_the_brokers_limit_closes_only_its_channel(connection: Connection) -> None:
    channel = await connection.channel(confirm=True)

    with pytest.raises(PreconditionFailed, match="larger than"):
        await channel.publish("", "q", b"x" * (16 * 1024 * 1024 + 1))

    assert not channel.is_open
    assert connection.is_open


async def test_returns_are_distinguished_from_confirms_whatever_the_messages_have_in_common(
    connection: Connection,
) -> None:
    await consume(connection, "q")
    channel = await connection.channel(confirm=True)
    same = Properties(correlation_id="same")

    results = await asyncio.gather(
        *(channel.publish("", key, b"", same, mandatory=True) for key in ("q", "no", "q", "no", "q")),
        return_exceptions=True,
    )
    finals = await asyncio.gather(*(channel.publish_final("", key, b"") for key in ("q", "no", "q")))

    assert [type(result) for result in results] == [type(None), Returned, type(None), Returned, type(None)]
    assert finals == [True, False, True]


async def test_a_full_queue_that_refuses_gives_a_negative_confirm(connection: Connection) -> None:
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments={**QUORUM, "x-max-length": 1, "x-overflow": "reject-publish"})

    async def fill() -> None:
        for _ in range(500):  # a quorum queue refuses a little later than its length says
            await channel.publish("", "q", b"")

    with pytest.raises(Nacked):
        await fill()

    assert channel.is_open


async def test_a_missing_exchange_fails_all_publishes_of_that_channel_only(connection: Connection) -> None:
    channel = await connection.channel(confirm=True)
    other = await connection.channel(confirm=True)
    waiting = [channel.publish("nowhere", "k", b"") for _ in range(3)]
    await consume(connection, "q")

    results = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(result) for result in results] == [NotFound] * 3
    await other.publish("", "q", b"")


async def test_unconfirmed_returns_reach_on_return(connection: Connection) -> None:
    channel = await connection.channel()
    returned: asyncio.Queue[tuple[Returned, Properties]] = asyncio.Queue()
    channel.on_return = lambda error, properties: returned.put_nowait((error, properties))

    channel.send("", "no-queue", b"", Properties(correlation_id="c"), mandatory=True)

    error, properties = await asyncio.wait_for(returned.get(), PATIENCE_SECONDS)
    assert error.reply_text == "NO_ROUTE"
    assert properties.correlation_id == "c"


# --- what foreign messages carry ---


def wire_table(*fields: bytes) -> bytes:
    raw = b"".join(b"%c%b" % (len(b"k%d" % n), b"k%d" % n) + value for n, value in enumerate(fields))
    return len(raw).to_bytes(4, "big") + raw


def arrays(depth: int) -> bytes:
    inner = b"V"
    for _ in range(depth):
        inner = b"A" + len(inner).to_bytes(4, "big") + inner
    return inner


FOREIGN = {
    "every integer": (
        b"b\xff",
        b"B\xff",
        b"s\xff\xfe",
        b"u\xff\xfe",
        b"I\xff\xff\xff\xfe",
        b"i\xff\xff\xff\xff",
        b"l" + bytes(8),
    ),
    "floats": (b"f\x3f\x8c\xcc\xcd", b"d\x3f\xf1\x99\x99\x99\x99\x99\x9a"),
    "decimals": (b"D\x02\x00\x00\x30\x0c", b"D\xff\xff\xff\xff\xff"),
    "timestamps out of range": (b"T" + b"\xff" * 8, b"T\x00\x00\x01\x8b\xcf\xe5h\x00"),
    "texts": (b"S\x00\x00\x00\x02\xff\xfe", b"x\x00\x00\x00\x02\xff\xfe", b"S\x00\x00\x00\x00", b"V", b"t\x01"),
    "arrays 5,000 deep": (arrays(5000),),
}


@pytest.mark.parametrize("fields", FOREIGN.values(), ids=FOREIGN.keys())
async def test_foreign_headers_are_delivered_and_forwarded_as_the_same_bytes(
    connection: Connection, fields: tuple[bytes, ...]
) -> None:
    inbox = await consume(connection, "q")
    forwarded = await consume(connection, "forwarded")
    raw = await connection.channel()
    channel = await connection.channel(confirm=True)
    table = wire_table(*fields)
    header = b"\x00\x3c\x00\x00" + bytes(8) + b"\x20\x00" + table

    def send_raw() -> None:
        number = raw._number
        frame = frames.FRAME_HEAD.pack(frames.HEADER, number, len(header)) + header + b"\xce"
        raw._wire.emit(frames.publish_method(number, "", "q", False) + frame)

    send_raw()
    message = await inbox.get()
    await channel.publish("", "forwarded", message.body, message.properties)

    again = await forwarded.get()
    assert frames.write_properties(message.properties.__dict__)[1] == table
    assert frames.write_properties(again.properties.__dict__)[1] == table


async def test_texts_that_are_not_utf8_survive(connection: Connection) -> None:
    inbox = await consume(connection, "q")
    channel = await connection.channel(confirm=True)
    sent = Properties(
        correlation_id=b"\xff\xfe",
        reply_to=b"\xff",
        message_id=b"\xfe",
        headers={"s": BinaryText(b"\xff"), "x": b"\xff"},
    )

    await channel.publish("", "q", b"", sent)

    got = await inbox.get()
    assert got.properties == sent
    assert type(got.properties.headers["s"]) is BinaryText


async def test_a_redelivered_header_larger_than_a_frame_arrives_and_is_refused_when_forwarded(
    connection: Connection,
) -> None:
    """The broker adds x-delivery-count to a header that already fills its frame."""
    channel = await connection.channel(confirm=True, prefetch=1)
    await channel.declare_queue("q", arguments=QUORUM)
    got: asyncio.Queue[Message] = asyncio.Queue()
    await channel.consume("q", got.put_nowait, on_cancel=lambda: None)
    overhead = len(frames.content(1, {**frames.NO_PROPERTIES, "headers": {"k": b""}}, b"", 131072))
    await channel.publish("", "q", b"", Properties(headers={"k": b"x" * (131072 - overhead)}))
    channel.reject((await asyncio.wait_for(got.get(), PATIENCE_SECONDS)).delivery_tag, requeue=True)

    message = await asyncio.wait_for(got.get(), PATIENCE_SECONDS)

    assert message.properties.headers["x-delivery-count"] == 1
    with pytest.raises(Unencodable, match="131064"):
        channel.publish("", "q", b"", message.properties)
    channel.ack(message.delivery_tag)
    assert channel.is_open


# --- calls ---


async def test_refused_calls_close_their_channel_with_a_typed_reason(vhost: Vhost, connection: Connection) -> None:
    setup = await connection.channel()
    await setup.declare_queue("q", arguments=QUORUM)
    await setup.declare_queue("lock", durable=False, exclusive=True)
    other = await Connection.open(vhost.amqp_uri(), name="other")
    cases: list[tuple[type[BrokerError], Callable[[Channel], Awaitable[Any]]]] = [
        (NotFound, lambda channel: channel.declare_queue("none", passive=True)),
        (NotFound, lambda channel: channel.bind_queue("q", "none", "k")),
        (NotFound, lambda channel: channel.consume("none", lambda _: None, on_cancel=lambda: None)),
        (PreconditionFailed, lambda channel: channel.declare_queue("q", arguments={"x-queue-type": "classic"})),
        (AccessRefused, lambda channel: channel.declare_queue("amq.mine")),
        (Locked, lambda channel: channel.declare_queue("lock", durable=False, exclusive=True)),
    ]

    for kind, call in cases:
        channel = await other.channel()
        with pytest.raises(kind) as caught:
            await call(channel)
        assert type(caught.value) is kind
        assert not channel.is_open
        assert caught.value.code in (403, 404, 405, 406)

    await other.close()


async def test_an_unknown_delivery_tag_closes_the_channel(connection: Connection) -> None:
    channel = await connection.channel()

    channel.ack(77)

    assert isinstance(await asyncio.wait_for(channel.wait_closed(), PATIENCE_SECONDS), PreconditionFailed)
    assert connection.is_open


async def test_declare_bind_unbind_delete(connection: Connection) -> None:
    channel = await connection.channel(confirm=True)
    info = await channel.declare_queue("q", arguments={**QUORUM, "x-osrdyne-key": "é"})
    assert (info.name, info.ready, info.consumers) == ("q", 0, 0)

    await channel.bind_queue("q", "amq.direct", "é")
    await channel.publish("amq.direct", "é", b"", mandatory=True)
    await channel.unbind_queue("q", "amq.direct", "é")
    with pytest.raises(Returned):
        await channel.publish("amq.direct", "é", b"", mandatory=True)

    assert (await channel.declare_queue("q", passive=True)).ready == 1
    assert await channel.delete_queue("q") == 1
    assert await channel.delete_queue("q") == 0


# --- consuming ---


async def test_a_deleted_queue_cancels_its_consumer(connection: Connection) -> None:
    inbox = await consume(connection, "q")
    channel = await connection.channel()

    await channel.delete_queue("q")

    await asyncio.wait_for(inbox.cancelled.wait(), PATIENCE_SECONDS)
    assert inbox.channel.is_open


async def test_what_a_cancelled_consumer_holds_is_its_own_to_settle(connection: Connection) -> None:
    channel = await connection.channel(confirm=True, prefetch=5)
    await channel.declare_queue("q", arguments=QUORUM)
    held: asyncio.Queue[Message] = asyncio.Queue()
    tag = await channel.consume("q", held.put_nowait, on_cancel=lambda: None)
    await channel.publish("", "q", b"1")
    message = await asyncio.wait_for(held.get(), PATIENCE_SECONDS)

    await channel.cancel(tag)
    await channel.publish("", "q", b"2")

    channel.ack(message.delivery_tag)
    assert channel.is_open
    again = await consume(connection, "q")
    assert (await again.get()).body == b"2"


async def hold(connection: Connection, count: int) -> tuple[Channel, list[Message]]:
    """Publish to the queue "q" and consume without settling: return the channel and its deliveries."""
    channel = await connection.channel(confirm=True, prefetch=count)
    await channel.declare_queue("q", arguments=QUORUM)
    held: list[Message] = []
    await channel.consume("q", held.append, on_cancel=lambda: None)
    for number in range(count):
        await channel.publish("", "q", b"%d" % number)
    await until_async(lambda: len(held) == count)
    return channel, held


async def test_deliveries_acknowledged_at_once_are_settled_by_one_frame_and_no_other_is(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, held = await hold(connection, 5)
    sent: list[tuple[int, bool]] = []
    write = frames.ack

    def record(number: int, tag: int, multiple: bool) -> bytes:
        sent.append((tag, multiple))
        return write(number, tag, multiple)

    monkeypatch.setattr(frames, "ack", record)
    for position in (1, 4, 0):
        channel.ack(held[position].delivery_tag)
    await channel.close()

    assert sent == [(held[1].delivery_tag, True), (held[4].delivery_tag, False)]
    again = await consume(connection, "q")
    assert [(await again.get()).body for _ in range(2)] == [b"2", b"3"]


@pytest.mark.parametrize("end", ["channel", "connection"])
async def test_what_was_acknowledged_just_before_the_end_is_not_delivered_again(
    vhost: Vhost, connection: Connection, end: str
) -> None:
    ending = await Connection.open(vhost.amqp_uri(), name="test-amqp-ending")
    channel, held = await hold(ending, 3)
    for message in held[:2]:
        channel.ack(message.delivery_tag)
    await (channel if end == "channel" else ending).close()

    again = await consume(connection, "q")
    assert (await again.get()).body == b"2"
    await ending.close()


async def test_a_callback_that_raises_gives_its_messages_back(connection: Connection) -> None:
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q", arguments=QUORUM)

    def broken(message: Message) -> None:
        raise LookupError(message.body)

    await channel.consume("q", broken, on_cancel=lambda: None)
    publisher = await connection.channel(confirm=True)
    await publisher.publish("", "q", b"x")

    reason = await asyncio.wait_for(channel.wait_closed(), PATIENCE_SECONDS)

    assert "LookupError" in str(reason)
    message = await (await consume(connection, "q")).get()
    assert message.redelivered


# --- the broker goes away ---


@pytest.mark.both_versions
async def test_an_alarm_blocks_confirms_and_loses_nothing(private_broker: Broker) -> None:
    connection = await Connection.open(private_broker.amqp_uri(), name="test", answers=30)
    channel = await connection.channel(confirm=True)
    await channel.declare_queue("q")
    private_broker.rabbitmqctl("-q", "set_vm_memory_high_watermark", "0.00001")

    waiting = [channel.publish("", "q", b"x")]
    await until_async(lambda: connection.blocked)
    waiting += [channel.publish("", "q", b"x") for _ in range(20)]
    assert not any(task.done() for task in waiting[1:])
    private_broker.rabbitmqctl("-q", "set_vm_memory_high_watermark", "0.6")

    await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_SECONDS)
    assert not connection.blocked
    assert (await channel.declare_queue("q")).ready == 21
    await connection.close()


@pytest.mark.both_versions
async def test_a_broker_that_stops_ends_everything_with_its_reason(
    private_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    connection = await Connection.open(private_broker.amqp_uri(), name="test")
    channel = await connection.channel(confirm=True)

    await asyncio.to_thread(private_broker.stop)

    reason = await asyncio.wait_for(connection.wait_closed(), PATIENCE_SECONDS)
    assert isinstance(reason, ConnectionLost)
    assert reason.code in (0, 320)
    assert isinstance(await channel.wait_closed(), ConnectionLost)
    assert isinstance(channel.publish("", "q", b"").exception(), ConnectionLost)
    assert not [record for record in caplog.records if record.name.startswith("pika")]


@pytest.mark.both_versions
async def test_a_killed_broker_ends_everything(private_broker: Broker) -> None:
    connection = await Connection.open(private_broker.amqp_uri(), name="test")
    channel = await connection.channel(confirm=True)
    waiting = channel.publish("nowhere", "q", b"x" * 1_000_000)

    await asyncio.to_thread(private_broker.kill)

    assert isinstance(await asyncio.wait_for(connection.wait_closed(), PATIENCE_SECONDS), ConnectionLost)
    assert isinstance(waiting.exception(), (ConnectionLost, NotFound))
