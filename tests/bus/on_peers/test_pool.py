"""A pool over AMQP 1.0: the same answers and errors as over AMQP 0-9-1, with a real daemon and workers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus, AsyncBusClient, AsyncBusServer, AsyncPoolClient
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.threads import Bus, PoolClient
from osrdyne_calls.errors import (
    AccessRefused,
    BodyTooLarge,
    CallTimeout,
    ClientClosed,
    Expired,
    Nacked,
    Undeliverable,
    Unencodable,
)
from osrdyne_protocol.errors import InvalidKey
from testbed.pool import DaemonProcess, Pool
from testbed.tcp_proxy import TcpProxy
from testbed.waiting import PATIENCE, until_async
from testbed.workers import MINIMAL
from tests.conftest import Vhost
from tests.hard_keys import KEYS

pytestmark = pytest.mark.both_versions

MakePool = Callable[..., Pool]
MakeDaemon = Callable[..., DaemonProcess]


async def test_any_key_is_answered_cold_and_warm(make_pool: MakePool, make_daemon: MakeDaemon) -> None:
    pool = make_pool()
    daemon = make_daemon(pool, worker=MINIMAL)
    async with AsyncBus(pool.client_uri) as bus:
        client = AsyncPoolClient(bus, pool.names.pool, timeout=PATIENCE)
        for _ in range(2):
            answers = await asyncio.gather(*(client.call(key, b"hello") for key in KEYS))
            assert [one.body for one in answers] == [key.encode() + b"|hello" for key in KEYS]
            assert {one.status for one in answers} == {"ok"}
        assert bus.senders == 1
    assert len(daemon.worker_pids()) == len(KEYS)


async def test_a_cast_reaches_the_worker_and_a_call_of_a_key_without_one_expires(
    make_pool: MakePool,
    make_daemon: MakeDaemon,
) -> None:
    pool = make_pool()
    make_daemon(pool)
    async with AsyncBus(pool.client_uri) as bus:
        client = AsyncPoolClient(bus, pool.names.pool)
        with pytest.raises(Expired) as raised:
            await client.call("LAX", b"x", timeout=5)
        assert raised.value.status == "expired"
        await client.cast("LAX", b"x", timeout=PATIENCE)
        await until_async(lambda: pool.depth(pool.names.request_queue("LAX")) == 1)


async def test_without_a_daemon_the_caller_waits_and_the_request_is_an_orphan(make_pool: MakePool) -> None:
    pool = make_pool()
    async with AsyncBus(pool.client_uri) as bus:
        with pytest.raises(CallTimeout, match=r"no reply within 1 s for key 'LAX'; the broker has the request"):
            await AsyncPoolClient(bus, pool.names.pool).call("LAX", b"x", timeout=1)
    await until_async(lambda: pool.depth(pool.names.orphan_queue) == 1)


async def test_what_is_wrong_with_a_request_is_the_error_of_the_client_of_pools(
    make_pool: MakePool,
    vhost: Vhost,
) -> None:
    pool = make_pool()
    async with AsyncBus(pool.client_uri) as bus:
        client = AsyncPoolClient(bus, pool.names.pool, timeout=PATIENCE, max_body=10)
        with pytest.raises(InvalidKey):
            await client.call("a\0b", b"x")
        with pytest.raises(BodyTooLarge) as raised:
            await client.call("LAX", b"x" * 11)
        assert (raised.value.size, raised.value.limit) == (11, 10)
        with pytest.raises(AccessRefused):
            await AsyncPoolClient(bus, "other", timeout=PATIENCE).call("LAX", b"x")
    async with AsyncBus(vhost.amqp_uri()) as bus:
        with pytest.raises(Undeliverable, match=r"the pool is not set up"):
            await AsyncPoolClient(bus, "other", timeout=PATIENCE).call("LAX", b"x")
        with pytest.raises(BodyTooLarge, match=r"max_message_size"):
            await AsyncPoolClient(bus, pool.names.pool, timeout=PATIENCE, max_body=2**30).cast("LAX", bytes(17 * 2**20))


async def test_a_user_with_a_name_that_addresses_encode_gets_its_answers(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool()
    make_daemon(pool, worker=MINIMAL)
    user, management = f"o'x@y é/{pool.vhost}", pool.broker.management
    management.put("users", user, body={"password": "of-a-test", "tags": ""})
    management.put("permissions", pool.vhost, user, body={"configure": ".*", "write": ".*", "read": ".*"})
    try:
        uri = pool.broker.amqp_uri(user, "of-a-test", pool.vhost)
        async with AsyncBus(uri) as bus:
            answer = await AsyncPoolClient(bus, pool.names.pool).call("LAX", b"x", timeout=PATIENCE)
            assert answer.body == b"LAX|x"
    finally:
        management.delete("users", user)


async def test_a_request_that_is_refused_harms_no_other_pool_and_no_reply_on_the_same_bus(
    make_pool: MakePool, make_daemon: MakeDaemon
) -> None:
    pool = make_pool()
    make_daemon(pool, worker=MINIMAL)
    endpoint = Endpoint()
    endpoint.add("echo", lambda request: request.body)
    rights = {
        "configure": "^(reply-|unicast|exclusive|broadcast)",
        "write": rf"^(amq\.default|reply-|unicast|broadcast|{pool.names.request_exchange})",
        "read": ".*",
    }
    pool.broker.management.put("permissions", pool.vhost, pool.users.client, body=rights)
    async with (
        AsyncBus(pool.client_uri) as bus,
        AsyncBusServer(bus, Target("maps", server="n"), [endpoint]) as server,
    ):
        allowed = AsyncPoolClient(bus, pool.names.pool, timeout=PATIENCE)
        refused = AsyncPoolClient(bus, f"hard{pool.names.pool}", timeout=PATIENCE)
        await allowed.call("LAX", b"x")

        async def refusals() -> None:
            for _ in range(20):
                with pytest.raises(AccessRefused):
                    await refused.cast("LAX", b"x")

        async def answers() -> None:
            for _ in range(100):
                assert (await allowed.call("LAX", b"x")).body == b"LAX|x"
                assert (await AsyncBusClient(bus).call(Target("maps"), "echo", b"y", timeout=PATIENCE)).body == b"y"

        await asyncio.gather(refusals(), answers())
        assert server.lost_replies == 0
        assert bus.connections == 1


async def test_a_header_that_amqp_cannot_carry_is_refused(make_pool: MakePool) -> None:
    pool = make_pool()
    async with AsyncBus(pool.client_uri) as bus:
        for header in (2**70, "caf\udce9"):
            with pytest.raises(Unencodable):
                await AsyncPoolClient(bus, pool.names.pool).cast("LAX", b"x", headers={"a": header})


async def test_a_full_queue_does_not_take_a_request(make_pool: MakePool, make_daemon: MakeDaemon) -> None:
    pool = make_pool()
    make_daemon(pool)
    queue = pool.names.request_queue("LAX")
    full = {"max-length": 1, "overflow": "reject-publish"}
    policy = {"pattern": f"^{re.escape(queue)}$", "definition": full, "priority": 100, "apply-to": "queues"}
    pool.broker.management.put("policies", pool.vhost, "full", body=policy)
    async with AsyncBus(pool.client_uri) as bus:
        client = AsyncPoolClient(bus, pool.names.pool, timeout=PATIENCE)
        await client.cast("LAX", b"x")
        await until_async(lambda: pool.depth(queue) == 1)
        refused = None
        for _ in range(5):
            try:
                await client.cast("LAX", b"x")
            except Nacked as error:
                refused = error
        assert refused is not None
        assert "its queue is full" in str(refused)


async def test_calls_survive_a_cut_connection(
    make_pool: MakePool,
    make_daemon: MakeDaemon,
    vhost: Vhost,
) -> None:
    pool = make_pool()
    make_daemon(pool, worker=MINIMAL)
    async with TcpProxy(vhost.broker.amqp_port) as proxy:
        uri = pool.client_uri.replace(f":{vhost.broker.amqp_port}/", f":{proxy.port}/")
        async with AsyncBus(uri) as bus:
            client = AsyncPoolClient(bus, pool.names.pool, timeout=PATIENCE)
            asked = [asyncio.create_task(client.call(f"K{number}", b"x")) for number in range(8)]
            await until_async(lambda: bus.senders == 1)
            proxy.cut()
            answers = await asyncio.gather(*asked)
            assert [one.body for one in answers] == [f"K{number}|x".encode() for number in range(8)]
            await until_async(lambda: bus.connections == 2)


def test_threads_call_a_pool_too(make_pool: MakePool, make_daemon: MakeDaemon) -> None:
    pool = make_pool()
    make_daemon(pool, worker=MINIMAL)
    with Bus(pool.client_uri) as bus:
        client = PoolClient(bus, pool.names.pool, timeout=PATIENCE)
        client.cast("LAX", b"x")
        assert client.call("LAX", b"x").body == b"LAX|x"
    with pytest.raises(ClientClosed):
        client.call("LAX", b"x")
