"""Workers over a WebSocket, frame by frame, as a client in any language sends them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from osrdyne_relay import CallFailed, NotCollected, Relay, Request, Stage
from testbed.redis import RedisServer
from testbed.waiting import PATIENCE_SECONDS, until_async
from tests.relay.http_nodes import GRANTS, TOKENS, Node, Raw, http_settings, noded, raw, write_access
from tests.relay.nodes import settings


@asynccontextmanager
async def met(redis: RedisServer, directory: Path, **serve: Any) -> AsyncIterator[tuple[Raw, Relay]]:
    """A node over HTTP, and another one that calls."""
    async with noded(redis, directory, serve=serve) as url, raw(url) as http, Relay(settings(redis)) as near:
        yield http, near


class Socket:
    """A WebSocket by hand."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def say(self, body: bytes = b"", **head: Any) -> None:
        await self.socket.send_bytes(json.dumps(head).encode() + b"\n" + body)

    async def hear(self, kind: str) -> tuple[dict[str, Any], bytes]:
        """The next frame, which is of this type."""
        message = await self.socket.receive(PATIENCE_SECONDS)
        assert message.type is aiohttp.WSMsgType.BINARY, message
        head, _, body = message.data.partition(b"\n")
        said = json.loads(head)
        assert said["type"] == kind, said
        return said, body

    async def closed(self) -> None:
        """Read until the node has closed the connection."""
        while (await self.socket.receive(PATIENCE_SECONDS)).type is aiohttp.WSMsgType.BINARY:
            pass

    async def serve(self, *endpoints: str, at_once: int = 1) -> None:
        await self.say(type="serve", endpoints=endpoints, at_once=at_once)
        await self.hear("serving")


@asynccontextmanager
async def socketed(http: Raw, who: str = "worker") -> AsyncIterator[Socket]:
    headers = {"Authorization": f"Bearer {TOKENS[who]}"}
    async with http.session.ws_connect(http.url + "/v1/socket", headers=headers) as socket:
        yield Socket(socket)


async def test_a_request_and_its_answer_are_a_frame_each(redis: RedisServer, tmp_path: Path) -> None:
    async with met(redis, tmp_path) as (http, near), socketed(http) as worker:
        await worker.serve("e", "maps/LAX")
        call = near.start("maps/LAX", Request(b"one\ntwo", headers={"x": "ä"}))
        head, body = await worker.hear("request")
        assert (head["endpoint"], head["headers"], body) == ("maps/LAX", {"x": "ä"}, b"one\ntwo")
        await worker.say(b"\n\0", type="response", id=head["id"], headers={"y": "ö"})
        assert (await worker.hear("settled"))[0]["id"] == head["id"]
        response = await call.response()
    assert (response.body, response.headers) == (b"\n\0", {"y": "ö"})


async def test_a_worker_gets_no_more_at_once_than_it_asked_for(redis: RedisServer, tmp_path: Path) -> None:
    async with met(redis, tmp_path) as (http, near), socketed(http) as worker:
        await worker.serve("e", at_once=2)
        calls = [asyncio.create_task(near.queue_and_wait("e", b"x")) for _ in range(4)]
        got = [(await worker.hear("request"))[0]["id"] for _ in range(2)]
        # The next frame is this one, and no third request.
        await worker.say(type="failure", id=got[0], reason="no")
        assert (await worker.hear("settled"))[0]["id"] == got[0]
        got.append((await worker.hear("request"))[0]["id"])
        # Nothing more, and what it has may be answered.
        await worker.serve()
        for answer in got[1:]:
            await worker.say(b"y", type="response", id=answer)
            await worker.hear("settled")
        left = near.start("e", b"x", pickup_timeout=0.2)
        with pytest.raises(NotCollected):
            await left.response()
        await until_async(lambda: sum(call.done() for call in calls) == 3)
        assert sum(call.done() and isinstance(call.exception(), CallFailed) for call in calls) == 1
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)


