"""A call that raised takes nothing and is not sent later, whatever its arguments were, on a real broker."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from osrdyne_client import AsyncClient, Client, errors
from osrdyne_protocol.headers import X_PUBLISH_TIME
from testbed.peer import peer_of
from testbed.pool import Pool
from testbed.waiting import PATIENCE_SECONDS, until_async, until_in_thread
from tests.broker.test_client import connections

SLOTS = 4
MOST = 1000


class Odd(Mapping[str, Any]):
    """Headers that fail when they are read."""

    def __getitem__(self, name: str) -> Any:
        raise RuntimeError("odd")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("odd")

    def __len__(self) -> int:
        return 1


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


#: Keyword arguments of a call, and what it raises.
TIMES: Any = (math.nan, -math.inf, -1, 0, 0.0, True, "5", b"5", [], timedelta(seconds=5), complex(1, 1))
BODIES: Any = (None, "text", 5, [1], {})
LARGE: Any = (bytes(MOST + 1), memoryview(bytes(8 * MOST)).cast("d"))
KEYS: Any = (None, 5, ["42"], "a\0b", "\ud800", "x" * 256, b"\xff", memoryview(b"42"))
BAD: list[tuple[dict[str, Any], type[Exception]]] = [
    *(({"timeout": value}, errors.InvalidTimeout) for value in TIMES),
    *(
        ({"headers": value}, errors.Unencodable)
        for value in (
            [1],
            [("a", 1)],
            "text",
            7,
            {"a": object()},
            {"a": "\ud800"},
            {"\ud800": 1},
            {1: 2},
            {"a" * 256: 1},
            {"a": 2**70},
            {"a": math.nan},
            {"a": [math.inf]},
            {"CC": "queue"},
            nested(5000),
        )
    ),
    ({"headers": Odd()}, RuntimeError),
    *(({"body": value}, errors.Unencodable) for value in BODIES),
    *(({"body": value}, errors.BodyTooLarge) for value in LARGE),
    *(({"key": value}, errors.InvalidKey) for value in KEYS),
]


async def each(client: AsyncClient, connected: bool) -> None:
    """Make every bad call, of each kind; nothing of them may stay."""
    for given, kind in BAD:
        arguments: dict[str, Any] = {"key": "42", "body": b"bad", **given}
        for ask in (client.call, client.cast):
            with pytest.raises(kind):
                await ask(**arguments)
        for start in (client.submit, client.start_cast):
            with pytest.raises(kind):
                start(**arguments)
        assert client.is_connected is connected
        assert (client.slots_taken, client._dispatcher._casts) == (0, {}), given


async def test_bad_calls_take_no_slot_and_are_not_sent_by_the_next_connection(
    make_pool: Callable[..., Pool],
) -> None:
    pool = make_pool()
    name = "bad calls"
    async with (
        peer_of(pool, "42") as peer,
        AsyncClient(pool.client_uri, pool.settings.name, slots=SLOTS, name=name, max_body=MOST) as client,
    ):
        await each(client, connected=True)
        # A key that has proven to answer is sent to in another way.
        proven = asyncio.create_task(client.call("42", b"proven"))
        peer.reply(await peer.take(), b"")
        await proven
        await each(client, connected=True)
        for connection in await until_in_thread(lambda: connections(pool, name)):
            await asyncio.to_thread(pool.broker.management.delete, "connections", connection)
        await until_async(lambda: not client.is_connected)
        await each(client, connected=False)
        await until_async(lambda: client.is_connected)
        calls = [asyncio.create_task(client.call("42", b"good %d" % number)) for number in range(SLOTS)]
        requests = [await peer.take() for _ in calls]
        assert sorted(request.body for request in requests) == [b"good %d" % number for number in range(SLOTS)]
        for request in requests:
            peer.reply(request, b"")
        await asyncio.gather(*calls)
        assert peer.requests.empty()


async def test_threads_get_the_same_errors_and_lose_no_slot(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()

    def use() -> None:
        with Client(pool.client_uri, pool.settings.name, slots=1, max_body=MOST) as client:
            for given, kind in BAD:
                arguments: dict[str, Any] = {"key": "42", "body": b"bad", **given}
                for ask in (client.call, client.cast):
                    with pytest.raises(kind):
                        ask(**arguments)
                for start in (client.submit, client.start_cast):
                    with pytest.raises(kind):
                        start(**arguments).result(timeout=PATIENCE_SECONDS)
            assert client.call("42", b"good", timeout=math.inf).body == b"good"

    async with peer_of(pool, "42", lambda message: message.body):
        await asyncio.to_thread(use)


async def test_a_timeout_without_an_end_sends_no_deadline_and_waits_for_the_answer(
    make_pool: Callable[..., Pool],
) -> None:
    pool = make_pool()
    async with (
        peer_of(pool, "42") as peer,
        AsyncClient(pool.client_uri, pool.settings.name, slots=1, timeout=math.inf) as client,
    ):
        for given in ({}, {"timeout": math.inf}, {"timeout": 10**400}, {"timeout": 1e300}):
            call = asyncio.create_task(client.call("42", bytearray(b"question"), **given))  # type: ignore[arg-type]
            request = await peer.take()
            assert (request.body, request.properties.expiration) == (b"question", None)
            assert (request.properties.headers or {}).keys() == {X_PUBLISH_TIME}
            peer.reply(request, b"answer")
            assert (await call).body == b"answer"
        await client.cast("42", memoryview(b"cast"), timeout=math.inf)  # type: ignore[arg-type]
        assert (await peer.take()).body == b"cast"


@pytest.mark.parametrize("face", [AsyncClient, Client])
@pytest.mark.parametrize("timeout", [math.nan, -1, "5"])
def test_a_client_with_a_timeout_that_is_none_is_not_made(face: type[AsyncClient] | type[Client], timeout: Any) -> None:
    with pytest.raises(errors.InvalidTimeout, match=r"math.inf is a wait without an end"):
        face("amqp://user:secret@nowhere", "core", timeout=timeout)
