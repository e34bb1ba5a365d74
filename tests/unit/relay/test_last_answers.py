"""What becomes of the answers of a worker that ends: their node takes them late, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from osrdyne_relay import wire
from osrdyne_relay.redis.names import new_id
from osrdyne_relay.worker import RelayWorker, service

TOKEN = "a-token-of-some-client-of-a-node"
GIVEN_UP = "answers are given up"


@dataclass
class SlowNode:
    """Gives one request by a poll, and takes its answer when `takes` is set."""

    requests: list[str] = field(default_factory=lambda: [new_id()])
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    takes: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def poll(self, _: web.Request) -> web.Response:
        if self.requests:
            return web.Response(body=b"", headers={wire.ID_HEADER: self.requests.pop()})
        await self.stopping.wait()
        return web.Response(status=204)

    async def end_poll(self, _: web.Request) -> web.Response:
        self.stopping.set()
        return web.Response(status=204)

    async def answer(self, _: web.Request) -> web.Response:
        self.asked.set()
        await self.takes.wait()
        return web.Response(status=204)


@pytest.fixture
async def node() -> SlowNode:
    return SlowNode()


@pytest.fixture
async def url(node: SlowNode) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post(wire.POLL, node.poll)
    app.router.add_delete(wire.POLL, node.end_poll)
    app.router.add_post(f"{wire.REQUESTS}/{{id}}/response", node.answer)
    server = TestServer(app)
    await server.start_server()
    yield str(server.make_url("")).rstrip("/")
    node.takes.set()
    node.stopping.set()
    await server.close()


async def served(url: str, node: SlowNode) -> asyncio.Task[None]:
    """A worker without grace whose stop comes while its answer is on its way."""
    stop = asyncio.Event()
    worker = RelayWorker(url, "e", lambda request: b"done", token=TOKEN, websocket=False, grace=0)
    serving = asyncio.create_task(worker.serve(stop))
    await node.asked.wait()
    stop.set()
    return serving


async def test_an_answer_that_is_done_reaches_its_node_although_that_takes_longer_than_a_second(
    url: str, node: SlowNode, caplog: pytest.LogCaptureFixture
) -> None:
    serving = await served(url, node)
    asyncio.get_running_loop().call_later(1.3, node.takes.set)
    await serving
    assert node.takes.is_set()
    assert GIVEN_UP not in caplog.text


async def test_answers_that_their_nodes_did_not_take_are_logged_with_their_number(
    url: str, node: SlowNode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LAST_ANSWERS_SECONDS", 0.05)
    await (await served(url, node))
    (said,) = [record for record in caplog.records if record.getMessage().startswith(GIVEN_UP)]
    assert vars(said)["answers"] == 1
