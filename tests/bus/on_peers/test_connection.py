"""One connection over AMQP 1.0 to RabbitMQ: what is sent, how it ends, and what is left when something breaks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from osrdyne_bus.addresses import RabbitMQ, scheme_for
from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine import MOST_SESSIONS, BusConnection, IncomingMessage, Login
from osrdyne_bus.errors import (
    ConnectFailed,
    DeliveryFailure,
    LinkRefused,
    LoginRefused,
    MessagingError,
    PeerLost,
    SendTimedOut,
    Unsent,
)
from osrdyne_bus.messages.envelopes import Envelope
from testbed.broker import Broker
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.bus.on_peers.conftest import Connect
from tests.conftest import Vhost

pytestmark = pytest.mark.both_versions


def text(message: Envelope) -> str:
    return bytes(message.body).decode()


def messages(number: int) -> list[Envelope]:
    return [Envelope(body=str(place).encode()) for place in range(number)]


async def test_messages_arrive_in_their_order_and_a_send_ends_when_the_peer_has_them(
    connect: Connect, queue: str, vhost: Vhost
) -> None:
    sender_side, receiver_side = await connect(), await connect()
    link = await sender_side.sender(queue)

    await asyncio.gather(*(link.send(message, PATIENCE_SECONDS) for message in messages(500)))
    assert link.is_idle
    seen: list[str] = []

    def received(incoming: IncomingMessage) -> None:
        seen.append(text(incoming.envelope))
        incoming.accept()

    await receiver_side.subscribe(queue, CreditWindow(100), received)
    await until_async(lambda: len(seen) >= 500)

    assert seen == [str(number) for number in range(500)]

    def ready() -> int:
        return int((vhost.broker.management.queue(vhost.name, "q") or {}).get("messages", 1))

    await until_async(lambda: not ready())


async def test_a_receiver_that_settles_nothing_is_sent_its_window_and_no_more(connect: Connect, queue: str) -> None:
    connection = await connect()
    link = await connection.sender(queue)
    await asyncio.gather(*(link.send(message, PATIENCE_SECONDS) for message in messages(30)))
    held: list[IncomingMessage] = []
    subscription = await connection.subscribe(queue, CreditWindow(10), held.append)

    await until_async(lambda: len(held) >= 10)
    # A round trip on the same connection: what was to come would have come before its answer.
    await link.send(Envelope(body=b"last"), PATIENCE_SECONDS)
    assert (len(held), subscription.window.stalls) == (10, 1)
    # And it goes on once half of them are settled
    for open_connection in held[:5]:
        open_connection.accept()
    await until_async(lambda: len(held) >= 15)
    await link.send(Envelope(body=b"last"), PATIENCE_SECONDS)
    assert len(held) == 15


async def test_a_message_that_is_released_comes_again_and_one_that_is_rejected_does_not(
    connect: Connect, queue: str
) -> None:
    connection = await connect()
    link = await connection.sender(queue)
    await asyncio.gather(*(link.send(message, PATIENCE_SECONDS) for message in messages(2)))
    seen: list[str] = []

    def received(incoming: IncomingMessage) -> None:
        seen.append(text(incoming.envelope))
        if len(seen) == 1:
            incoming.release()
        elif text(incoming.envelope) == "1":
            incoming.reject("example:no", "not wanted")
        else:
            incoming.accept()

    await connection.subscribe(queue, CreditWindow(10), received)
    await until_async(lambda: len(seen) >= 3)
    await link.send(Envelope(body=b"2"), PATIENCE_SECONDS)
    await until_async(lambda: "2" in seen)

    assert sorted(seen) == ["0", "0", "1", "2"]


async def test_a_message_is_settled_once(connect: Connect, queue: str) -> None:
    connection = await connect()
    link = await connection.sender(queue)
    await asyncio.gather(*(link.send(message, PATIENCE_SECONDS) for message in messages(2)))
    held: list[IncomingMessage] = []
    subscription = await connection.subscribe(queue, CreditWindow(4), held.append)
    await until_async(lambda: len(held) == 2)

    for _ in range(3):
        held[0].accept()

    assert subscription.window.unacknowledged == 1


async def test_what_comes_after_a_subscription_was_closed_is_not_shown_and_comes_to_another_one(
    connect: Connect, queue: str
) -> None:
    connection = await connect()
    link = await connection.sender(queue)
    await asyncio.gather(*(link.send(message, PATIENCE_SECONDS) for message in messages(50)))
    first: list[IncomingMessage] = []
    second: list[IncomingMessage] = []

    def received(incoming: IncomingMessage) -> None:
        first.append(incoming)
        incoming.subscription.close()

    await connection.subscribe(queue, CreditWindow(50), received)
    await until_async(lambda: bool(first))
    first[0].accept()
    await connection.subscribe(queue, CreditWindow(100), second.append)
    await until_async(lambda: len(second) == 50)

    assert len(first) == 1


async def test_empty_frames_keep_a_connection_that_is_not_used(private_broker: Broker) -> None:
    # Given a broker that ends a connection which is silent for 2 s
    await asyncio.to_thread(private_broker.rabbitmqctl, "eval", "application:set_env(rabbit, heartbeat, 2).")
    login = Login(private_broker.admin, private_broker.admin_password)
    connection = await BusConnection.connect("127.0.0.1", private_broker.amqp_port, login=login, virtual_host="vhost:/")
    before = connection._engine.frames_output

    await until_async(lambda: connection.ended is not None or connection._engine.frames_output >= before + 6)

    assert connection.ended is None
    await connection.close()


@pytest.mark.parametrize("at", ["connection", "link"])
async def test_a_wait_that_is_cancelled_leaves_nothing_behind(at: str, connect: Connect, queue: str) -> None:
    if at == "link":
        connection = await connect()
        task = asyncio.create_task(connection.sender(queue))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await until_async(lambda: connection._connection.link_head(0) is None)
        assert connection.ended is None
        return
    came, gone = asyncio.Event(), asyncio.Event()
    server = await asyncio.start_server(partial(wait_for_end, came, gone), "127.0.0.1", 0)
    task = asyncio.create_task(BusConnection.connect("127.0.0.1", server.sockets[0].getsockname()[1]))
    await asyncio.wait_for(came.wait(), PATIENCE_SECONDS)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.wait_for(gone.wait(), PATIENCE_SECONDS)
    server.close()


async def wait_for_end(
    came: asyncio.Event, gone: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Say nothing, and note when the other side comes and goes."""
    with contextlib.suppress(OSError):
        while await reader.read(1000):
            came.set()
    writer.close()
    gone.set()


