"""What uses the relay, over a fork: it has connections of its own, or hears that it needs them, as does the parent."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from osrdyne_protocol.errors import OtherProcess
from osrdyne_relay import Relay
from osrdyne_relay.client import AsyncRelayClient, RelayClient
from osrdyne_relay.redis.client import RedisClient
from testbed.forked import in_fork
from testbed.redis import RedisServer
from tests.relay.http_nodes import TOKENS, noded, working
from tests.relay.nodes import serving, settings

CALLER = TOKENS["caller"]
EACH = 10


async def refused(*asked: Awaitable[Any]) -> int:
    """Return how many of these are refused because this is another process."""
    found = 0
    for process in asked:
        try:
            await process
        except OtherProcess:
            found += 1
    return found


def upper(request: Any) -> bytes:
    return bytes(request.body.upper())


async def test_forks_and_their_parent_call_at_once_by_one_client_and_each_has_its_own_answers(
    redis: RedisServer, tmp_path: Path
) -> None:
    def calls(client: RelayClient, name: str) -> list[bytes]:
        return [client.call("e", f"{name} {number}".encode(), timeout=60).body for number in range(EACH)]

    def named(name: str) -> list[bytes]:
        return [f"{name} {number}".upper().encode() for number in range(EACH)]

    forked, go = os.pipe(), os.pipe()

    def child(client: RelayClient, name: str) -> list[bytes]:
        os.write(forked[1], b"1")
        os.read(go[0], 1)
        found = calls(client, name)
        client.close()
        client.__exit__(None, None, None)
        return found

    def parent(client: RelayClient) -> list[bytes]:
        # Each fork has inherited the connection that rests.
        for _ in range(2):
            os.read(forked[0], 1)
        os.write(go[1], b"11")
        return calls(client, "parent")

    def drop(client: RelayClient) -> None:
        client.close()
        del client
        gc.collect()

    async with noded(redis, tmp_path) as url, working(url, "e", upper, at_once=4):
        with RelayClient(url, token=CALLER) as client:
            assert await asyncio.to_thread(calls, client, "before") == named("before")
            found: Any = await asyncio.gather(
                asyncio.to_thread(in_fork, lambda: child(client, "one")),
                asyncio.to_thread(in_fork, lambda: child(client, "two")),
                asyncio.to_thread(parent, client),
            )
            assert found == [named("one"), named("two"), named("parent")]
            await asyncio.to_thread(in_fork, lambda: drop(client))
            assert await asyncio.to_thread(calls, client, "after") == named("after")
    for process in (*forked, *go):
        os.close(process)


async def test_a_fork_of_an_asyncio_program_hears_that_it_needs_its_own_client(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with (
        noded(redis, tmp_path) as url,
        working(url, "e", upper),
        AsyncRelayClient(url, token=CALLER) as client,
    ):
        assert (await client.call("e", b"before", timeout=60)).body == b"BEFORE"

        async def child() -> tuple[int, bytes]:
            found = await refused(client.call("e", b"x", timeout=5))
            await client.__aexit__(None, None, None)
            async with AsyncRelayClient(url, token=CALLER) as own:
                return found, (await own.call("e", b"own", timeout=60)).body

        assert await asyncio.to_thread(in_fork, lambda: asyncio.run(child())) == (1, b"OWN")
        assert (await client.call("e", b"after", timeout=60)).body == b"AFTER"


async def test_a_fork_of_a_node_hears_that_it_needs_its_own_and_the_node_goes_on(redis: RedisServer) -> None:
    async with Relay(settings(redis)) as relay, serving(relay, "e"):
        assert (await relay.queue_and_wait("e", b"before")).body == b"BEFORE"

        async def child() -> tuple[int, bytes]:
            found = await refused(
                relay.queue_and_wait("e", b"x", timeout=5),
                relay.dequeue("e", wait=0),
                relay.apply_response("0" * 32, b"x"),
                relay.polled("e"),
                relay.ask_redis(),
                relay._redis.run(("PING",)),
                relay.__aenter__(),
            )
            await relay.close()
            await relay._redis.close()
            async with Relay(settings(redis)) as own:
                return found, (await own.queue_and_wait("e", b"own")).body

        assert await asyncio.to_thread(in_fork, lambda: asyncio.run(child())) == (7, b"OWN")
        assert (await relay.queue_and_wait("e", b"after")).body == b"AFTER"


def test_what_is_made_before_a_fork_may_be_used_in_it(redis: RedisServer) -> None:
    relay, alone = Relay(settings(redis)), RedisClient(settings(redis).redis)

    async def child() -> tuple[bytes, Any]:
        async with relay, serving(relay, "e"):
            found = (await relay.queue_and_wait("e", b"fork")).body, await alone.run(("PING",))
        await alone.close()
        return found

    assert in_fork(lambda: asyncio.run(child())) == (b"FORK", [b"PONG"])
