"""Connection and channel against peers that misbehave: everything ends with a typed reason, nothing waits for ever."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import socket
import threading
import traceback
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pika import spec
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.utils.connection_workflow import AMQPConnectionWorkflow
from pika.adapters.utils.io_services_utils import _AsyncTransportBase
from pika.channel import Channel as PikaChannel
from pika.connection import URLParameters

from osrdyne_amqp import Channel, Connection, Message, Properties
from osrdyne_amqp.connecting.wire import PIKA_PRIVATE, Wire
from osrdyne_amqp.errors import (
    AccessRefused,
    BrokerError,
    BrokerTimeout,
    BrokerUnreachable,
    ChannelClosed,
    ConnectionLost,
    ConsumerFailed,
    InvalidUri,
    Locked,
    NotFound,
    PreconditionFailed,
    Returned,
    TlsFailed,
    Unencodable,
)
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.broker.fake_broker import FakeBroker, delivery, fake_broker, header_payload, method, peer

PASSWORD = "hunter2"


def all_text(error: BaseException | None) -> str:
    """All that a person or a log could see of an error, with whatever it is chained to."""
    text = ""
    while error is not None:
        text += repr(error) + str(error) + "".join(traceback.format_exception(error)) + repr(vars(error))
        error = error.__cause__ or error.__context__
    return text


async def refused(uri: str, kind: type[BrokerError], timeout: float = 2.0) -> BrokerError:
    with pytest.raises(kind) as caught:
        await Connection.open(uri, name="test", timeout=timeout)
    assert type(caught.value) is kind
    assert PASSWORD not in all_text(caught.value)
    return caught.value


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with fake_broker() as fake:
        yield fake


@pytest.fixture
async def connection(broker: FakeBroker) -> AsyncIterator[Connection]:
    opened = await Connection.open(broker.uri, name="test", answers=1.0)
    yield opened
    await opened.close()


async def got_nothing(*_: Any) -> None:
    await asyncio.get_running_loop().create_future()


# --- opening ---


@pytest.mark.parametrize(
    "uri,hint",
    [
        (f"http://guest:{PASSWORD}@127.0.0.1/", "amqp://"),
        (f"guest:{PASSWORD}@127.0.0.1", "amqp://"),
        (f"amqp://guest:{PASSWORD}/x@127.0.0.1/", "percent-encoded"),
        (f"amqp://guest:{PASSWORD}#x@127.0.0.1/", "host|percent-encoded"),
        (f"amqp://guest:{PASSWORD}@127.0.0.1:port/", "percent-encoded"),
        (f"amqp://guest:{PASSWORD}@127.0.0.1:99999/", "percent-encoded"),
        (f"amqp://guest:{PASSWORD}@127.0.0.1/a/b", "%2F"),
        (f"amqp://guest:{PASSWORD}@/vhost", "no host"),
        (f"amqp://guest:{PASSWORD}@127.0.0.1/#x", "percent-encoded"),
        (f"amqp://guest:{PASSWORD}@127.0.0.1/%ff", "percent-encoded"),
        (f"amqp://guest:{PASSWORD}@127.0.0.1/?nonsense={PASSWORD}", "number 1 behind the ?"),
        (f"amqp://guest:{PASSWORD}@127.0.0.1/?heartbeat={PASSWORD}", "option"),
        (f"amqps://guest:{PASSWORD}@127.0.0.1/?ssl_options=%7B{PASSWORD}", "option"),
        ("amqp://guest@127.0.0.1/", "no password"),
        ("", "amqp://"),
        (None, "amqp://"),
    ],
)
async def test_a_uri_that_cannot_be_read_says_what_to_write_and_never_shows_itself(uri: Any, hint: str) -> None:
    error = await refused(uri, InvalidUri)

    assert any(word in str(error) for word in hint.split("|"))


async def test_a_missing_ca_file_is_a_tls_failure() -> None:
    options = "%7B'ca_certs'%3A'/nowhere/ca.pem'%7D"

    error = await refused(f"amqps://guest:{PASSWORD}@127.0.0.1/?ssl_options={options}", TlsFailed)

    assert "No such file" in str(error)


async def test_a_port_where_nothing_listens_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

        error = await refused(f"amqp://guest:{PASSWORD}@127.0.0.1:{port}/v%2Fh", BrokerUnreachable)

    assert f"amqp://127.0.0.1:{port} (vhost 'v/h', user 'guest')" in str(error)
    assert "connection refused" in str(error)


async def test_a_host_that_cannot_be_resolved_is_named() -> None:
    error = await refused(f"amqp://guest:{PASSWORD}@nowhere.invalid/", BrokerUnreachable)

    assert "nowhere.invalid" in str(error)
    assert "resolved" in str(error)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_peer_that_says_nothing_is_given_up_in_time_and_hung_up_on(
    caplog: pytest.LogCaptureFixture, cancelled: bool
) -> None:
    # asyncio reports what earlier tests left when it is collected
    gc.collect()
    caplog.clear()
    connected, hung_up = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        connected.set()
        await reader.read()
        hung_up.set()

    async with peer(serve) as port:
        uri = f"amqp://guest:{PASSWORD}@127.0.0.1:{port}/"
        if cancelled:
            opening = asyncio.create_task(Connection.open(uri, name="test"))
            await asyncio.wait_for(connected.wait(), PATIENCE_SECONDS)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        else:
            error = await refused(uri, BrokerUnreachable, timeout=0.2)
            assert "no AMQP answer within 0.2 s" in str(error)

        await asyncio.wait_for(hung_up.wait(), PATIENCE_SECONDS)

    assert not caplog.records  # pika's assertion on an aborted handshake is not met


async def test_an_opening_cancelled_while_its_host_is_looked_up_does_not_connect_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looking, found = threading.Event(), threading.Event()
    lookup = socket.getaddrinfo

    def slow(*arguments: Any, **options: Any) -> Any:
        looking.set()
        found.wait(5)
        return lookup(*arguments, **options)

    async with peer(lambda _reader, _writer: asyncio.sleep(0)) as port:
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        opening = asyncio.create_task(Connection.open(f"amqp://guest:{PASSWORD}@127.0.0.1:{port}/", name="test"))
        await asyncio.to_thread(looking.wait, 5)
        opening.cancel()
        asyncio.get_running_loop().call_later(0.1, found.set)
        with pytest.raises(asyncio.CancelledError):
            await opening

    assert found.is_set()  # before that, it could not be given up
    gc.collect()  # a socket that was left open would say so


async def test_closing_that_is_cancelled_closes_the_socket_all_the_same(broker: FakeBroker) -> None:
    connection = await Connection.open(broker.uri, name="test", timeout=2.0)
    broker.script = lambda _, sent: [] if isinstance(sent, spec.Connection.Close) else None
    closing = asyncio.create_task(connection.close())
    await broker.until("Connection.Close")
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing

    assert await asyncio.wait_for(connection.wait_closed(), 0.1) is None
    del connection, closing
    gc.collect()  # a socket that was left open would say so


async def test_a_peer_that_takes_no_connections_is_given_up_in_time() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.create_connection(address):
            await refused(f"amqp://guest:{PASSWORD}@127.0.0.1:{address[1]}/", BrokerUnreachable, timeout=0.2)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\x00\x01\x00\x00", b"\x15\x03\x01\x00\x02"]
)
async def test_a_peer_that_is_not_a_broker_is_recognised(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(answer)
        writer.close()

    async with peer(serve) as port:
        error = await refused(f"amqp://guest:{PASSWORD}@127.0.0.1:{port}/", BrokerUnreachable)

    assert "right port" in str(error) or "AMQP" in str(error)


async def test_a_port_without_tls_is_a_tls_failure(broker: FakeBroker) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"AMQP\x00\x00\x09\x01")

    async with peer(serve) as port:
        error = await refused(f"amqps://guest:{PASSWORD}@127.0.0.1:{port}/", TlsFailed)

    assert "speaks TLS" in str(error)


def closing_on(kind: type[Any], code: int, text: str) -> Any:
    def script(_: int, sent: Any) -> list[bytes] | None:
        return [method(0, spec.Connection.Close(code, text, 0, 0))] if isinstance(sent, kind) else None

    return script


@pytest.mark.parametrize(
    "stage,code,kind",
    [
        (spec.Connection.StartOk, 403, AccessRefused),
        (spec.Connection.Open, 530, AccessRefused),
        (spec.Connection.Open, 541, BrokerUnreachable),
    ],
)
async def test_a_refusal_while_connecting_is_typed_and_keeps_its_code(stage: Any, code: int, kind: Any) -> None:
    async with fake_broker(closing_on(stage, code, "the broker's words")) as broker:
        error = await refused(broker.uri, kind)

    assert error.code == code
    assert code == 403 or "the broker's words" in str(error)


async def test_an_old_broker_that_just_hangs_up_on_a_bad_login_is_understood() -> None:
    def script(_: int, sent: Any) -> list[bytes] | None:
        if isinstance(sent, spec.Connection.StartOk):
            old.hang_up()
        return None

    async with fake_broker(script) as old:
        await refused(old.uri, AccessRefused)


async def test_the_connection_has_the_name_it_was_given(broker: FakeBroker, connection: Connection) -> None:
    start = await broker.until("Connection.StartOk")

    assert start.client_properties["connection_name"] == "test"
    assert start.client_properties["capabilities"]["consumer_cancel_notify"] is True
    assert start.client_properties["capabilities"]["connection.blocked"] is True


# --- calls and their end ---


def silent_on(kind: type[Any]) -> Any:
    return lambda _, sent: [] if isinstance(sent, kind) else None


async def test_a_call_that_is_never_answered_times_out_and_the_channel_lives_on(
    broker: FakeBroker, connection: Connection
) -> None:
    channel = await connection.channel()
    broker.script = silent_on(spec.Queue.Declare)

    with pytest.raises(BrokerTimeout, match=r"declare queue 'q'.*within 1 s"):
        await channel.declare_queue("q")

    assert channel.is_open
    broker.script = None
    broker.send(method(1, spec.Queue.DeclareOk("q", 0, 0)))  # the late answer
    assert (await channel.declare_queue("q")).ready == 3


async def test_a_call_on_a_blocked_connection_says_so(broker: FakeBroker, connection: Connection) -> None:
    channel = await connection.channel()
    broker.script = silent_on(spec.Queue.Declare)
    broker.send(method(0, spec.Connection.Blocked("low on memory")))

    with pytest.raises(BrokerTimeout, match="low on memory"):
        await channel.declare_queue("q")

    assert connection.blocked
    unblocked = asyncio.ensure_future(connection.unblocked())
    broker.send(method(0, spec.Connection.Unblocked()))
    broker.script = None
    await asyncio.wait_for(unblocked, PATIENCE_SECONDS)
    await connection.channel()
    assert not connection.blocked


async def test_the_end_of_a_blocked_connection_ends_the_wait_for_its_unblocking(
    broker: FakeBroker, connection: Connection
) -> None:
    broker.send(method(0, spec.Connection.Blocked("low on memory")))
    await until_async(lambda: connection.blocked)
    unblocked = asyncio.ensure_future(connection.unblocked())
    await asyncio.sleep(0)
    assert not unblocked.done()

    await connection.close()

    await asyncio.wait_for(unblocked, PATIENCE_SECONDS)


async def test_a_channel_that_is_never_opened_times_out(broker: FakeBroker, connection: Connection) -> None:
    broker.script = silent_on(spec.Channel.Open)

    with pytest.raises(BrokerTimeout, match=r"no channel within 1 s"):
        await connection.channel()

    assert connection.is_open


@pytest.mark.parametrize(
    "code,kind",
    [(403, AccessRefused), (404, NotFound), (405, Locked), (406, PreconditionFailed), (504, ChannelClosed)],
)
async def test_a_channel_closed_by_the_broker_fails_all_that_waits_on_it(
    broker: FakeBroker, connection: Connection, code: int, kind: type[BrokerError]
) -> None:
    def script(channel: int, sent: Any) -> list[bytes] | None:
        close = spec.Channel.Close(code, "its words", 0, 0)
        return [method(channel, close)] if isinstance(sent, spec.Queue.Declare) else None

    broker.script = script
    channel = await connection.channel(confirm=True)
    other = await connection.channel(confirm=True)
    waiting = channel.publish("", "q", b"")
    unconcerned = other.publish("", "q", b"")

    with pytest.raises(kind, match="its words") as caught:
        await channel.declare_queue("q")

    assert type(caught.value) is kind
    assert caught.value.code == code
    assert type(waiting.exception()) is kind
    assert type(await channel.wait_closed()) is kind
    assert not channel.is_open
    assert type(channel.publish("", "q", b"").exception()) is kind
    with pytest.raises(kind):
        channel.send("", "q", b"")
    with pytest.raises(kind):
        channel.ack(1)
    with pytest.raises(kind):
        channel.reject(1, requeue=True)
    with pytest.raises(kind):
        await channel.declare_queue("q")
    assert other.is_open
    assert not unconcerned.done()


@pytest.mark.parametrize("code", [320, 501, 540, 541])
async def test_a_connection_closed_by_the_broker_fails_every_channel(
    broker: FakeBroker, connection: Connection, code: int
) -> None:
    channel = await connection.channel(confirm=True)
    waiting = channel.publish("", "q", b"")
    call = asyncio.create_task(channel.bind_queue("q", "x", "k"))
    await broker.until("Queue.Bind")

    broker.send(method(0, spec.Connection.Close(code, "its words", 0, 0)))

    reason = await connection.wait_closed()
    assert isinstance(reason, ConnectionLost)
    assert reason.code == code
    for error in (
        await channel.wait_closed(),
        waiting.exception(),
        (await asyncio.gather(call, return_exceptions=True))[0],
    ):
        assert isinstance(error, ConnectionLost)
        assert "its words" in str(error)
    with pytest.raises(ConnectionLost, match="its words"):
        await connection.channel()


async def test_a_connection_that_breaks_fails_everything(broker: FakeBroker, connection: Connection) -> None:
    channel = await connection.channel(confirm=True)
    waiting = channel.publish("", "q", b"")

    broker.hang_up()

    assert isinstance(await connection.wait_closed(), ConnectionLost)
    assert isinstance(waiting.exception(), ConnectionLost)
    assert not connection.is_open
    await channel.close()


async def test_garbage_from_the_broker_ends_the_connection_with_a_reason(
    broker: FakeBroker, connection: Connection
) -> None:
    broker.send(b"\x01\x00\x01\x00\x00\x00\x01xx")

    reason = await connection.wait_closed()

    assert isinstance(reason, ConnectionLost)
    assert "frame" in str(reason)


async def test_a_half_open_connection_is_noticed_by_the_heartbeat(broker: FakeBroker) -> None:
    connection = await Connection.open(broker.uri, name="test", heartbeat=1)

    async with asyncio.timeout(PATIENCE_SECONDS):
        reason = await connection.wait_closed()

    assert isinstance(reason, ConnectionLost)
    assert "no sign of life" in str(reason)
    assert broker.heartbeats > 1


async def test_closing_says_nothing_is_wrong_and_fails_what_still_waits(
    broker: FakeBroker, connection: Connection
) -> None:
    channel = await connection.channel(confirm=True)
    waiting = channel.publish("", "q", b"last words")

    await connection.close()

    assert await connection.wait_closed() is None
    assert isinstance(waiting.exception(), BrokerError)
    assert any(value.NAME == "Basic.Publish" for _, value in broker.received)
    with pytest.raises(ConnectionLost, match="closed by this program"):
        await connection.channel()
    await connection.close()


async def test_closing_does_not_wait_for_a_silent_broker(broker: FakeBroker, connection: Connection) -> None:
    channel = await connection.channel()
    broker.script = lambda *_: []
    call = asyncio.create_task(channel.declare_queue("q"))
    await broker.until("Queue.Declare")

    async with asyncio.timeout(PATIENCE_SECONDS):
        await connection.close()

    assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], BrokerError)


async def test_a_channel_closes_though_a_call_on_it_was_never_answered(
    broker: FakeBroker, connection: Connection
) -> None:
    channel = await connection.channel()
    broker.script = silent_on(spec.Queue.Declare)
    call = asyncio.create_task(channel.declare_queue("q"))
    await broker.until("Queue.Declare")

    await channel.close()

    with pytest.raises(ChannelClosed, match="closed by this program"):
        await call
    await broker.until("Channel.Close")
    assert connection.is_open


async def test_the_number_of_a_closed_channel_is_used_again_without_mixing_them_up(
    broker: FakeBroker, connection: Connection
) -> None:
    first = await connection.channel(confirm=True)
    await first.close()
    second = await connection.channel(confirm=True)

    waiting = second.publish("", "q", b"")
    broker.send(method(1, spec.Basic.Ack(1, False)))

    await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert not first.is_open


# --- consuming ---


async def consuming(connection: Connection, got: Any, on_cancel: Any = lambda: None) -> tuple[Channel, str]:
    channel = await connection.channel()
    return channel, await channel.consume("q", got, on_cancel=on_cancel)


async def test_a_delivery_reaches_its_consumer(broker: FakeBroker, connection: Connection) -> None:
    got: asyncio.Queue[Message] = asyncio.Queue()
    _, tag = await consuming(connection, got.put_nowait)

    broker.send(delivery(1, tag, 7, header_payload(Properties(correlation_id="c", headers={"a": 1}))))

    message = await asyncio.wait_for(got.get(), PATIENCE_SECONDS)
    assert message == Message(
        b"", "", "key", Properties(correlation_id="c", headers={"a": 1}), delivery_tag=7, redelivered=False
    )


async def test_a_delivery_in_single_bytes_reaches_its_consumer(broker: FakeBroker, connection: Connection) -> None:
    got: asyncio.Queue[Message] = asyncio.Queue()
    _, tag = await consuming(connection, got.put_nowait)

    for byte in delivery(1, tag, 7, header_payload(Properties(correlation_id="c"))):
        broker.send(bytes([byte]))
        await asyncio.sleep(0)

    assert (await asyncio.wait_for(got.get(), PATIENCE_SECONDS)).properties.correlation_id == "c"


async def test_a_message_whose_properties_cannot_be_read_is_delivered_and_says_why(
    broker: FakeBroker, connection: Connection
) -> None:
    got: asyncio.Queue[Message] = asyncio.Queue()
    _, tag = await consuming(connection, got.put_nowait)
    broken = header_payload(Properties(correlation_id="correlation"))[:-4]

    broker.send(delivery(1, tag, 1, broken), delivery(1, tag, 2, header_payload(Properties())))

    first, second = await asyncio.wait_for(got.get(), 2), await asyncio.wait_for(got.get(), PATIENCE_SECONDS)
    assert first.malformed == "the message's properties cannot be read: short string is cut off"
    assert first.properties == Properties()
    assert second.malformed is None
    assert connection.is_open


@pytest.mark.parametrize("piece", [1_000, 65_536, 2**30])
async def test_a_content_header_longer_than_a_frame_is_delivered_without_its_headers_and_says_why(
    broker: FakeBroker, connection: Connection, piece: int
) -> None:
    got: asyncio.Queue[Message] = asyncio.Queue()
    _, tag = await consuming(connection, got.put_nowait)
    long = header_payload(Properties(content_type="t", correlation_id="c", reply_to="r", headers={"k": "v" * 400_000}))
    sent = delivery(1, tag, 1, long) + delivery(1, tag, 2, header_payload(Properties(correlation_id="d")))

    for start in range(0, len(sent), piece):
        broker.send(sent[start : start + piece])
        await asyncio.sleep(0)

    first, second = (
        await asyncio.wait_for(got.get(), PATIENCE_SECONDS),
        await asyncio.wait_for(got.get(), PATIENCE_SECONDS),
    )
    assert first.malformed == f"the message's headers are not read: they have {len(long)} bytes"
    assert first.properties == Properties(content_type="t", correlation_id="c", reply_to="r")
    assert (second.malformed, second.properties.correlation_id) == (None, "d")
    assert connection.is_open


async def test_a_callback_that_raises_closes_its_channel_with_that_reason(
    broker: FakeBroker, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Message) -> None:
        raise LookupError("not in the table")

    other = await connection.channel()
    channel = await connection.channel()
    tag = await channel.consume("q", broken, on_cancel=lambda: None)

    broker.send(delivery(2, tag, 1, header_payload(Properties())))

    reason = await asyncio.wait_for(channel.wait_closed(), PATIENCE_SECONDS)
    assert type(reason) is ConsumerFailed
    assert "LookupError: not in the table" in str(reason)
    assert isinstance(reason.__cause__, LookupError)
    assert "callback failed, its channel is closed" in caplog.text
    await broker.until("Channel.Close")
    assert connection.is_open
    assert (await other.declare_queue("q")).consumers == 1


async def test_the_brokers_cancel_is_reported_once(broker: FakeBroker, connection: Connection) -> None:
    cancelled = asyncio.Event()
    channel, tag = await consuming(connection, lambda _: None, cancelled.set)

    broker.send(method(1, spec.Basic.Cancel(tag, True)))

    await asyncio.wait_for(cancelled.wait(), PATIENCE_SECONDS)
    await channel.cancel(tag)  # nothing left to cancel
    assert channel.is_open


async def test_deliveries_are_taken_until_the_cancel_is_answered_and_pika_rejects_none(
    broker: FakeBroker, connection: Connection
) -> None:
    got: asyncio.Queue[Message] = asyncio.Queue()
    channel, tag = await consuming(connection, got.put_nowait, lambda: pytest.fail("the consumer got its own cancel"))
    broker.script = silent_on(spec.Basic.Cancel)
    cancelling = asyncio.create_task(channel.cancel(tag))
    await broker.until("Basic.Cancel")

    broker.send(
        delivery(1, tag, 1, header_payload(Properties())),
        method(1, spec.Basic.Cancel(tag, True)),
        method(1, spec.Basic.CancelOk(tag)),
    )
    await asyncio.wait_for(cancelling, PATIENCE_SECONDS)

    assert got.qsize() == 1
    assert not any(value.NAME == "Basic.Reject" for _, value in broker.received)


async def test_a_delivery_for_a_consumer_that_was_given_up_goes_back(
    broker: FakeBroker, connection: Connection
) -> None:
    channel = await connection.channel()
    broker.script = silent_on(spec.Basic.Consume)
    with pytest.raises(BrokerTimeout):
        await channel.consume("q", lambda _: pytest.fail("not ours"), on_cancel=lambda: None)
    tag = (await broker.until("Basic.Consume")).consumer_tag

    broker.send(method(1, spec.Basic.ConsumeOk(tag)), delivery(1, tag, 4, header_payload(Properties())))

    nack = await broker.until("Basic.Nack")
    assert (nack.delivery_tag, nack.requeue, nack.multiple) == (4, True, False)
    assert (await broker.until("Basic.Cancel")).consumer_tag == tag


async def test_a_delivery_without_acknowledgement_for_a_consumer_that_was_given_up_is_not_settled(
    broker: FakeBroker, connection: Connection
) -> None:
    channel = await connection.channel()
    broker.script = silent_on(spec.Basic.Consume)
    with pytest.raises(BrokerTimeout):
        await channel.consume("q", lambda _: pytest.fail("not ours"), on_cancel=lambda: None, no_ack=True)
    tag = (await broker.until("Basic.Consume")).consumer_tag

    broker.send(delivery(1, tag, 4, header_payload(Properties())), method(1, spec.Basic.ConsumeOk(tag)))

    await broker.until("Basic.Cancel")
    assert not any(value.NAME == "Basic.Nack" for _, value in broker.received)


async def test_a_return_that_no_publish_waits_for_reaches_on_return(broker: FakeBroker, connection: Connection) -> None:
    channel = await connection.channel()
    got: list[tuple[Returned, Properties]] = []
    channel.on_return = lambda error, properties: got.append((error, properties))

    channel.send("x", "k", b"", Properties(correlation_id="c"), mandatory=True)
    await broker.until("Basic.Publish")
    header = header_payload(Properties(correlation_id="c"))
    broker.send(
        method(1, spec.Basic.Return(312, "NO_ROUTE", "x", "k")),
        b"\x02\x00\x01" + len(header).to_bytes(4, "big") + header + b"\xce",
    )
    await channel.declare_queue("q")  # answered after the return

    ((error, properties),) = got
    assert (error.code, error.reply_text, error.exchange, error.routing_key) == (312, "NO_ROUTE", "x", "k")
    assert properties.correlation_id == "c"


# --- refused before anything is sent ---


async def test_what_cannot_be_sent_is_refused_before_a_byte_is_written(
    broker: FakeBroker, connection: Connection
) -> None:
    channel = await connection.channel(confirm=True)
    for attempt in (
        lambda: channel.publish("", "k" * 256, b""),
        lambda: channel.publish("", "k", "text"),  # type: ignore[arg-type]
        lambda: channel.publish("", "k", b"", Properties(headers={"k": "x" * 140_000})),
        lambda: channel.publish("", "k", b"", Properties(user_id="another")),
        lambda: channel.publish("", "k", b"", Properties(expiration="soon"), mandatory=True),
        lambda: channel.publish("", "k", b"", Properties(correlation_id=["c"]), mandatory=True),
    ):
        with pytest.raises(Unencodable):
            attempt()  # type: ignore[no-untyped-call]
    for call in (
        channel.declare_queue("a\nb"),
        channel.declare_queue("a\rb", passive=True),
        channel.declare_queue("é" * 128),
        channel.declare_queue("q", arguments={"a": 1.5}),
        channel.declare_queue("q", arguments={"a": "x" * 140_000}),
        channel.declare_queue("q", arguments={"a": [object()]}),
        channel.bind_queue("q", "x", b"\xff"),  # type: ignore[arg-type]
        channel.unbind_queue("q", "x\n", "k"),
        channel.delete_queue("a\nb"),
        channel.consume("a\nb", lambda _: None, on_cancel=lambda: None),
    ):
        with pytest.raises(Unencodable):
            await call

    waiting = channel.publish("", "k", b"")
    await broker.until("Basic.Publish")
    broker.send(method(1, spec.Basic.Ack(1, False)))  # the refused ones were not counted either
    await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert [value.NAME for _, value in broker.received if value.NAME.startswith(("Basic", "Queue"))] == [
        "Basic.Publish"
    ]


async def test_a_channel_without_confirms_has_no_publish(connection: Connection) -> None:
    channel = await connection.channel()

    with pytest.raises(RuntimeError, match="confirm=True"):
        channel.publish("", "k", b"")


# --- pika ---


def test_pika_has_the_private_names_that_we_use() -> None:
    source = inspect.getsource
    for name in PIKA_PRIVATE["connection"]:
        assert hasattr(AsyncioConnection, name) or f"self.{name}" in source(AsyncioConnection.__mro__[1]) + source(
            AsyncioConnection.__mro__[2]
        ), name
    for name in PIKA_PRIVATE["channel"]:
        assert f"self.{name}" in source(PikaChannel), name
    for name in PIKA_PRIVATE["transport"]:
        assert hasattr(_AsyncTransportBase, name) or f"self.{name}" in source(_AsyncTransportBase), name
    for name in PIKA_PRIVATE["workflow"]:
        assert f"self.{name}" in source(AMQPConnectionWorkflow), name
    for name, member in vars(Wire).items():
        if (
            name.startswith("_")
            and not name.startswith("__")
            and inspect.isfunction(member)
            and name not in ("_flush", "_plan_write", "_emit_gathered", "_check")
        ):
            assert hasattr(AsyncioConnection, name), name


def test_pika_logs_nothing_unless_asked() -> None:
    assert not logging.getLogger("pika.connection").isEnabledFor(logging.CRITICAL)


def test_pikas_parameters_show_no_password() -> None:
    assert PASSWORD not in repr(URLParameters(f"amqp://guest:{PASSWORD}@127.0.0.1/"))