async def test_a_message_that_no_queue_takes_is_a_delivery_failure(connect: Connect, vhost: Vhost) -> None:
    vhost.broker.management.put("exchanges", vhost.name, "broadcast", body={"type": "fanout", "durable": True})
    link = await (await connect()).sender("/exchanges/broadcast")

    with pytest.raises(
        DeliveryFailure, match="the message to '/exchanges/broadcast' was released: no receiver took it"
    ):
        await link.send(Envelope(body=b"x"), PATIENCE_SECONDS)


async def test_a_link_that_is_refused_says_why_and_harms_no_other(connect: Connect, queue: str) -> None:
    connection = await connect()
    link = await connection.sender(queue)

    with pytest.raises(LinkRefused, match=f"^{connection.peer} ended the link to '/queues/none': no queue 'none'"):
        await connection.sender("/queues/none")
    with pytest.raises(LinkRefused, match="ended the link to '/queues/none': no queue 'none'"):
        await connection.subscribe("/queues/none", CreditWindow(1), print)

    await link.send(Envelope(body=b"x"), PATIENCE_SECONDS)
    assert connection.ended is None
    # And a link that was refused leaves nothing in the engine
    link.close()
    await until_async(lambda: connection._connection.link_head(0) is None)


async def test_a_refused_link_that_was_given_up_harms_no_other(connect: Connect, queue: str) -> None:
    connection = await connect()
    for _ in range(5):
        given_up = asyncio.create_task(connection.sender("/queues/none"))
        await asyncio.sleep(0)
        connection._transport.work()  # it has left, and the answer has not come
        given_up.cancel()
        await asyncio.wait([given_up])

        link = await connection.sender(queue)

        await link.send(Envelope(body=b"x"), PATIENCE_SECONDS)
        assert given_up.cancelled()


async def test_a_connection_has_more_links_than_the_peer_allows_it_sessions(connect: Connect, queue: str) -> None:
    connection = await connect()

    links = [await connection.sender(queue) for _ in range(MOST_SESSIONS + 10)]

    await asyncio.gather(
        *(link.send(message, PATIENCE_SECONDS) for link, message in zip(links, messages(len(links)), strict=True))
    )
    # And links that were closed make room again
    for link in links:
        link.close()
    for _ in range(MOST_SESSIONS + 10):
        (await connection.sender(queue)).close()
    assert connection.ended is None
    # And leave nothing in the engine
    await until_async(lambda: connection._connection.link_head(0) is None)


async def test_a_queue_that_is_deleted_ends_its_links_and_no_other(connect: Connect, queue: str, vhost: Vhost) -> None:
    connection, management = await connect(), vhost.broker.management
    subscription = await connection.subscribe(queue, CreditWindow(5), print)
    management.put("queues", vhost.name, "other", body={"durable": True, "arguments": {"x-queue-type": "quorum"}})
    other = await connection.sender("/queues/other")

    await asyncio.to_thread(management.delete, "queues", vhost.name, "q")

    await until_async(lambda: subscription.ended is not None)
    assert isinstance(subscription.ended, LinkRefused)
    await other.send(Envelope(body=b"x"), PATIENCE_SECONDS)