async def test_a_worker_hears_that_its_request_is_unwanted_and_has_room_again_once_it_has_ended_it(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with met(redis, tmp_path) as (http, near), socketed(http) as worker:
        await worker.serve("e")
        call = near.start("e", b"x")
        head, _ = await worker.hear("request")
        assert (await call.cancel()).stage == Stage.WHILE_RUNNING
        said, _ = await worker.hear("abandoned")
        assert (said["id"], said["code"]) == (head["id"], "Cancelled")
        following = near.start("e", b"next")
        await worker.say(b"late", type="response", id=head["id"])
        assert (await worker.hear("refused"))[0]["code"] == "Cancelled"
        head, body = await worker.hear("request")
        assert body == b"next"
        await worker.say(b"y", type="response", id=head["id"])
        assert (await following.response()).body == b"y"


async def test_a_worker_whose_connection_broke_may_answer_by_http(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http, Relay(settings(redis)) as near:
        call = near.start("e", b"x")
        async with socketed(http) as worker:
            await worker.serve("e")
            head, _ = await worker.hear("request")
        assert (await http.ask("worker", "POST", f"/v1/requests/{head['id']}/response", b"y"))[0] == 204
        assert (await call.response()).body == b"y"


async def test_a_request_of_a_worker_that_is_gone_with_its_connection_ends_and_does_not_run_again(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with (
        noded(redis, tmp_path, serve={"worker_gone_after": 0.3}) as url,
        raw(url) as http,
        Relay(settings(redis)) as near,
    ):
        call = near.start("e", b"x")
        async with socketed(http) as worker:
            await worker.serve("e")
            await worker.hear("request")
        async with socketed(http) as other:
            await other.serve("e")
            with pytest.raises(CallFailed, match="fell silent"):
                await call.response()
            following = near.start("e", b"next")
            assert (await other.hear("request"))[1] == b"next"
            await following.cancel()


async def test_a_connection_that_stays_keeps_its_request_for_as_long_as_it_takes(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with met(redis, tmp_path, worker_gone_after=0.1) as (http, near), socketed(http) as worker:
        await worker.serve("e")
        call = near.start("e", b"x")
        head, _ = await worker.hear("request")
        await asyncio.sleep(0.5)
        await worker.say(b"y", type="response", id=head["id"])
        assert (await call.response()).body == b"y"


async def test_a_request_that_was_given_back_goes_to_another_worker(redis: RedisServer, tmp_path: Path) -> None:
    async with met(redis, tmp_path) as (http, near), socketed(http) as one, socketed(http) as other:
        await one.serve("e")
        call = near.start("e", b"x")
        head, _ = await one.hear("request")
        await one.serve()
        await other.serve("e")
        await one.say(type="return", id=head["id"])
        await one.hear("settled")
        assert await other.hear("request") == (head, b"x")
        await other.say(b"y", type="response", id=head["id"])
        assert (await call.response()).body == b"y"


async def test_a_request_that_was_given_back_may_come_again_over_the_same_connection(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with met(redis, tmp_path) as (http, near), socketed(http) as worker:
        await worker.serve("e", at_once=2)
        for _ in range(5):
            call = near.start("e", b"x")
            head, _ = await worker.hear("request")
            await worker.say(type="return", id=head["id"])
            heard = {json.loads((await worker.socket.receive_bytes()).partition(b"\n")[0])["type"] for _ in range(2)}
            assert heard == {"settled", "request"}
            await call.cancel()
            await worker.hear("abandoned")
            await worker.say(type="failure", id=head["id"])
            await worker.hear("refused")


async def test_a_node_that_stops_says_so_and_takes_the_last_answers(redis: RedisServer, tmp_path: Path) -> None:
    node = Node(http_settings(redis, tmp_path))
    async with raw(await node.url()) as http, Relay(settings(redis)) as near, socketed(http) as worker:
        await worker.serve("e")
        call = near.start("e", b"x")
        head, _ = await worker.hear("request")
        node.stop()
        await worker.hear("stopping")
        await worker.say(b"y", type="response", id=head["id"])
        await worker.hear("settled")
        assert (await call.response()).body == b"y"
        await worker.closed()
    await node.task


async def test_a_change_of_its_rights_ends_a_workers_connection_and_no_others(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osrdyne_relay.http.access.FILE_CHECK_SECONDS", 0.02)
    async with met(redis, tmp_path) as (http, near), socketed(http) as worker, socketed(http, "other") as other:
        await other.serve("other")
        await worker.serve("e")
        write_access(tmp_path / "access.toml", {**GRANTS, "worker": {"serve": ["maps/*"]}})
        await worker.closed()
        call = near.start("other", b"x")
        await other.hear("request")
        await call.cancel()


async def test_what_a_worker_may_not_do_or_no_node_knows_ends_its_connection(
    redis: RedisServer, tmp_path: Path
) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"type": "serve", "endpoints": ["e", "other"]}, "AccessDenied"),
        ({"type": "serve", "endpoints": ["e"], "at_once": 257}, "TooMany"),
        ({"type": "serve", "endpoints": ["e"], "at_once": -1}, "InvalidCall"),
        ({"type": "serve", "endpoints": [""]}, "InvalidCall"),
        ({"type": "dance"}, "InvalidCall"),
        ({}, "InvalidCall"),
    ]
    async with noded(redis, tmp_path) as url, raw(url) as http:
        for head, code in wrong:
            async with socketed(http) as worker:
                await worker.say(**head)
                assert (await worker.hear("error"))[0]["code"] == code
                await worker.closed()
        async with socketed(http) as worker:
            await worker.socket.send_str("{}")
            assert (await worker.hear("error"))[0]["code"] == "InvalidCall"
            await worker.closed()


async def test_requests_of_others_are_as_unknown_as_those_that_never_were(redis: RedisServer, tmp_path: Path) -> None:
    async with met(redis, tmp_path) as (http, near), socketed(http) as worker, socketed(http, "other") as other:
        await worker.serve("e")
        call = near.start("e", b"x")
        head, _ = await worker.hear("request")
        said = []
        for number in (head["id"], "0" * 32, "no id"):
            await other.say(b"z", type="response", id=number)
            said.append({**(await other.hear("refused"))[0], "id": ""})
        assert said == [said[0]] * 3
        await worker.say(b"y", type="response", id=head["id"])
        assert (await call.response()).body == b"y"


async def test_strangers_and_clients_that_serve_nothing_get_no_socket(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http:
        for headers in ({}, {"Authorization": f"Bearer {TOKENS['caller']}"}):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.session.ws_connect(url + "/v1/socket", headers=headers)
            assert refused.value.status == 401
        assert (await http.ask("worker", "GET", "/v1/socket"))[0] == 400


async def test_a_connection_that_ends_leaves_nothing_at_the_node(redis: RedisServer, tmp_path: Path) -> None:
    async with noded(redis, tmp_path) as url, raw(url) as http:

        async def figures() -> set[str]:
            return {*(await http.ask("monitor", "GET", "/metrics"))[2].decode().splitlines()}

        for _ in range(5):
            async with socketed(http) as worker:
                await worker.serve("e", "maps/LAX", at_once=20)
        await until_async(lambda: _within(figures(), {"osrdyne_relay_sockets 0.0", "osrdyne_relay_polls 0.0"}))
        tasks = [task for task in asyncio.all_tasks() if task.get_name() == "WebSocket"]
        assert tasks == []


async def _within(found: Any, wanted: set[str]) -> bool:
    return bool(wanted <= await found)
