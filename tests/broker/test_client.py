"""The client on a real broker: requests, replies, and every way in which they fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pika
import pytest

from osrdyne_amqp import Connection, Message, Properties
from osrdyne_calls.limits import MAX_BODY
from osrdyne_client import AsyncClient, Client, errors
from osrdyne_protocol.errors import InvalidKey
from testbed.broker import Broker
from testbed.peer import Peer, administrator, consuming, make_request_queue, peer_of
from testbed.pool import Pool
from testbed.waiting import PATIENCE_SECONDS, until_in_thread


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool()


@pytest.fixture
async def peer(pool: Pool) -> AsyncIterator[Peer]:
    async with peer_of(pool, "42") as peer:
        yield peer


def connections(pool: Pool, name: str) -> list[str]:
    """Names by which the management API closes the connections of this name in the pool's vhost."""
    found = pool.broker.management.get("vhosts", pool.vhost, "connections")
    return [
        connection["name"]
        for connection in found
        if connection.get("client_properties", {}).get("connection_name") == name
    ]


async def cut(pool: Pool, client: AsyncClient, name: str) -> None:
    """Close the client's connection from the broker's side and wait until the client has seen it."""
    names = await until_in_thread(lambda: connections(pool, name))
    for connection in names:
        pool.broker.management.delete("connections", connection)
    await until_in_thread(lambda: not client.is_connected)


def reply_queues(pool: Pool) -> list[dict[str, Any]]:
    found = pool.broker.management.get("queues", pool.vhost)
    return [queue for queue in found if queue["name"].startswith("reply-")]


# --- calls ----------------------------------------------------------------------------------------------------


