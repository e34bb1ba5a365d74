"""A session at nodes over TLS that stand still: when its calls end, where they go, and what is left of its sockets."""

from __future__ import annotations

import asyncio
import socket as socket_module
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import create_server, socket
from typing import Any

import psutil
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from osrdyne_relay.client import AsyncRelayClient
from osrdyne_relay.client.addresses import Nodes, timeout_at
from osrdyne_relay.errors import NodeLost, NodesAway
from osrdyne_relay.worker import RelayWorker
from testbed.authority import Authority
from testbed.waiting import PATIENCE_SECONDS, until_async

TOKEN = "a-token-of-some-client-of-a-node"


@dataclass
class StillNode:
    """Does the handshake of TLS, and nothing more: it answers neither a request nor the end of a connection."""

    listener: socket
    tls: ssl.SSLContext
    ca_file: Path

    def __post_init__(self) -> None:
        self.url = f"https://127.0.0.1:{self.listener.getsockname()[1]}"
        #: Connections whose handshake is done.
        self.connections: list[ssl.SSLSocket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):  # the listener was shut
            while True:
                connection, _ = self.listener.accept()
                with suppress(OSError):  # of a handshake that the other side gave up
                    self.connections.append(self.tls.wrap_socket(connection, server_side=True))

    def open(self) -> int:
        """How many sockets of this process are connected to it."""
        ours = psutil.Process().net_connections("tcp4")
        return [connection.raddr[1:] for connection in ours].count((self.listener.getsockname()[1],))

    def close(self) -> None:
        self.listener.shutdown(2)
        self._thread.join()
        for door in (self.listener, *self.connections):
            door.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StillNode]:
    authority = Authority(tmp_path / "ca")
    own = authority.issue("node", addresses=["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own.certfile, own.keyfile)
    made = StillNode(create_server(("127.0.0.1", 0)), tls, authority.cacertfile)
    yield made
    made.close()


async def test_a_client_whose_call_was_cancelled_leaves_no_connection_over_tls(node: StillNode) -> None:
    async with AsyncRelayClient(node.url, token=TOKEN, ca_file=node.ca_file) as client:
        call = asyncio.create_task(client.call("maps/LAX", b"", timeout=60))
        await until_async(lambda: node.connections)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert node.open() == 0


@pytest.mark.parametrize("websocket", [True, False])
async def test_a_worker_that_is_cancelled_leaves_no_connection_over_tls(node: StillNode, websocket: bool) -> None:
    worker = RelayWorker(
        node.url, "maps/LAX", lambda request: b"", token=TOKEN, ca_file=node.ca_file, websocket=websocket
    )
    serving = asyncio.create_task(worker.serve(asyncio.Event()))
    await until_async(lambda: node.connections)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert node.open() == 0


async def test_a_call_to_a_node_that_stands_still_ends_a_second_after_its_timeout(node: StillNode) -> None:
    async with asyncio.timeout(20.0), AsyncRelayClient(node.url, token=TOKEN, ca_file=node.ca_file) as client:
        with pytest.raises(NodeLost, match=r"did not answer within 1.2 s. The request may have run"):
            await client.call("e", b"", timeout=0.2)


@dataclass
class AnsweringNode:
    """Answers each call over plain HTTP at once, and notes its query."""

    url: str
    queries: list[dict[str, str]]


@pytest.fixture
async def answering() -> AsyncIterator[AnsweringNode]:
    async def answer(request: web.Request) -> web.Response:
        made.queries.append(dict(request.query))
        return web.Response(body=b"answered")

    app = web.Application()
    app.router.add_post("/v1/call", answer)
    server = TestServer(app)
    await server.start_server()
    made = AnsweringNode(str(server.make_url("")).rstrip("/"), [])
    yield made
    await server.close()


@contextmanager
def silent() -> Iterator[str]:
    """An address over TLS at which no handshake is ever answered."""
    with create_server(("127.0.0.1", 0)) as listener:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"


def client_of(*urls: str) -> AsyncRelayClient:
    """A client that tries nodes in this order."""
    nodes = Nodes(urls, token=TOKEN)
    nodes.worked(urls[0])
    return AsyncRelayClient(nodes)


@pytest.mark.parametrize("timeout", [0.4, 1.5])
async def test_a_node_that_is_tried_later_is_given_the_time_that_is_left(
    answering: AnsweringNode, timeout: float
) -> None:
    with silent() as first:
        async with client_of(first, answering.url) as client:
            assert (await client.call("e", b"", timeout=timeout)).body == b"answered"
    assert 0 < float(answering.queries[0]["timeout"]) < timeout


async def test_a_node_that_is_tried_first_is_given_the_timeout_of_the_call(answering: AnsweringNode) -> None:
    async with client_of(answering.url) as client:
        for timeout in (30, 0.25, None):
            await client.call("e", b"", timeout=timeout)
    assert [query.get("timeout") for query in answering.queries] == ["30.0", "0.25", None]


@pytest.mark.parametrize(
    ("within", "left"), [(4.0, 3.0), (2.0, 1.0), (1.0, 0.5), (0.0, 0.0), (-1.0, -0.5), (90.0, 3.0)]
)
def test_a_node_says_that_a_call_is_over_before_it_counts_as_lost(within: float, left: float) -> None:
    assert timeout_at(within, 3.0) == left


async def test_a_name_that_is_not_found_in_time_sends_nothing_and_the_next_node_is_called(
    answering: AnsweringNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, over = socket_module.getaddrinfo, threading.Event()

    def slow(host: str, *more: Any, **options: Any) -> Any:
        if host == "slow.test":
            over.wait(PATIENCE_SECONDS)
        return found(host, *more, **options)

    monkeypatch.setattr(socket_module, "getaddrinfo", slow)
    try:
        async with client_of("http://slow.test:1", answering.url) as client:
            assert (await client.call("e", b"", timeout=0.5)).body == b"answered"
        async with client_of("http://slow.test:1") as client:
            with pytest.raises(NodesAway, match=r"slow\.test"):
                await client.call("e", b"", timeout=0.2)
    finally:
        over.set()
