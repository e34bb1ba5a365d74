"""A call over the relay that raised has taken, stored and sent nothing, whatever its arguments were."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from osrdyne_relay import InvalidCall, Relay, Request, TooLarge
from osrdyne_relay.client import AsyncRelayClient, RelayClient
from osrdyne_relay.worker import RelayWorker
from testbed.redis import RedisServer
from testbed.waiting import until, until_async
from tests.relay.http_nodes import TOKENS, InThread, http_settings, noded, working
from tests.relay.nodes import serving, settings
from tests.relay.places import Directory

CALLER = TOKENS["caller"]
#: No node listens there: a caller that gets the error of a bad argument has sent nothing.
NOWHERE = "http://127.0.0.1:1"


BAD_BODIES: Any = (None, "text", 5)
BAD_HEADERS: Any = (
    *([1], "text", 7, {"a": 1}, {"a": b"b"}, {"a": None}, {1: "a"}),
    *({"a": "\ud800"}, {"\ud800": "a"}, {"a": {"b": {}}}, {"": "a"}, {"a" * 257: "a"}),
    *({"a": "x" * 16_385}, {str(number): "x" for number in range(65)}),
)
BAD_STREAMS: Any = (
    *([1], 7, {"a": None}, {"a": b"bytes"}, {"a": "text"}, {"a": 5}, {1: []}, {"": []}, {"\ud800": []}),
    {str(number): [] for number in range(65)},
)


class SourceRead(Exception):
    """A source of a data stream was read."""


class UnreadSource:
    """A source that must not be read."""

    def __iter__(self) -> Iterator[bytes]:
        raise SourceRead


def bad_requests() -> list[Any]:
    """Return what is not a request that can be sent. Each has a stream, which must not be read."""
    streams: dict[str, Any] = {"map": UnreadSource()}
    made: Any = Request
    return [
        *(None, "text", 5, ["list"], {"body": b""}),
        *(made(value, streams=streams) for value in BAD_BODIES),
        *(made(b"", headers=value, streams=streams) for value in BAD_HEADERS),
        *(made(b"", streams=value) for value in BAD_STREAMS),
    ]


BAD_TIMES: Any = (math.nan, -math.inf, -1, 0, True, "5", b"5", [], timedelta(seconds=5))
BAD_CALLS: list[Mapping[str, Any]] = [
    *({"timeout": value} for value in BAD_TIMES),
    *({"pickup_timeout": value} for value in (*BAD_TIMES, math.inf, 1e9)),
    *({"endpoint": value} for value in (None, 5, b"e", ["e"], "", "a\0b", "\ud800", "x" * 513)),
]


def bad_calls() -> Iterator[Mapping[str, Any]]:
    good: dict[str, Any] = {"endpoint": "e", "request": Request(b"", streams={"map": UnreadSource()})}
    for given in BAD_CALLS:
        yield {**good, **given}
    for request in bad_requests():
        yield {**good, "request": request}


async def test_a_bad_call_by_redis_takes_nothing_and_leaves_nothing(redis: RedisServer, tmp_path: Path) -> None:
    store = Directory(tmp_path / "streams")
    async with Relay(settings(redis, streams=store.settings)) as relay:
        tasks = len(relay._node.tasks)
        for given in bad_calls():
            with pytest.raises((InvalidCall, TooLarge)):
                await relay.queue_and_wait(**given)
        with pytest.raises(TooLarge, match="data stream"):
            await relay.queue_and_wait("e", Request(bytes(2**20), streams={"map": UnreadSource()}))
        for wait in (math.nan, -1, "5", True, None):
            with pytest.raises(InvalidCall, match="wait="):
                await relay.dequeue("e", wait=wait)  # type: ignore[arg-type]
        assert (relay._node.calls, relay._inboxes, len(relay._node.tasks)) == ({}, {}, tasks)
        assert (redis.run("KEYS", "*"), store.files()) == ([], [])
        # And a call without an end is one without a timeout.
        async with serving(relay, "e"):
            for timeout in (None, math.inf, 10**400):
                assert (await relay.queue_and_wait("e", bytearray(b"x"), timeout=timeout)).body == b"X"  # type: ignore[arg-type]


async def test_clients_refuse_a_bad_call_before_they_send_anything() -> None:
    async with AsyncRelayClient(NOWHERE, token=CALLER) as client:
        for given in bad_calls():
            with pytest.raises((InvalidCall, TooLarge)):
                await client.call(**given)
    with RelayClient(NOWHERE, token=CALLER) as threads:
        for given in bad_calls():
            with pytest.raises((InvalidCall, TooLarge)):
                threads.call(**given)


@pytest.mark.parametrize(
    "given", [{"threads": -1}, {"threads": math.nan}, {"grace": -1}, {"grace": math.nan}, {"at_once": 0}]
)
def test_a_worker_with_numbers_that_cannot_be_is_not_made(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall):
        RelayWorker(NOWHERE, "e", lambda _: b"", **given)


async def test_a_call_over_http_without_an_end_is_answered(redis: RedisServer, tmp_path: Path) -> None:
    def upper(request: Any) -> bytes:
        return bytes(request.body.upper())

    def threaded(url: str) -> bytes:
        with RelayClient(url, token=CALLER) as client:
            return client.call("e", memoryview(b"x"), timeout=math.inf).body  # type: ignore[arg-type]

    async with (
        noded(redis, tmp_path) as url,
        working(url, "e", upper),
        AsyncRelayClient(url, token=CALLER) as client,
    ):
        assert (await client.call("e", b"x", timeout=math.inf)).body == b"X"
        assert await asyncio.to_thread(threaded, url) == b"X"


async def test_a_caller_that_is_cancelled_between_its_streams_leaves_none(redis: RedisServer, tmp_path: Path) -> None:
    store = Directory(tmp_path / "streams")
    reached = asyncio.Event()

    async def waits() -> AsyncIterator[bytes]:
        reached.set()
        await asyncio.Event().wait()
        yield b""

    async with noded(redis, tmp_path, streams=store.settings) as url, AsyncRelayClient(url, token=CALLER) as client:
        call = asyncio.create_task(client.call("e", Request(b"", streams={"first": [b"abc"], "second": waits()})))
        await reached.wait()
        assert store.files()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until_async(lambda: not store.files())


def test_a_thread_that_is_interrupted_between_its_streams_leaves_none(redis: RedisServer, tmp_path: Path) -> None:
    store = Directory(tmp_path / "streams")

    class InterruptedSource:
        def __iter__(self) -> Iterator[bytes]:
            assert store.files()
            raise KeyboardInterrupt

    with (
        InThread(http_settings(redis, tmp_path, streams=store.settings)) as node,
        RelayClient(node.url, token=CALLER) as client,
    ):
        with pytest.raises(KeyboardInterrupt):
            client.call("e", Request(b"", streams={"first": [b"abc"], "second": InterruptedSource()}))
        until(lambda: not store.files())
