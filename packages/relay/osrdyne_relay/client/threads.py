"""The relay client for programs with threads: it runs the client for asyncio in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_relay.checking import checked_request
from osrdyne_relay.client.addresses import ClientIdentity, Nodes, cut_off
from osrdyne_relay.client.asynchronous import AsyncRelayClient
from osrdyne_relay.errors import InvalidCall, NodeLost
from osrdyne_relay.messages import Request
from osrdyne_relay.streams.base import Source, StoredStream, stored
from osrdyne_runtime.portal import Portal

T = TypeVar("T")

#: Given the asynchronous client, returns the coroutine that it shall run.
Work = Callable[[AsyncRelayClient], Coroutine[Any, Any, T]]


class _ProcessClient:
    """The client of one process while it is open, and the portal to the thread that runs it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.portal: Portal | None = None
        #: The client, and the finalizer that stops the portal.
        self.client: tuple[AsyncRelayClient, weakref.finalize[Any, Any]] | None = None

    @property
    def is_own_thread(self) -> bool:
        """Whether this is the thread of the loop. Asked before the lock is taken: its owner may wait for the loop."""
        return self.portal is not None and self.portal.is_own_thread


class Connections:
    """An asynchronous client behind a portal, from the first use to `close`. A pickled or forked copy has its own."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        #: By process id. A fork keeps what it inherits: to drop that would close connections that its parent uses.
        self._by_process = {os.getpid(): _ProcessClient()}

    @property
    def _here(self) -> _ProcessClient:
        found = self._by_process.get(os.getpid())
        # Several threads may come here first; all get the same.
        return found or self._by_process.setdefault(os.getpid(), _ProcessClient())

    def __reduce__(self) -> tuple[Any, ...]:
        return Connections, (self.nodes,)

    def run(self, work: Work[T], wanted: queue.SimpleQueue[_WantedChunk | None] | None = None) -> T:
        """Have the client do something, and wait for it. Raises NodeLost when this was closed meanwhile.

        Makes the chunks that `wanted` asks for, in this thread.

        Raises RuntimeError in the thread of the loop, where only a finalizer or the like can call it.
        """
        if self._here.is_own_thread:
            raise RuntimeError("this thread runs the loop of the relay client, and cannot wait for it")
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        if wanted is not None:
            future.add_done_callback(lambda _: wanted.put(None))
        try:
            portal = self._start(work, future)
            while wanted is not None and (chunk := wanted.get()) is not None:
                chunk.make()
            return portal.result(future)
        except BaseException:  # by Ctrl-C, for example
            future.cancel()
            raise

    def _start(self, work: Work[T], future: concurrent.futures.Future[T]) -> Portal:
        here = self._here
        with here.lock:
            if here.client is None:
                here.portal, client = Portal("relay client", NodeLost), AsyncRelayClient(self.nodes)
                here.portal.open(_until_calls_end(client))
                # Where this object is dropped without `close`. At the end of the program the thread ends anyway.
                stop = weakref.finalize(self, here.portal.stop)
                stop.atexit = False
                here.client = client, stop
            assert here.portal is not None
            here.portal.start(work(here.client[0]), future)
            return here.portal

    def begin(self, work: Work[object]) -> None:
        """Have an open client do something, and do not wait. For a thread that runs a loop, as a finalizer may."""
        here = self._here
        portal, client = here.portal, here.client
        if portal is not None and client is not None:
            with suppress(NodeLost):  # it is being closed
                portal.start(work(client[0]), concurrent.futures.Future())

    def close(self) -> None:
        """End the connections: those of calls in flight when these have ended. In a fork, only its own.

        Waits for the thread for `CLOSE_SECONDS` at most. Where a call is in flight, the thread goes on until its end.
        """
        here = self._here
        with here.lock:
            portal, client, here.client = here.portal, here.client, None
        if portal is not None and client is not None:
            client[1]()
            portal.ends(CLOSE_SECONDS)


@asynccontextmanager
async def _until_calls_end(client: AsyncRelayClient) -> AsyncIterator[None]:
    async with client:
        try:
            yield
        finally:
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others)


class _WantedChunk:
    """A chunk that the loop waits for, and the caller's thread makes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.chunk: concurrent.futures.Future[bytes | None] = concurrent.futures.Future()

    def make(self) -> None:
        """Make it; None stands for the end. An Exception goes to the call; others, as KeyboardInterrupt, are raised."""
        if self.chunk.set_running_or_notify_cancel():
            try:
                self.chunk.set_result(next(self._chunks, None))
            except Exception as error:  # noqa: BLE001 - it belongs to the call
                self.chunk.set_exception(error)


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _made_here(source: Source, wanted: queue.SimpleQueue[_WantedChunk | None]) -> Source:
    """Return a source whose chunks are made in the thread that reads `wanted`. Raises InvalidCall."""
    if isinstance(source, AsyncIterable):
        raise InvalidCall("chunks that are waited for are for asyncio: give a file or an iterable of bytes")
    return source if isinstance(source, Path) else _chunks(_each(source), wanted)