async def test_a_call_returns_the_answer_of_its_worker(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        call = asyncio.create_task(client.call("42", b"question", headers={"x-rpc-path": "/a", "n": 1}))
        request = await peer.take()
        assert request.body == b"question"
        assert request.routing_key == "42"
        assert request.properties.headers["x-rpc-path"] == "/a"
        assert request.properties.headers["n"] == 1
        assert request.properties.delivery_mode == 2
        peer.reply(request, b"answer", {"x-status": "ok", "mine": "x"})
        reply = await call
        # The reply was acknowledged: it will not come again
        await until_in_thread(lambda: pool.depth(str(request.properties.reply_to)) == 0)
    assert (reply.status, reply.body, reply.headers["mine"]) == ("ok", b"answer", "x")
    assert reply.correlation_id == request.properties.correlation_id


async def test_calls_in_flight_get_their_own_answers_in_whatever_order(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        calls = [asyncio.create_task(client.call("42", b"%d" % number)) for number in range(50)]
        requests = [await peer.take() for _ in calls]
        for request in reversed(requests):
            peer.reply(request, request.body * 2)
        assert [reply.body for reply in await asyncio.gather(*calls)] == [b"%d%d" % (n, n) for n in range(50)]


async def test_the_deadline_of_a_call_goes_along_unless_it_is_not_wanted(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name, timeout=30.0) as client:
        for options, seconds in (({}, 30.0), ({"timeout": 5.0}, 5.0)):
            call = asyncio.create_task(client.call("42", b"", **options))  # type: ignore[arg-type]
            request = await peer.take()
            deadline = request.properties.headers["x-deadline"]
            assert isinstance(deadline, int)
            assert abs(deadline / 1000 - time.time() - seconds) < 2
            peer.reply(request, b"")
            await call
        call = asyncio.create_task(client.call("42", b"", deadline=False))
        request = await peer.take()
        assert list(request.properties.headers) == ["x-publish-time"]
        assert abs(request.properties.headers["x-publish-time"] / 1000 - time.time()) < 2
        peer.reply(request, b"")
        await call


@pytest.mark.parametrize("headers", [{"x-status": b"ok"}, {"x-status": "ok"}, {}])
async def test_a_status_as_byte_array_or_none_at_all_is_an_answer(
    pool: Pool, peer: Peer, headers: dict[str, Any]
) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        call = asyncio.create_task(client.call("42", b""))
        peer.reply(await peer.take(), b"fine", headers)
        assert (await call).body == b"fine"


async def test_an_error_reply_is_raised_and_frees_its_slot_at_once(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name, slots=1) as client:
        for status, kind in ((b"expired", errors.Expired), ("rejected", errors.Rejected), ("what", errors.RemoteError)):
            call = asyncio.create_task(client.call("42", b""))
            request = await peer.take()
            peer.reply(request, b"details", {"x-status": status, "x-reason": "too late"})
            with pytest.raises(kind, match="too late") as caught:
                await call
            assert caught.value.body == b"details"
            assert caught.value.correlation_id == request.properties.correlation_id
            assert client.slots_taken == 0


async def test_a_late_reply_is_dropped_and_not_given_to_the_next_user_of_the_slot(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name, slots=1) as client:
        # Given a call that ends after its worker has the request, and so after the broker has taken it
        call = asyncio.create_task(client.call("42", b"first", timeout=3))
        first = await peer.take()
        with pytest.raises(errors.CallTimeout, match=r"'42' within 3 s: the broker took the request"):
            await call
        # The only slot is had again, although its first user was never answered
        second = asyncio.create_task(client.call("42", b"second"))
        await peer.take()
        assert await peer.reply(first, b"late")
        with pytest.raises(errors.NoFreeSlot, match="all 1 slots"):
            await client.call("42", b"third")
        await until_in_thread(lambda: client.stale_replies == 1)
        assert not second.done()
        second.cancel()


async def test_a_cancelled_call_gives_its_slot_up(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name, slots=1) as client:
        call = asyncio.create_task(client.call("42", b"first"))
        await peer.take()
        call.cancel()
        await asyncio.wait([call])
        call = asyncio.create_task(client.call("42", b"second"))
        peer.reply(await peer.take(), b"answer")
        assert (await call).body == b"answer"


async def test_a_thousand_calls_fit_in_the_slots_that_are_there_by_default(pool: Pool) -> None:
    async with peer_of(pool, "42", lambda message: message.body), AsyncClient(pool.client_uri, "core") as client:
        replies = await asyncio.gather(*(client.call("42", b"%d" % number) for number in range(1000)))
    assert [int(reply.body) for reply in replies] == list(range(1000))


# --- without waiting ------------------------------------------------------------------------------------------


async def test_a_cast_returns_when_the_broker_has_it_and_asks_for_no_reply(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        await client.cast("42", b"do it", headers={"a": "b"})
        request = await peer.take()
        assert (request.body, request.properties.reply_to) == (b"do it", None)
        assert request.properties.headers == {"a": "b"}
        assert request.properties.correlation_id
        # A key without a worker: the broker keeps the request for the daemon
        await client.cast("cold", b"later")
        await until_in_thread(lambda: pool.depth(pool.names.orphan_queue) == 1)
        assert client.slots_taken == 0


async def test_a_submitted_call_can_be_picked_up_later_or_never(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name, slots=2) as client:
        wanted, unwanted = client.submit("42", b"1"), client.submit("42", b"2")
        with pytest.raises(errors.NoFreeSlot):
            client.submit("42", b"3")
        for _ in range(2):
            request = await peer.take()
            status = "ok" if request.body == b"1" else "error"
            peer.reply(request, b"answer", {"x-status": status})
        assert (await wanted).body == b"answer"
        await until_in_thread(unwanted.done)
        assert client.slots_taken == 0
        # Giving the reply up gives the slot up
        client.submit("42", b"4").cancel()
        client.submit("42", b"5").cancel()
        await asyncio.sleep(0)
        client.submit("42", b"6").cancel()


@pytest.mark.parametrize("confirm", [True, False])
async def test_confirms_are_a_choice(pool: Pool, confirm: bool) -> None:
    async with (
        peer_of(pool, "42", lambda message: message.body),
        AsyncClient(pool.client_uri, pool.settings.name, confirm=confirm) as client,
    ):
        await client.cast("42", b"x")
        assert (await client.call("42", b"y")).body == b"y"


# --- the synchronous face -------------------------------------------------------------------------------------


async def test_eight_threads_call_at_once_and_get_their_own_answers(pool: Pool) -> None:
    def caller(client: Client, thread: int) -> bool:
        bodies = [b"%d-%d" % (thread, number) for number in range(100)]
        return all(client.call("42", body).body == body[::-1] for body in bodies)

    def threads() -> list[bool]:
        from concurrent.futures import ThreadPoolExecutor

        with Client(pool.client_uri, pool.settings.name) as client, ThreadPoolExecutor(8) as executor:
            return list(executor.map(lambda thread: caller(client, thread), range(8)))

    async with peer_of(pool, "42", lambda message: message.body[::-1]):
        assert await asyncio.to_thread(threads) == [True] * 8


async def test_the_synchronous_face_raises_what_the_other_does(pool: Pool, peer: Peer) -> None:
    def use() -> None:
        with Client(pool.client_uri, pool.settings.name, max_body=10) as client:
            client.cast("42", b"cast")
            with pytest.raises(errors.CallTimeout):
                client.call("42", b"", timeout=0.1)
            with pytest.raises(errors.BodyTooLarge):
                client.call("42", b"12345678901")
            with pytest.raises(InvalidKey):
                client.call("a\0b", b"")
            with pytest.raises(errors.CallTimeout):
                client.submit("42", b"", timeout=0.1).result(timeout=PATIENCE_SECONDS)
            waiting = client.submit("42", b"")
        with pytest.raises(errors.ClientClosed):
            waiting.result(timeout=0)
        with pytest.raises(errors.ClientClosed):
            client.call("42", b"")
        client.close()

    await asyncio.to_thread(use)
    await until_in_thread(lambda: not reply_queues(pool))


def test_a_synchronous_client_that_cannot_open_says_why_and_ends_its_thread(pool: Pool) -> None:
    uri = pool.broker.amqp_uri(pool.users.client, "wrong", pool.vhost)
    with pytest.raises(errors.AccessRefused) as caught, Client(uri, pool.settings.name):
        pass
    assert "wrong" not in str(caught.value)
    never_opened = Client(uri, pool.settings.name)
    never_opened.close()
    with pytest.raises(errors.ClientClosed):
        never_opened.call("42", b"")


# --- what is refused before it is sent ------------------------------------------------------------------------


async def test_bad_input_is_an_error_of_its_own_call_only(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        innocent = asyncio.create_task(client.call("42", b"innocent"))
        request = await peer.take()
        for key in ("a\0b", "é" * 128, "\udcff"):
            with pytest.raises(InvalidKey):
                await client.call(key, b"")
        for headers in ({"x": object()}, {"x" * 300: 1}, {"x": 2**70}, {"x": "y" * 200_000}):
            with pytest.raises(errors.Unencodable):
                await client.call("42", b"", headers=headers)
            with pytest.raises(errors.Unencodable):
                await client.cast("42", b"", headers=headers)
        with pytest.raises(errors.BodyTooLarge, match=rf"{MAX_BODY + 1} bytes.*{MAX_BODY} \(max_body\)") as caught:
            await client.call("42", bytes(MAX_BODY + 1))
        assert (caught.value.size, caught.value.limit) == (MAX_BODY + 1, MAX_BODY)
        assert client.slots_taken == 1
        peer.reply(request, b"fine")
        assert (await innocent).body == b"fine"


async def test_a_body_as_large_as_may_be_goes_there_and_back(pool: Pool) -> None:
    body = bytes(range(256)) * (MAX_BODY // 256)
    async with peer_of(pool, "42", lambda message: message.body), AsyncClient(pool.client_uri, "core") as client:
        assert (await client.call("42", body)).body == body


async def test_a_body_that_the_broker_refuses_fails_alone(pool: Pool, peer: Peer) -> None:
    large = 16 * 1024 * 1024 + 1
    async with AsyncClient(pool.client_uri, pool.settings.name, max_body=2 * large) as client:
        calls = [asyncio.create_task(client.call("42", body)) for body in (b"before", bytes(large), b"after")]
        with pytest.raises(errors.BodyTooLarge, match=rf"{large} bytes; this broker takes at most 16777216"):
            await calls[1]
        answered: set[bytes] = set()
        while len(answered) < 2:
            request = await peer.take()
            answered.add(request.body)
            peer.reply(request, request.body)
        assert {(await call).body for call in (calls[0], calls[2])} == {b"before", b"after"}


# --- what the broker refuses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("confirm", [True, False])
async def test_a_return_is_raised_at_once_because_the_pool_is_not_set_up(pool: Pool, confirm: bool) -> None:
    # Given a pool without its alternate exchange
    pool.broker.management.delete("policies", pool.vhost, pool.names.request_exchange)
    async with AsyncClient(pool.client_uri, pool.settings.name, confirm=confirm, timeout=60) as client:
        with pytest.raises(errors.Undeliverable, match="osrdyne lint"):
            await client.call("cold", b"")
        assert client.slots_taken == 0
        if confirm:
            with pytest.raises(errors.Undeliverable):
                await client.cast("cold", b"")


@pytest.mark.parametrize("confirm", [True, False])
async def test_a_missing_exchange_is_reported_to_every_caller(pool: Pool, confirm: bool) -> None:
    pool.broker.management.delete("exchanges", pool.vhost, pool.names.request_exchange)
    async with AsyncClient(pool.client_uri, pool.settings.name, confirm=confirm) as client:
        for _ in range(2):
            with pytest.raises(errors.Undeliverable, match=r"not set up.*'core-req-xchg'"):
                await client.call("42", b"")
        # And it goes on when the pool is set up again
        await asyncio.to_thread(pool.apply)
        await client.cast("42", b"")
    assert not reply_queues(pool)


async def test_a_pool_that_this_user_may_not_call_is_an_error_at_once(pool: Pool) -> None:
    other = Pool.on(pool.broker, pool.vhost, name="other")
    async with AsyncClient(pool.client_uri, "other") as client:
        with pytest.raises(errors.AccessRefused, match="other-req-xchg"):
            await client.call("42", b"")
    other.remove_users()


async def test_a_full_queue_is_a_negative_confirm(pool: Pool) -> None:
    arguments = {"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish"}
    await make_request_queue(pool, "full", arguments)
    async with AsyncClient(pool.client_uri, pool.settings.name, slots=1) as client:
        await client.cast("full", b"fits")
        with pytest.raises(errors.Nacked, match="'full'"):
            await client.cast("full", b"does not")
        for _ in range(2):
            with pytest.raises(errors.Nacked):
                await client.call("full", b"does not")


async def test_a_wrong_password_a_missing_vhost_and_a_missing_broker_are_distinguished(pool: Pool) -> None:
    with pytest.raises(errors.AccessRefused) as refused:
        await AsyncClient(pool.broker.amqp_uri(pool.users.client, "secret-1", pool.vhost), "core").open()
    assert "secret-1" not in str(refused.value)
    with pytest.raises(errors.AccessRefused):
        await AsyncClient(
            pool.broker.amqp_uri(pool.users.client, pool.passwords[pool.users.client], "none"), "core"
        ).open()
    with pytest.raises(errors.BrokerUnreachable):
        await AsyncClient("amqp://u:p@127.0.0.1:1/x", "core").open()
    with pytest.raises(errors.InvalidUri):
        await AsyncClient("http://u:p@127.0.0.1/x", "core").open()


# --- the reply queue ------------------------------------------------------------------------------------------


async def test_the_reply_queue_is_durable_classic_expires_and_goes_on_a_clean_close(pool: Pool) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        call = asyncio.create_task(client.call("42", b""))
        (queue,) = await until_in_thread(lambda: reply_queues(pool))
        assert queue["name"].startswith(f"reply-{pool.users.client}-")
        assert (queue["type"], queue["durable"], queue["auto_delete"]) == ("classic", True, False)
        assert queue["arguments"]["x-expires"] == 600_000
    # Each caller that waited knows that the client is closed
    with pytest.raises(errors.ClientClosed):
        await call
    with pytest.raises(errors.ClientClosed):
        await client.call("42", b"")
    assert not reply_queues(pool)


async def test_a_deleted_reply_queue_is_made_again(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        (queue,) = await until_in_thread(lambda: reply_queues(pool))
        pool.broker.management.delete("queues", pool.vhost, queue["name"])
        await until_in_thread(lambda: [queue["name"] for queue in reply_queues(pool)] == [queue["name"]])
        call = asyncio.create_task(client.call("42", b""))
        peer.reply(await peer.take(), b"answer")
        assert (await call).body == b"answer"


async def test_a_call_keeps_its_slot_and_gets_its_reply_after_the_connection_broke(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name, name="to be cut") as client:
        call = asyncio.create_task(client.call("42", b"first"))
        request = await peer.take()
        await cut(pool, client, "to be cut")
        # The reply comes while the client is away; a call made meanwhile waits for the connection
        assert await peer.reply(request, b"kept")
        second = asyncio.create_task(client.call("42", b"second"))
        assert (await call).body == b"kept"
        peer.reply(await peer.take(), b"also")
        assert (await second).body == b"also"


# --- direct reply-to ------------------------------------------------------------------------------------------


async def test_direct_reply_to_needs_no_queue_and_fails_calls_whose_address_died(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name, reply="direct", name="direct") as client:
        call = asyncio.create_task(client.call("42", b"one"))
        request = await peer.take()
        assert str(request.properties.reply_to).startswith("amq.rabbitmq.reply-to.")
        assert not reply_queues(pool)
        peer.reply(request, b"answer")
        assert (await call).body == b"answer"
        # A call in flight cannot be answered when the connection is lost, and says so at once
        call = asyncio.create_task(client.call("42", b"two"))
        await peer.take()
        await cut(pool, client, "direct")
        with pytest.raises(errors.ReplyAddressLost):
            await call
        # The next one works
        call = asyncio.create_task(client.call("42", b"three"))
        peer.reply(await peer.take(), b"again")
        assert (await call).body == b"again"


async def test_a_client_in_plain_pika_with_direct_reply_to_is_answered(pool: Pool) -> None:
    def ask() -> tuple[bytes, Any, Any]:
        with pika.BlockingConnection(pika.URLParameters(pool.client_uri)) as connection:
            channel = connection.channel()
            found: list[tuple[bytes, Any, Any]] = []
            channel.basic_consume(
                "amq.rabbitmq.reply-to",
                lambda _, __, properties, body: found.append((body, properties.correlation_id, properties.headers)),
                auto_ack=True,
            )
            properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="my own id")
            channel.basic_publish(pool.names.request_exchange, "42", b"foreign", properties)
            deadline = time.monotonic() + 20
            while not found:
                assert time.monotonic() < deadline
                connection.process_data_events(time_limit=0.1)
            return found[0]

    async with peer_of(pool, "42", lambda message: message.body.upper()):
        assert await asyncio.to_thread(ask) == (b"FOREIGN", "my own id", {"x-status": "ok"})


# --- the broker goes away -------------------------------------------------------------------------------------


@pytest.mark.both_versions
async def test_a_broker_restart_loses_no_call_whose_timeout_has_not_passed(private_broker: Broker) -> None:
    pool = Pool.on(private_broker, "/")
    await make_request_queue(pool, "42")
    queue = pool.names.request_queue("42")
    async with AsyncClient(pool.client_uri, pool.settings.name, timeout=60) as client:
        calls = [asyncio.create_task(client.call("42", b"%d" % number)) for number in range(40)]
        # Given calls that are answered, answered but unread, taken by a worker, and still queued
        async with consuming(pool, queue) as peer:
            for _ in range(10):
                request = await peer.take()
                peer.reply(request, request.body)
            await asyncio.gather(*calls[:5])
            await peer.take()
            # When the broker stops and starts
            await asyncio.to_thread(private_broker.stop)
            calls += [asyncio.create_task(client.call("42", b"%d" % number)) for number in range(40, 60)]
            with pytest.raises(errors.CallTimeout, match="the broker is away"):
                await client.call("42", b"impatient", timeout=0.1)
            await asyncio.to_thread(private_broker.start)
        # Then each is answered, those that were made meanwhile too
        async with consuming(pool, queue, lambda message: message.body):
            replies = await asyncio.gather(*calls)
    assert [int(reply.body) for reply in replies] == list(range(60))


@pytest.mark.both_versions
async def test_a_blocked_connection_is_waited_for(private_broker: Broker) -> None:
    pool = Pool.on(private_broker, "/")
    limit = ("set_vm_memory_high_watermark", "absolute")
    async with (
        peer_of(pool, "42", lambda message: message.body),
        AsyncClient(pool.client_uri, pool.settings.name) as client,
    ):
        assert (await client.call("42", b"1")).body == b"1"
        await asyncio.to_thread(private_broker.rabbitmqctl, *limit, "1MB")
        with pytest.raises(errors.CallTimeout):
            await client.call("42", b"2", timeout=0.5)
        waiting = asyncio.create_task(client.call("42", b"3", timeout=60))
        await asyncio.to_thread(private_broker.rabbitmqctl, *limit, "512MB")
        assert (await waiting).body == b"3"


# --- permissions ----------------------------------------------------------------------------------------------


async def test_a_client_may_use_no_reply_queue_but_its_own(pool: Pool) -> None:
    connection = await Connection.open(pool.client_uri, name="test")
    for queue in (f"reply-{pool.users.worker}-{'0' * 32}", pool.names.orphan_queue):
        channel = await connection.channel()
        with pytest.raises(errors.AccessRefused):
            await channel.consume(queue, lambda _: None, on_cancel=lambda: None)
    await connection.close()


async def test_a_reply_that_names_no_call_of_this_client_changes_nothing(pool: Pool, peer: Peer) -> None:
    async with AsyncClient(pool.client_uri, pool.settings.name) as client:
        (queue,) = await until_in_thread(lambda: reply_queues(pool))
        connection = await Connection.open(administrator(pool), name="test")
        channel = await connection.channel(confirm=True)
        for correlation_id in (None, "x", "0-0-0", b"\xff"):
            await channel.publish("", queue["name"], b"", Properties(correlation_id=correlation_id))
        call = asyncio.create_task(client.call("42", b""))
        request: Message = await peer.take()
        peer.reply(request, b"mine")
        assert (await call).body == b"mine"
        await connection.close()
