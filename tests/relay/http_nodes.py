"""Nodes over HTTP for tests: served in the test's process, with short times and an access file."""

from __future__ import annotations

import asyncio
import io
import json
import queue
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp

from osrdyne_relay import RelaySettings
from osrdyne_relay.http import serve
from osrdyne_relay.http.access import sha256_of
from osrdyne_relay.worker import RelayHandler, RelayWorker
from testbed.redis import RedisServer
from testbed.waiting import PATIENCE_SECONDS
from tests.relay.nodes import settings

#: Tokens by client. `worker` serves everything below `maps/`, and `caller` may call it.
TOKENS = {name: f"a-token-of-the-{name}-client" for name in ("worker", "other", "caller", "monitor")}
GRANTS: Mapping[str, Mapping[str, Any]] = {
    "worker": {"serve": ["maps/*", "e"]},
    "other": {"serve": ["other"], "call": ["other"]},
    "caller": {"call": ["maps/*", "e"]},
    "monitor": {"metrics": True},
}
#: Whether workers get requests over WebSockets, unless a test says otherwise.
WEBSOCKET = True
QUICK_SERVE = {"port": 0, "worker_gone_after": 120.0, "forget_after": 2.0, "grace": 60.0}


def write_access(file: Path, clients: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write an access file, in which JSON is TOML enough. Each client with a token of ours gets it."""
    lines = []
    for name, grant in clients.items():
        hashed = {"token_sha256": sha256_of(TOKENS[name])} if name in TOKENS else {}
        lines += [f"[clients.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in {**hashed, **grant}.items())]
    file.write_text("\n".join(lines))
    return file


class Node:
    """A node that is served in this process."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()
        self._listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(serve(settings, self._stop, listening=self._listening.set_result))

    async def url(self) -> str:
        """Its address, once it listens."""
        first: list[asyncio.Future[Any]] = [self.task, self._listening]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not self._listening.done():
            await self.task
        return self._listening.result()

    def stop(self) -> None:
        self._stop.set()


@asynccontextmanager
async def noded(
    server: RedisServer,
    directory: Path,
    *,
    grants: Mapping[str, Mapping[str, Any]] = GRANTS,
    serve: Mapping[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[str]:
    """Serve a node within the block; gives its address."""
    node = Node(http_settings(server, directory, grants=grants, serve=serve, **more))
    try:
        yield await node.url()
    finally:
        node.stop()
        await node.task


def http_settings(
    server: RedisServer,
    directory: Path,
    *,
    grants: Mapping[str, Mapping[str, Any]] = GRANTS,
    serve: Mapping[str, Any] | None = None,
    **more: Any,
) -> RelaySettings:
    """Settings of a node over HTTP."""
    file = write_access(directory / "access.toml", grants)
    return settings(server, serve={**QUICK_SERVE, "access_file": str(file), **(serve or {})}, **more)


class InThread:
    """A node in a thread of its own, for tests that block. `with InThread(settings) as node:`."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._listening: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = self._listening.get(timeout=PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        await serve(self._settings, self._stop, listening=self._listening.put)

    def tasks(self) -> Counter[str]:
        """How often each function runs as a task of its loop, without the one that counts."""

        async def count() -> Counter[str]:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            return Counter(getattr(task.get_coro(), "__qualname__", "?") for task in tasks)

        return asyncio.run_coroutine_threadsafe(count(), self._loop).result(PATIENCE_SECONDS)


class Raw:
    """HTTP by hand, as a client in any language does it."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self.session = url, session

    async def ask(
        self, who: str | None, method: str, path: str, body: bytes = b"", **headers: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of an answer."""
        shown = {"Authorization": f"Bearer {TOKENS.get(who, who)}"} if who is not None else {}
        sent = {**shown, **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with self.session.request(
            method, self.url + path, data=io.BytesIO(body) if body else None, headers=sent
        ) as answer:
            return answer.status, answer.headers, await answer.read()

    async def poll(self, who: str, endpoint: str, wait: float = 30.0) -> tuple[str, bytes]:
        """The id and the body of the next request."""
        status, headers, body = await self.ask(who, "POST", f"/v1/poll?endpoint={endpoint}&wait={wait:g}")
        assert status == 200, body
        return headers["Relay-Request"], body


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Raw]:
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None), max_field_size=65_536
    ) as session:
        yield Raw(url, session)


def code_of(body: bytes) -> str:
    """The code of an answer that is an error."""
    return str(json.loads(body)["code"])


@contextmanager
def working_in_thread(urls: str, endpoints: str, handler: RelayHandler, **options: Any) -> Iterator[None]:
    """Have a worker serve within the block, in a thread of its own, for tests that block."""
    stop = threading.Event()

    async def serve() -> None:
        async with working(urls, endpoints, handler, **options):
            await asyncio.to_thread(stop.wait)

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(asyncio.run, serve())
        try:
            yield
        finally:
            stop.set()
            serving.result()


@asynccontextmanager
async def working(
    urls: str | list[str], endpoints: str | list[str], handler: RelayHandler, **options: Any
) -> AsyncIterator[RelayWorker]:
    """Have a worker serve within the block."""
    worker = RelayWorker(urls, endpoints, handler, **{"token": TOKENS["worker"], "websocket": WEBSOCKET, **options})
    stop = asyncio.Event()
    task = asyncio.create_task(worker.serve(stop))
    try:
        yield worker
    finally:
        stop.set()
        await task
