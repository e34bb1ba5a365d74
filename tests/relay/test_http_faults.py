"""A node is killed, and Redis stands still, while workers and callers use two nodes: nothing is lost or run twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from osrdyne_relay import CallFailed, NodeLost, NotCollected, PeerGone, RelayError
from osrdyne_relay.client import AsyncRelayClient
from osrdyne_worker import Request
from testbed.redis import RedisServer
from tests.relay.http_nodes import TOKENS, http_settings, working
from tests.relay.http_processes import NodeProcess

#: At the same time, and for each of them one after the other.
CALLERS, CALLS = 10, 40


class Account:
    """What was run, and what became of each call."""

    def __init__(self) -> None:
        self.runs: Counter[bytes] = Counter()
        self.outcomes: dict[bytes, bytes | RelayError] = {}

    async def handle(self, request: Request) -> bytes:
        self.runs[request.body] += 1
        await asyncio.sleep(0.02)
        return request.body.upper()

    async def call(self, client: AsyncRelayClient, caller: int) -> None:
        for number in range(CALLS):
            body = b"%d-%d" % (caller, number)
            try:
                self.outcomes[body] = (await client.call("e", body, pickup_timeout=60)).body
            except RelayError as error:
                self.outcomes[body] = error

    def failed(self) -> set[type]:
        """Check that each call was answered once or ended with an error that is true; return the errors."""
        assert len(self.outcomes) == CALLERS * CALLS
        assert max(self.runs.values()) == 1
        for body, outcome in self.outcomes.items():
            if isinstance(outcome, bytes):
                assert (outcome, self.runs[body]) == (body.upper(), 1)
            elif isinstance(outcome, NotCollected):
                assert self.runs[body] == 0
        return {type(outcome) for outcome in self.outcomes.values() if isinstance(outcome, RelayError)}


@asynccontextmanager
async def at_two_nodes(
    server: RedisServer, directory: Path, *, websocket: bool
) -> AsyncIterator[tuple[list[NodeProcess], Account, asyncio.Task[object]]]:
    """Two nodes, workers and callers that may use both; gives the nodes, the account and the calls."""
    account = Account()
    for name in ("a", "b"):
        (directory / name).mkdir()
    with (
        NodeProcess(http_settings(server, directory / "a"), directory / "a") as a,
        NodeProcess(http_settings(server, directory / "b"), directory / "b") as b,
    ):
        urls = [await a.url(), await b.url()]
        async with (
            working(urls, "e", account.handle, at_once=3, grace=2, websocket=websocket),
            working(urls[::-1], "e", account.handle, at_once=3, grace=2, websocket=websocket),
            AsyncRelayClient(urls, token=TOKENS["caller"]) as one,
            AsyncRelayClient(urls[::-1], token=TOKENS["caller"]) as other,
        ):
            calls = asyncio.gather(*(account.call((one, other)[caller % 2], caller) for caller in range(CALLERS)))
            yield [a, b], account, asyncio.ensure_future(calls)


async def some(account: Account, number: int) -> None:
    """Wait until so many calls have ended."""
    async with asyncio.timeout(180):
        while len(account.outcomes) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.full
@pytest.mark.parametrize("websocket", [True, False])
async def test_a_node_that_is_killed_ends_the_calls_it_had_and_no_request_runs_twice(
    websocket: bool, redis: RedisServer, tmp_path: Path
) -> None:
    async with at_two_nodes(redis, tmp_path, websocket=websocket) as (nodes, account, calls):
        await some(account, 100)
        nodes[0].process.kill()
        # Its workers go on at the other node at once, although they still try to answer this one.
        await calls

    assert account.failed() <= {NodeLost, PeerGone, CallFailed}
    assert sum(isinstance(outcome, bytes) for outcome in account.outcomes.values()) > CALLERS * CALLS / 2


@pytest.mark.full
@pytest.mark.parametrize("websocket", [True, False])
async def test_a_redis_that_stands_still_for_a_while_costs_a_delay_only(
    websocket: bool, private_redis: RedisServer, tmp_path: Path
) -> None:
    async with at_two_nodes(private_redis, tmp_path, websocket=websocket) as (_, account, calls):
        await some(account, 100)
        private_redis.stand_still()
        await asyncio.sleep(8)
        private_redis.go_on()
        await calls

    assert account.failed() == set()


@pytest.mark.full
async def test_a_node_that_stops_in_good_order_costs_no_call(redis: RedisServer, tmp_path: Path) -> None:
    async with at_two_nodes(redis, tmp_path, websocket=True) as (nodes, account, calls):
        await some(account, 100)
        assert await asyncio.to_thread(nodes[0].end) == 0
        await calls

    assert account.failed() == set()