async def test_a_peer_gives_an_address_for_replies_from_version_4_3(connect: Connect, broker_version: str) -> None:
    connection = await connect()
    seen: list[IncomingMessage] = []
    reply = connection.subscribe(
        None, CreditWindow(200), seen.append, capabilities=("rabbitmq:volatile-queue",), settled=True
    )
    if broker_version == "4.0":
        with pytest.raises(LinkRefused, match="Dynamic sources not supported"):
            await reply
        return

    subscription = await reply

    link = await (await connect()).sender(subscription.address)
    await link.send(Envelope(body=b"answer"), PATIENCE_SECONDS)
    await until_async(lambda: bool(seen))
    assert text(seen[0].envelope) == "answer"


async def test_the_peer_says_what_it_is_and_gets_the_scheme_for_it(connect: Connect, broker_version: str) -> None:
    connection = await connect()

    assert str(connection.properties["version"]).startswith(broker_version)
    assert isinstance(scheme_for("dynamic", connection.properties), RabbitMQ)


async def test_a_wrong_password_is_a_refused_login_that_does_not_show_it(connect: Connect, vhost: Vhost) -> None:
    with pytest.raises(LoginRefused, match="refused the login") as caught:
        await connect(login=Login(vhost.broker.admin, "secret-7"))

    assert "secret-7" not in str(caught.value)
    assert "secret-7" not in repr(Login("a", "secret-7"))


async def test_a_vhost_that_there_is_not_is_said(connect: Connect) -> None:
    with pytest.raises(ConnectFailed, match=r"before it was open .*: check that .* has the virtual host 'vhost:none'"):
        await connect(virtual_host="vhost:none")


async def test_a_connection_that_ends_is_reported_once_and_fails_what_waits(
    private_broker: Broker,
) -> None:
    management = private_broker.management
    management.put("queues", "/", "q", body={"durable": True, "arguments": {"x-queue-type": "classic"}})
    lost: list[MessagingError] = []
    login = Login(private_broker.admin, private_broker.admin_password)
    connection = await BusConnection.connect(
        "127.0.0.1", private_broker.amqp_port, login=login, virtual_host="vhost:/", lost=lost.append
    )
    link = await connection.sender("/queues/q")
    # Given a broker that reads nothing more
    await asyncio.to_thread(private_broker.rabbitmqctl, "set_vm_memory_high_watermark", "0")
    waiting = [asyncio.create_task(link.send(message, PATIENCE_SECONDS)) for message in messages(2000)]
    await asyncio.sleep(0)

    await asyncio.to_thread(private_broker.kill)

    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(result) for result in ended} <= {PeerLost, Unsent, type(None)}
    assert PeerLost in {type(result) for result in ended}
    assert len(lost) == 1
    with pytest.raises(PeerLost):
        await link.send(messages(1)[0], PATIENCE_SECONDS)
    with pytest.raises(PeerLost):
        await connection.sender("/queues/q")


async def test_a_message_without_credit_waits_and_says_that_it_was_not_sent(private_broker: Broker) -> None:
    management = private_broker.management
    management.put("queues", "/", "q", body={"durable": True, "arguments": {"x-queue-type": "classic"}})
    login = Login(private_broker.admin, private_broker.admin_password)
    connection = await BusConnection.connect("127.0.0.1", private_broker.amqp_port, login=login, virtual_host="vhost:/")
    link = await connection.sender("/queues/q")
    await asyncio.to_thread(private_broker.rabbitmqctl, "set_vm_memory_high_watermark", "0")

    # More than the credit of the link, so that the last has none
    ended = await asyncio.gather(*(link.send(message, 2) for message in messages(1000)), return_exceptions=True)

    timed_out = [result for result in ended if isinstance(result, SendTimedOut)]
    assert timed_out
    assert not timed_out[-1].sent
    assert "within 2 s the message to '/queues/q' had no credit; it was not sent" in str(timed_out[-1])
    # And once the broker takes messages again, so does the link
    await asyncio.to_thread(private_broker.rabbitmqctl, "set_vm_memory_high_watermark", "0.6")
    await link.send(messages(1)[0], PATIENCE_SECONDS)
    await until_async(lambda: link.is_idle)
    await connection.close()


def answering(answer: Callable[[socket.socket], None]) -> int:
    """The port of a server that does this with its first connection."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as connection:
            answer(connection)

    threading.Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])


def speak_http(connection: socket.socket) -> None:
    connection.recv(100)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def end_at_once(connection: socket.socket) -> None:
    connection.recv(100)


@pytest.mark.parametrize("answer", [speak_http, end_at_once])
async def test_a_peer_that_speaks_no_amqp_is_named(answer: Callable[[socket.socket], Any]) -> None:
    port = answering(answer)

    with pytest.raises(ConnectFailed, match=f"^127.0.0.1:{port} .* check that it speaks AMQP 1.0"):
        await BusConnection.connect("127.0.0.1", port)


async def test_where_nothing_listens_that_is_said() -> None:
    with pytest.raises(ConnectFailed, match=r"cannot connect to 127\.0\.0\.1:1: "):
        await BusConnection.connect("127.0.0.1", 1)
