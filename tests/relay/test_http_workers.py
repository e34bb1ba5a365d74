"""Workers that poll over HTTP: each request is done once, or its caller hears why not."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from urllib.parse import SplitResult, quote, urlsplit

import pytest

from osrdyne_relay import Answer, CallFailed, Cancelled, Collected, NotCollected, Relay, Request, Stage
from osrdyne_runtime.serve import server
from testbed.redis import RedisServer
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.relay.http_nodes import TOKENS, Node, code_of, http_settings, noded, raw
from tests.relay.nodes import SlowClaims, serving, settings


async def test_a_worker_polls_and_answers_with_plain_http(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start("maps/LAX", Request(b"question", headers={"x-who": "мы"}))
        status, headers, body = await http.ask("worker", "POST", "/v1/poll?endpoint=maps%2FLAX")
        assert (status, body) == (200, b"question")
        assert json.loads(headers["Relay-Headers"]) == {"x-who": "мы"}
        request = headers["Relay-Request"]
        said = await http.ask(
            "worker", "POST", f"/v1/requests/{request}/response", b"answer", Relay_Headers='{"x-a": "\\u00e4"}'
        )
        assert said[0] == 204

        response = await call.response()
    assert (response.body, response.headers) == (b"answer", {"x-a": "ä"})


async def test_any_endpoint_can_be_polled(redis: RedisServer, tmp_path: Path) -> None:
    endpoint = "maps/ключ/../{a}:*?%2F+&=#\n b"
    async with noded(redis, tmp_path) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start(endpoint, b"x")
        request, _ = await http.poll("worker", quote(endpoint, safe=""))
        await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"y")

        assert (await call.response()).body == b"y"


async def test_a_poll_without_a_request_ends_empty(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http:
        status, _, body = await http.ask("worker", "POST", "/v1/poll?endpoint=e&wait=0.1")

    assert (status, body) == (204, b"")


async def test_a_worker_ends_its_poll_and_loses_no_request(redis: RedisServer, tmp_path: Path) -> None:
    name = "0" * 32
    async with noded(redis, tmp_path) as url, raw(url) as http:
        poll = asyncio.create_task(http.ask("worker", "POST", f"/v1/poll?endpoint=e&wait=60&poll={name}"))
        while not poll.done():
            # It may not have begun yet; and two at once do what one does.
            ends = [http.ask("worker", "DELETE", f"/v1/poll?poll={name}") for _ in range(2)]
            assert [status for status, _, _ in await asyncio.gather(*ends)] == [204, 204]
        assert (await poll)[0] == 204


async def test_a_failure_reaches_the_caller_with_its_reason(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"x")
        request, _ = await http.poll("worker", "e")
        await http.ask("worker", "POST", f"/v1/requests/{request}/failure", b"no map of this")

        with pytest.raises(CallFailed, match="no map of this"):
            await call.response()


async def test_a_request_that_a_worker_gives_back_goes_to_the_next_one(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"x")
        request, _ = await http.poll("worker", "e")
        assert (await http.ask("worker", "POST", f"/v1/requests/{request}/return"))[0] == 204
        assert await http.poll("worker", "e") == (request, b"x")
        await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"y")

        assert (await call.response()).body == b"y"


async def test_a_request_that_was_given_back_and_finds_no_worker_did_not_run(
    redis: RedisServer, tmp_path: Path
) -> None:
    brief = {"hold_for": 0.5}
    async with noded(redis, tmp_path, timings=brief) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"x")
        request, _ = await http.poll("worker", "e")
        await http.ask("worker", "POST", f"/v1/requests/{request}/return")

        with pytest.raises(NotCollected):
            await call.response()


async def test_what_does_not_pass_over_http_ends_its_call_and_holds_up_no_other(
    redis: RedisServer, tmp_path: Path
) -> None:
    store = {"directory": str(tmp_path / "streams")}
    file = tmp_path / "map"
    file.write_bytes(b"map")
    #: Each passes Redis, and is too long for a header of HTTP.
    streams, headers = {f"{number}-" + "n" * 250: file for number in range(64)}, {"x": "ä" * 5000}

    async def with_more(request: Collected) -> None:
        more = Answer(b"x", streams=streams) if request.body == b"streams" else Answer(b"x", headers, {"map": file})
        await core.apply_response(request.id, more)

    async with (
        noded(redis, tmp_path, streams=store) as url,
        raw(url) as http,
        Relay(settings(redis, streams=store)) as core,
    ):
        poll = asyncio.create_task(http.poll("worker", "e", wait=60))
        with pytest.raises(CallFailed, match="data streams"):
            await core.queue_and_wait("e", Request(b"x", streams=streams))
        with pytest.raises(CallFailed, match="headers"):
            await core.queue_and_wait("e", Request(b"x", headers=headers))
        call = core.start("e", b"y")
        request, body = await poll
        assert body == b"y"
        await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"z")
        assert (await call.response()).body == b"z"
        async with serving(core, "maps/LAX", with_more):
            for asked in (b"streams", b"headers"):
                status, _, said = await http.ask("caller", "POST", "/v1/call?endpoint=maps%2FLAX", asked)
                assert (status, code_of(said)) == (502, "CallFailed")
        await until_async(lambda: not [*(tmp_path / "streams").glob("??/*")])


async def test_a_poll_whose_connection_ended_during_the_collection_leaves_its_request_to_the_next(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowClaims(settings(redis))
    async with Relay(settings(redis)) as near:
        monkeypatch.setattr("osrdyne_relay.redis.client.RedisClient", lambda _: slow)
        async with noded(redis, tmp_path) as url, raw(url) as http:

            async def polled() -> bool:
                return b"osrdyne_relay_polls 0.0\n" not in (await http.ask("monitor", "GET", "/metrics"))[2]

            async with raw(url) as leaving:
                poll = asyncio.create_task(leaving.poll("worker", "e"))
                call = near.start("e", b"x")
                await slow.claimed.wait()
                poll.cancel()
                await asyncio.wait([poll])
            while await polled():
                pass
            slow.may_go_on.set()
            request, _ = await http.poll("worker", "e")
            await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"y")
            assert (await call.response()).body == b"y"


async def test_a_worker_that_dies_in_the_middle_ends_the_call_and_no_other_worker_gets_the_request(
    redis: RedisServer, tmp_path: Path
) -> None:
    brief = {"worker_gone_after": 0.5}
    async with noded(redis, tmp_path, serve=brief) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"x")
        request, _ = await http.poll("worker", "e")
        with pytest.raises(CallFailed, match="fell silent"):
            await call.response()

        assert (await http.ask("worker", "POST", "/v1/poll?endpoint=e&wait=0.1"))[0] == 204
        status, _, body = await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"late")
        assert (status, code_of(body)) == (404, "UnknownRequest")


@pytest.mark.full
async def test_a_worker_that_asks_whether_it_shall_go_on_may_take_long(redis: RedisServer, tmp_path: Path) -> None:
    brief = {"worker_gone_after": 3.0}
    async with noded(redis, tmp_path, serve=brief) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"x")
        request, _ = await http.poll("worker", "e")
        for _ in range(2):
            assert (await http.ask("worker", "GET", f"/v1/requests/{request}/news?wait=2"))[0] == 204
        await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"y")

        assert (await call.response()).body == b"y"


async def test_a_worker_hears_that_its_request_is_no_longer_wanted_and_its_answer_is_refused(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"x")
        request, _ = await http.poll("worker", "e")
        news = asyncio.create_task(http.ask("worker", "GET", f"/v1/requests/{request}/news"))
        assert (await call.cancel()).stage == Stage.WHILE_RUNNING
        status, _, body = await news
        assert (status, code_of(body)) == (200, "Cancelled")

        async def refused() -> bool:
            status, _, body = await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"late")
            assert (status, code_of(body)) == (409, "Cancelled")
            return True

        assert await refused()
        # The same later, when the node no longer has it in hand.
        await asyncio.sleep(1.2)
        assert await refused()


async def test_an_answer_that_is_too_large_is_refused_and_the_worker_may_say_so(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"x")
        request, _ = await http.poll("worker", "e")
        status, _, body = await http.ask("worker", "POST", f"/v1/requests/{request}/response", bytes(2_000_000))
        assert (status, code_of(body)) == (413, "TooLarge")
        await http.ask("worker", "POST", f"/v1/requests/{request}/failure", b"too large")
        with pytest.raises(CallFailed, match="too large"):
            await call.response()


async def test_a_request_that_was_under_way_when_the_last_node_stopped_has_an_answer(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_UNANSWERED_SECONDS", PATIENCE_SECONDS)
    node = Node(http_settings(redis, tmp_path))
    address = urlsplit(await node.url())
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(b"POST /v1/call?endpoint=e HTTP/1.1\r\nHost: x\r\n")
    await writer.drain()
    node.stop()
    await until_async(partial(_refused, address))
    writer.write(f"Authorization: Bearer {TOKENS['caller']}\r\nContent-Length: 1\r\n\r\nx".encode())

    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"NodeStopping"' in answer
    writer.close()
    await node.task


async def _refused(address: SplitResult) -> bool:
    try:
        _, writer = await asyncio.open_connection(address.hostname, address.port)
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        # A listener that closes resets who waits in its queue.
        return False
    writer.close()
    return False


async def test_an_endpoint_that_is_no_longer_polled_is_forgotten(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path, serve={"forget_after": 0.2}) as url, raw(url) as http:
        await http.ask("worker", "POST", "/v1/poll?endpoint=e&wait=0.1")
        await until_async(lambda: redis.run("PUBSUB", "NUMSUB", "test:{e}:pulse")[1] == 0)


async def test_a_node_that_stops_ends_polls_and_takes_the_answers_that_it_waits_for(
    redis: RedisServer, tmp_path: Path
) -> None:
    node = Node(http_settings(redis, tmp_path))
    async with raw(await node.url()) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"x")
        request, _ = await http.poll("worker", "e")
        poll = asyncio.create_task(http.ask("worker", "POST", "/v1/poll?endpoint=e&wait=60"))
        await until_async(lambda: redis.run("PUBSUB", "NUMSUB", "test:{e}:pulse")[1] == 1)
        node.stop()
        status, headers, body = await poll
        assert (status, code_of(body)) == (503, "NodeStopping")
        # Or the client would send its next request over a connection that ends with the node.
        assert headers["Connection"] == "close"
        assert (await http.ask(None, "GET", "/readyz"))[0] == 503
        assert (await http.ask("caller", "POST", "/v1/call?endpoint=e", b"z"))[0] == 503
        assert (await http.ask("worker", "POST", f"/v1/requests/{request}/response", b"y"))[0] == 204
        assert (await call.response()).body == b"y"
    await node.task


async def test_a_node_that_stops_fails_requests_that_are_not_answered_in_its_grace(
    redis: RedisServer, tmp_path: Path
) -> None:
    node = Node(http_settings(redis, tmp_path, serve={"grace": 0.2}))
    async with raw(await node.url()) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"x")
        await http.poll("worker", "e")
        node.stop()
        with pytest.raises(CallFailed, match="the serving node stops"):
            await call.response()
    await node.task


async def test_a_caller_whose_connection_ends_cancels_its_call(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http:
        caller = asyncio.create_task(http.ask("caller", "POST", "/v1/call?endpoint=e", b"x"))
        request, _ = await http.poll("worker", "e")
        caller.cancel()
        status, _, body = await http.ask("worker", "GET", f"/v1/requests/{request}/news")

    assert (status, code_of(body)) == (200, Cancelled.__name__)


async def test_one_request_in_hand_has_a_bounded_number_of_connections(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"x")
        request, _ = await http.poll("worker", "e")
        path = f"/v1/requests/{request}/news?wait=60"
        asked = [asyncio.create_task(http.ask("worker", "GET", path)) for _ in range(5)]
        (refused,), waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        status, _, body = refused.result()
        assert (status, code_of(body)) == (429, "TooMany")
        await call.cancel()
        assert [(await task)[0] for task in waiting] == [200] * 4


async def test_what_a_client_hears_of_an_outage_does_not_say_where_redis_is(
    private_redis: RedisServer, tmp_path: Path
) -> None:
    brief = {"retry_for": 0.1}
    async with noded(private_redis, tmp_path, timings=brief) as url, raw(url) as http:
        private_redis.kill()
        for who, path in (("caller", "/v1/call?endpoint=e"), ("worker", "/v1/poll?endpoint=e&wait=1")):
            status, _, body = await http.ask(who, "POST", path)
            assert (status, code_of(body)) == (503, "RedisAway")
            assert str(private_redis.port).encode() not in body