def _each(source: Iterable[bytes]) -> Iterator[bytes]:
    yield from filter(None, source)  # a generator, so that `iter(source)` too is called in the thread that reads


async def _chunks(chunks: Iterator[bytes], wanted: queue.SimpleQueue[_WantedChunk | None]) -> AsyncIterator[bytes]:
    while True:
        wanted.put(one := _WantedChunk(chunks))
        chunk = await asyncio.wrap_future(one.chunk)
        if chunk is None:
            return
        yield chunk


class BlockingStreams:
    """The store of data streams that all nodes have, over HTTP, for threads. Any node will do."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def store(self, name: str, source: Source) -> BlockingStream:
        """Store a stream. Raises a RelayError, and what the source raises; StreamLost in place of its OSError."""
        wanted: queue.SimpleQueue[_WantedChunk | None] = queue.SimpleQueue()
        made = _made_here(source, wanted)

        async def store(client: AsyncRelayClient) -> StoredStream:
            return (await stored(client.streams, {name: made}, []))[name]

        found = self._connections.run(store, wanted)
        return BlockingStream(self, found.id, found.size)

    def read(self, stream: str, size: int) -> Iterator[bytes]:
        """Return the chunks of a stream, which are read when they are asked for. Raises StreamLost."""
        reading: tuple[AsyncRelayClient, AsyncIterator[bytes]] | None = None

        async def next_chunk(client: AsyncRelayClient) -> bytes | None:
            nonlocal reading
            if reading is None:
                reading = client, aiter(StoredStream(client.streams, stream, size))
            if reading[0] is not client:  # which was closed meanwhile
                raise NodeLost
            return await anext(reading[1], None)

        try:
            while (chunk := self._connections.run(next_chunk)) is not None:
                yield chunk
        except NodeLost:
            raise cut_off(stream) from None

    def remove(self, stream: str) -> None:
        """Remove a stream. Does nothing where it is not there, or where no node can be reached: then it expires.

        Where a loop runs in this thread, as when a generator that reads the stream is collected, it does not wait.
        """

        def work(client: AsyncRelayClient) -> Coroutine[Any, Any, None]:
            return client.streams.remove(stream)

        if _runs_a_loop():
            self._connections.begin(work)
        else:
            self._connections.run(work)


class BlockingStream:
    """A data stream that can be read lazily, more than once, until its call has ended: `for chunk in stream`."""

    def __init__(self, store: BlockingStreams, stream: str, size: int) -> None:
        self._store = store
        self.id = stream
        #: In bytes.
        self.size = size

    def __iter__(self) -> Iterator[bytes]:
        """Give the chunks. Raises StreamLost where they are not there, or not all."""
        return self._store.read(self.id, self.size)

    def save(self, path: Path) -> None:
        """Write it to a file. Raises StreamLost as iterating does."""
        with path.open("wb") as file:
            for chunk in self:
                file.write(chunk)

    def remove(self) -> None:
        """Remove it from the store."""
        self._store.remove(self.id)


@dataclass(frozen=True, slots=True)
class BlockingResponse:
    """What a caller gets. Read its streams within `with response:`, which removes them at the end."""

    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, BlockingStream] = field(default_factory=dict)

    def close(self) -> None:
        """Remove the streams."""
        for stream in self.streams.values():
            stream.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RelayClient:
    """Calls endpoints over nodes, from any number of threads. `with RelayClient(url, token=…) as client:`."""

    def __init__(self, urls: str | Sequence[str], **identity: Unpack[ClientIdentity]) -> None:
        """`urls`: one node, or several that stand for each other. Raises SettingsError."""
        self._connections = Connections(Nodes(urls, **identity))
        self._streams = BlockingStreams(self._connections)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections and the thread: those of calls in flight with their calls. The next call opens others."""
        self._connections.close()

    def call(
        self,
        endpoint: str,
        request: Request | bytes,
        *,
        timeout: float | None = None,
        pickup_timeout: float | None = None,
    ) -> BlockingResponse:
        """Have a request run once by a worker that polls as `endpoint` at any node; return its response.

        `timeout`: seconds for all of it; None or `math.inf` for no end. `pickup_timeout`: seconds for which it may
        wait for a worker; without it, the node's setting. The time of data streams is not counted. Raises a RelayError:
        docs/reference/relay-errors.md has a table. An exception in this thread, as by Ctrl-C, ends the connection, and
        so cancels the call.
        """
        wanted: queue.SimpleQueue[_WantedChunk | None] = queue.SimpleQueue()
        checked = checked_request(request)
        checked = replace(
            checked, streams={name: _made_here(stream, wanted) for name, stream in checked.streams.items()}
        )
        response = self._connections.run(
            lambda client: client.call(endpoint, checked, timeout=timeout, pickup_timeout=pickup_timeout), wanted
        )
        streams = {
            name: BlockingStream(self._streams, stream.id, stream.size) for name, stream in response.streams.items()
        }
        return BlockingResponse(response.body, response.headers, streams)
