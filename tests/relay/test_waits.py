"""Whatever becomes of the Redis of a node, what waits for it ends in its time: node, its clients, workers, command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_relay import Answer, RedisAway, Relay, RelayError
from osrdyne_relay.client import AsyncRelayClient, RelayClient
from osrdyne_relay.client.addresses import LOST_AFTER_TIMEOUT_SECONDS
from osrdyne_worker import Request
from testbed.in_time import in_time
from testbed.redis import RedisServer
from testbed.tcp_proxy import TcpProxy
from tests.relay.http_nodes import TOKENS, http_settings, working
from tests.relay.http_processes import NodeProcess
from tests.relay.nodes import settings
from tests.unit.runtime.commands_on_peers import SHORT_SECONDS

#: Seconds for which a transaction is tried again, without the time of the last answer.
RETRIES_SECONDS = 2.0
SHORT: dict[str, Any] = {
    "redis": {"answer_timeout": SHORT_SECONDS, "connect_timeout": SHORT_SECONDS},
    "timings": {"retry_for": RETRIES_SECONDS, "response_stays": 60.0},
}
AWAY, HALF_OPEN, STOPPED = "away", "half-open", "stopped"

faults = pytest.mark.parametrize("fault", [AWAY, HALF_OPEN, STOPPED])


class Way:
    """The way of a node to its Redis, and what breaks there."""

    def __init__(self, server: RedisServer, proxy: TcpProxy, address: Path) -> None:
        self.server, self._proxy, self._address = server, proxy, address

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a node that goes this way."""
        address = self.server.address_file.read_text().replace(f":{self.server.port}", f":{self._proxy.port}")
        self._address.write_text(address)
        self._address.chmod(0o600)
        return SHORT | {"redis": SHORT["redis"] | {"url_file": str(self._address)}}

    @asynccontextmanager
    async def broken(self, fault: str) -> AsyncIterator[None]:
        if fault == AWAY:
            self._proxy.cut(refuse=True)
        elif fault == HALF_OPEN:
            self._proxy.silence()
        else:
            self.server.stand_still()
        try:
            yield
        finally:
            if fault == STOPPED:
                self.server.go_on()


@pytest.fixture
async def way(private_redis: RedisServer, tmp_path: Path) -> AsyncIterator[Way]:
    async with TcpProxy(private_redis.port) as proxy:
        yield Way(private_redis, proxy, tmp_path / "redis-address")


@faults
async def test_each_operation_of_a_node_whose_redis_is_lost_ends_in_time(way: Way, fault: str) -> None:
    node = settings(way.server, **way.settings)
    async with Relay(node) as near, Relay(node) as far:
        calls = [near.start("e", b"before", timeout=60.0) for _ in range(5)]
        held = [await far.dequeue("e") for _ in range(5)]
        assert all(held)
        first, second, third, fourth = (request for request in held[:4] if request is not None)
        async with way.broken(fault):
            operations = (
                in_time(near.queue_and_wait("e", b"", timeout=SHORT_SECONDS), SHORT_SECONDS),
                near.polled("e"),
                near.ask_redis(),
                far.dequeue("e", wait=SHORT_SECONDS),
                far.apply_response(first.id, b"answer"),
                second.apply(Answer(b"answer")),
                third.fail("it broke"),
                fourth.give_back(),
                calls[4].cancel(),
            )

            results = await in_time(
                asyncio.gather(*operations, return_exceptions=True), RETRIES_SECONDS + 2 * SHORT_SECONDS
            )

            assert [result for result in results if not isinstance(result, RelayError | None)] == []
            assert sum(isinstance(result, RedisAway) for result in results) >= 4
            await in_time(asyncio.gather(near.close(), far.close()), CLOSE_SECONDS)
            await in_time(asyncio.gather(*(call.response() for call in calls), return_exceptions=True), 0.0)
            await in_time(asyncio.gather(*(call.ended() for call in calls)), 0.0)


async def hang(_: Request) -> bytes:
    await asyncio.Event().wait()
    return b""


def by_threads(url: str) -> tuple[Callable[[], Awaitable[Any]], Callable[[], Awaitable[Any]]]:
    threads = RelayClient(url, token=TOKENS["caller"])
    call = lambda: asyncio.to_thread(threads.call, "e", b"", timeout=SHORT_SECONDS)  # noqa: E731
    return call, lambda: asyncio.to_thread(threads.close)


@faults
async def test_what_asks_a_node_whose_redis_is_lost_ends_in_its_time_and_so_does_the_command(
    way: Way, tmp_path: Path, fault: str
) -> None:
    with NodeProcess(
        http_settings(way.server, tmp_path, serve={"grace": SHORT_SECONDS}, **way.settings), tmp_path
    ) as node:
        url = await node.url()
        client = AsyncRelayClient(url, token=TOKENS["caller"])
        call, close = by_threads(url)
        async with client, working(url, "e", hang, grace=0.0), way.broken(fault):
            for asked in (client.call("e", b"", timeout=SHORT_SECONDS), call()):
                with pytest.raises(RelayError) as caught:
                    await in_time(asked, SHORT_SECONDS + LOST_AFTER_TIMEOUT_SECONDS)
                assert isinstance(caught.value, RedisAway), repr(caught.value)
            await in_time(close(), CLOSE_SECONDS)
            status = await in_time(asyncio.to_thread(node.end), SHORT_SECONDS + CLOSE_SECONDS)
        assert status == 0


@faults
async def test_a_command_whose_redis_is_lost_as_it_starts_ends_when_it_is_asked_to(
    way: Way, tmp_path: Path, fault: str
) -> None:
    async with way.broken(fault):
        with NodeProcess(http_settings(way.server, tmp_path, **way.settings), tmp_path) as node:
            await node.url()
            assert await in_time(asyncio.to_thread(node.end), CLOSE_SECONDS) == 0
