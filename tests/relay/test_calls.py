"""Calls from node to node over a real Redis: answered once, cancelled, timed out, refused; no key without an end."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from osrdyne_relay import (
    Answer,
    CallerGone,
    CallFailed,
    CallTimedOut,
    Cancelled,
    Collected,
    InvalidCall,
    NotCollected,
    Relay,
    RelayClosed,
    Request,
    Stage,
    TooLarge,
    UnknownRequest,
    UnreadableResponse,
)
from osrdyne_relay.redis.client import RedisClient
from osrdyne_relay.redis.names import Names
from osrdyne_relay.redis.transactions import Lifetimes, Transactions
from testbed.redis import RedisServer
from testbed.waiting import until_async
from tests.relay.nodes import SilentRedis, SlowClaims, serving, settings

ID = "f" * 32
FOREVER = {"pickup_timeout": 600.0}


async def collected(node: Relay, endpoint: str) -> Collected:
    """The next request of an endpoint."""
    while (found := await node.dequeue(endpoint)) is None:
        pass
    return found


async def test_a_caller_on_one_node_reaches_a_worker_on_another(redis: RedisServer) -> None:
    async with Relay(settings(redis)) as near, Relay(settings(redis)) as far, serving(far, "maps/LAX"):
        response = await near.queue_and_wait("maps/LAX", Request(b"question", headers={"x-who": "me"}))

    assert response.body == b"QUESTION"


async def test_headers_travel_both_ways_and_any_endpoint_and_body_is_carried(redis: RedisServer) -> None:
    endpoint, body = "ключ/{a}:*?\n b", bytes(range(256)) * 100

    async def echo(request: Collected) -> None:
        await far.apply_response(
            request.id, Answer(request.body, headers={**request.headers, "from": request.endpoint})
        )

    async with Relay(settings(redis)) as near, Relay(settings(redis)) as far, serving(far, endpoint, echo):
        response = await near.queue_and_wait(endpoint, Request(body, headers={"ä": "ö"}))

    assert response.body == body
    assert response.headers == {"ä": "ö", "from": endpoint}


async def test_each_of_many_requests_is_run_once_by_one_of_several_nodes(redis: RedisServer) -> None:
    runs: Counter[bytes] = Counter()

    async def note(request: Collected) -> bytes:
        runs[request.body] += 1
        return request.body

    bodies = [b"%d" % number for number in range(200)]
    async with (
        Relay(settings(redis)) as near,
        Relay(settings(redis)) as one,
        Relay(settings(redis)) as other,
        serving(one, "e", note, workers=4),
        serving(other, "e", note, workers=4),
    ):
        answers = await asyncio.gather(*(near.queue_and_wait("e", body) for body in bodies))

    assert [answer.body for answer in answers] == bodies
    assert runs == Counter(bodies)


async def test_all_calls_are_answered_where_every_pulse_is_lost(redis: RedisServer) -> None:
    node = settings(redis)
    async with (
        Relay(node, redis=SilentRedis(node)) as near,
        Relay(node, redis=SilentRedis(node)) as far,
        serving(far, "e", workers=4),
    ):
        answers = await asyncio.gather(*(near.queue_and_wait("e", b"x%d" % n) for n in range(40)))

    assert [answer.body for answer in answers] == [b"X%d" % n for n in range(40)]


async def test_a_request_that_no_worker_collects_ends_with_an_error_and_is_never_run(redis: RedisServer) -> None:
    async with Relay(settings(redis)) as near, Relay(settings(redis)) as far:
        with pytest.raises(NotCollected):
            await near.queue_and_wait("e", b"x", pickup_timeout=0.2)

        assert await far.dequeue("e", wait=0.3) is None


async def test_cancelling_says_how_far_the_call_had_come(redis: RedisServer) -> None:
    async with Relay(settings(redis, timings=FOREVER)) as near, Relay(settings(redis)) as far:
        waiting = near.start("e", b"x")
        assert (await waiting.cancel()).stage == Stage.NEVER_COLLECTED
        assert await far.dequeue("e", wait=0.3) is None

        running = near.start("e", b"y")
        request = await collected(far, "e")
        assert (await running.cancel()).stage == Stage.WHILE_RUNNING
        assert isinstance(await request.wait_abandoned(), Cancelled)
        with pytest.raises(Cancelled):
            await request.apply(Answer(b"late"))

        finished = near.start("e", b"z")
        request = await collected(far, "e")
        await far.apply_response(request.id, b"Z")
        assert (await finished.response()).body == b"Z"
        cancellation = await finished.cancel()
        assert cancellation.stage == Stage.FINISHED_BEFORE
        assert cancellation.response is not None
        assert cancellation.response.body == b"Z"


async def test_a_collected_request_is_abandoned_when_its_caller_is_cancelled_though_pulses_are_lost(
    redis: RedisServer,
) -> None:
    node = settings(redis, timings=FOREVER)
    async with Relay(node, redis=SilentRedis(node)) as near, Relay(node, redis=SilentRedis(node)) as far:
        caller = asyncio.create_task(near.queue_and_wait("e", b"x"))
        request = await collected(far, "e")
        caller.cancel()

        assert isinstance(await request.wait_abandoned(), Cancelled)


async def test_a_call_that_takes_too_long_is_cancelled_and_says_so(redis: RedisServer) -> None:
    async with Relay(settings(redis)) as near, Relay(settings(redis)) as far:
        with pytest.raises(CallTimedOut) as waiting:
            await near.queue_and_wait("e", b"x", timeout=0.2)
        call = asyncio.create_task(near.queue_and_wait("e", b"x", timeout=1))
        request = await collected(far, "e")
        with pytest.raises(CallTimedOut) as running:
            await call

        assert isinstance(await request.wait_abandoned(), Cancelled)
    assert (waiting.value.stage, running.value.stage) == (Stage.NEVER_COLLECTED, Stage.WHILE_RUNNING)


async def test_a_node_that_cannot_answer_says_so_to_the_caller(redis: RedisServer) -> None:
    async with Relay(settings(redis)) as near, Relay(settings(redis)) as far:
        failing = near.start("e", b"x")
        await (await collected(far, "e")).fail("the worker said no")
        with pytest.raises(CallFailed, match="the worker said no"):
            await failing.response()

        given_back = near.start("e", b"x")
        await (await collected(far, "e")).give_back()
        with pytest.raises(NotCollected):
            await given_back.response()

        large = near.start("e", b"x")
        request = await collected(far, "e")
        with pytest.raises(TooLarge):
            await far.apply_response(request.id, b"x" * 2_000_000)
        with pytest.raises(CallFailed, match="too large"):
            await large.response()


async def test_what_cannot_be_sent_is_refused_at_once(redis: RedisServer) -> None:
    async with Relay(settings(redis)) as near:
        with pytest.raises(TooLarge):
            await near.queue_and_wait("e", b"x" * 2_000_000)
        with pytest.raises(InvalidCall):
            await near.queue_and_wait("e", Request(headers={"": "x"}))
        with pytest.raises(InvalidCall):
            await near.queue_and_wait("e", Request(headers={"\udc80": "x"}))
        for endpoint in ("", "x" * 600, "a\0b", "\udc80"):
            with pytest.raises(InvalidCall):
                near.start(endpoint, b"x")
        with pytest.raises(UnknownRequest):
            await near.apply_response("0" * 32, b"x")
    assert redis.run("KEYS", "*:call:*") == []


async def test_a_request_goes_to_the_next_worker_when_the_one_it_was_collected_for_is_gone(redis: RedisServer) -> None:
    node = settings(redis)
    slow = SlowClaims(node)
    async with Relay(node) as near, Relay(node, redis=slow) as far:
        leaving = asyncio.create_task(far.dequeue("e"))
        call = near.start("e", b"x")
        await slow.claimed.wait()
        leaving.cancel()
        await asyncio.wait([leaving])
        slow.may_go_on.set()
        request = await collected(far, "e")
        await request.apply(Answer(b"y"))

        assert (await call.response()).body == b"y"


async def test_a_node_that_closes_ends_its_calls_and_those_that_it_serves(redis: RedisServer) -> None:
    async with Relay(settings(redis)) as near:
        async with Relay(settings(redis)) as far:
            served = near.start("e", b"x")
            await collected(far, "e")
        with pytest.raises(CallFailed, match="the serving node stops"):
            await served.response()

    async with Relay(settings(redis)) as far:
        async with Relay(settings(redis)) as near:
            call = near.start("e", b"x")
            request = await collected(far, "e")
        with pytest.raises(RelayClosed):
            await call.response()
        with pytest.raises(RelayClosed):
            near.start("e", b"x")
        assert isinstance(await request.wait_abandoned(), CallerGone)


async def test_a_response_that_cannot_be_read_is_an_error(redis: RedisServer) -> None:
    node = settings(redis, timings=FOREVER)
    async with Relay(node, redis=SilentRedis(node)) as near, Relay(settings(redis)) as far:
        call = near.start("e", b"x")
        request = await collected(far, "e")
        redis.run("HSETNX", f"test:{{e}}:call:{request.id}", "response", "OR9 of a later version")
        with pytest.raises(UnreadableResponse, match="OR9"):
            await call.response()


async def test_every_key_has_a_time_to_live_at_every_moment(redis: RedisServer) -> None:
    seen: set[str] = set()

    def look() -> None:
        for key in redis.run("KEYS", "*"):
            # -1 is a key that stays; -2 is one that has gone meanwhile.
            assert redis.run("PTTL", key) != -1, key
            seen.add(key.decode().split(":")[2])

    async with Relay(settings(redis)) as near, Relay(settings(redis)) as far:
        call = near.start("e", b"x")
        await until_async(lambda: redis.run("DBSIZE") == 3)
        look()
        request = await collected(far, "e")
        look()
        await until_async(lambda: redis.run("HGET", f"test:{{e}}:call:{call.id}", "server"))
        look()
        assert 1_100_000 < redis.run("PTTL", f"test:{{e}}:call:{call.id}") <= 1_200_000
        await request.apply(Answer(b"y"))
        look()
        await call.response()
        await until_async(lambda: redis.run("HGET", f"test:{{e}}:call:{call.id}", "over"))
        look()
        for cancelled in ("e", "f"):
            await near.start(cancelled, b"x").cancel()
            look()
        with pytest.raises(NotCollected):
            await near.queue_and_wait("g", b"x", pickup_timeout=0.1)
        look()
        waits = near.start("h", b"x", pickup_timeout=100)
        await until_async(lambda: redis.run("EXISTS", f"test:{{h}}:call:{waits.id}"))
        assert 215_000 < redis.run("PTTL", f"test:{{h}}:call:{waits.id}") <= 220_000
        assert 86_000_000 < redis.run("PTTL", "test:{h}:waiting") <= 86_400_000
    look()
    assert seen == {"waiting", "life", "call", "polled"}


async def test_a_call_that_has_ended_leaves_neither_request_nor_response_in_redis(redis: RedisServer) -> None:
    async with Relay(settings(redis)) as near, Relay(settings(redis)) as far, serving(far, "e"):
        call = near.start("e", b"x")
        await call.response()
        await until_async(lambda: redis.run("HGET", f"test:{{e}}:call:{call.id}", "over"))

        left = set(redis.run("HKEYS", f"test:{{e}}:call:{call.id}"))
        assert not left & {b"request", b"response"}
        assert redis.run("LLEN", "test:{e}:waiting") == 0
        assert redis.run("PTTL", f"test:{{e}}:call:{call.id}") <= 120_000


async def test_a_caller_that_has_not_heard_of_the_collection_does_not_shorten_its_requests_life(
    redis: RedisServer,
) -> None:
    made = Transactions(Names("test"), Lifetimes())
    key = f"test:{{e}}:call:{ID}"
    client = RedisClient(settings(redis).redis)
    try:
        await client.run(*made.enter("e", ID, b"x", 10.0))
        assert 125_000 < redis.run("PTTL", key) <= 130_000
        await client.run(*made.claim("e", ID, "token"))
        for late in (made.caller_beat("e", ID, 1, 9.0), made.enter("e", ID, b"x", 10.0)):
            await client.run(*late)
            assert 1_190_000 < redis.run("PTTL", key) <= 1_200_000
        # A beat that makes the hash again, after a loss, gives it an end, too.
        redis.run("DEL", key)
        await client.run(*made.caller_beat("e", ID, 2, 9.0))
        assert 120_000 < redis.run("PTTL", key) <= 129_000
    finally:
        await client.close()
