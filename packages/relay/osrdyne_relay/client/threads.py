"""The client for threads. The only module that imports urllib3."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from osrdyne_relay import wire
from osrdyne_relay.client.addresses import (
    BEYOND,
    CONNECT,
    STALL,
    TIDY,
    ClientIdentity,
    Nodes,
    call_of,
    cut_off,
    none_reached,
    not_sent,
    response_of,
    size_in,
    stream_of,
)
from osrdyne_relay.errors import InvalidCall, NodeLost, NodesAway, NodeStopping, StreamLost
from osrdyne_relay.keepalive import OPTIONS
from osrdyne_relay.messages import Request
from osrdyne_relay.redis.names import new_id
from osrdyne_relay.streams.base import CHUNK, Source, not_whole
from osrdyne_runtime.forks import Home, keep

#: Connections to a node that are kept for the next call. More are opened where more threads call.
_KEPT = 32


class Connections:
    """HTTP to nodes, from any number of threads. What is pickled or forked has connections of its own."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self._made: urllib3.PoolManager | None = None
        self._home = Home()

    def __reduce__(self) -> tuple[Any, ...]:
        return Connections, (self.nodes,)

    @property
    def _pool(self) -> urllib3.PoolManager:
        if not self._home.is_here:
            keep(self._made)
            self._made, self._home = None, Home()
        made, tls = self._made, self.nodes.tls
        if made is None or made.connection_pool_kw["ssl_context"] is not tls:
            made = self._made = urllib3.PoolManager(
                maxsize=_KEPT, retries=False, ssl_context=tls, socket_options=list(OPTIONS)
            )
        return made

    def ask(
        self, method: str, url: str, headers: dict[str, str], body: bytes | Iterable[bytes], within: urllib3.Timeout
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of an answer. Raises NodesAway where nothing was sent, and NodeLost."""
        with self._answer(method, url, headers, body, within, read=True) as answer:
            return answer.status, answer.headers, answer.data

    def chunks(self, url: str) -> Iterator[bytes]:
        """Give a body as it comes. Raises what the node answers instead; NodesAway where nothing was sent, NodeLost."""
        within = urllib3.Timeout(connect=CONNECT, read=BEYOND)
        with self._answer("GET", url, {}, b"", within, read=False) as answer:
            if answer.status != 200:
                raise wire.error_of(answer.status, answer.data)
            yield from answer.stream(CHUNK, decode_content=False)

    @contextmanager
    def _answer(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        body: bytes | Iterable[bytes],
        within: urllib3.Timeout,
        *,
        read: bool,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        try:
            answer = self._pool.request(
                method,
                url,
                headers={**headers, **self.nodes.authorization()},
                body=body,
                timeout=within,
                redirect=False,
                decode_content=False,
                preload_content=read,
            )
            whole = False
            try:
                yield answer
                whole = True
            finally:
                if not read:
                    # A connection with the rest of a body is of no use.
                    answer.release_conn() if whole else answer.close()
        except HTTPError as error:
            fault = self.nodes.certificate_fault(error)
            if fault or isinstance(error, NewConnectionError | ConnectTimeoutError):
                raise NodesAway(fault or str(error)) from error
            raise NodeLost(f"{NodeLost.__doc__} ({type(error).__name__})") from error

    def close(self) -> None:
        """End the connections that are kept; in a fork, only its own."""
        self._pool.clear()


class BlockingStreams:
    """The store of data streams that all nodes have, over HTTP, for threads. Any node will do."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def store(self, stream: str, chunks: Iterable[bytes]) -> int:
        """Write a stream; return its bytes. It can be read when this returns. Raises a RelayError."""
        failures: dict[str, object] = {}
        source = _Source(chunks)
        for url in self._connections.nodes.order():
            try:
                status, _, said = self._connections.ask(
                    "PUT",
                    stream_of(url, stream),
                    {"Content-Type": "application/octet-stream"},
                    source,
                    # While a body is sent, the first one counts.
                    urllib3.Timeout(connect=STALL, read=STALL),
                )
                return size_in(status, said)
            except (NodesAway, NodeStopping, NodeLost) as error:
                if source.failure is not None:
                    raise source.failure from None
                if source.begun or isinstance(error, NodeLost):
                    raise not_sent(error) from None
                failures[url] = error
        raise none_reached(failures)

    def read(self, stream: str) -> Iterator[bytes]:
        """Return its chunks, which are read when they are asked for. Raises StreamLost where it is not there."""
        failures: dict[str, object] = {}
        for url in self._connections.nodes.order():
            try:
                yield from self._connections.chunks(stream_of(url, stream))
            except (NodesAway, NodeStopping) as error:
                failures[url] = error
            except NodeLost:
                raise cut_off(stream) from None
            else:
                return
        raise none_reached(failures)

    def remove(self, stream: str) -> None:
        """Remove it. Does nothing where it is not there, or no node can be reached: then it expires."""
        for url in self._connections.nodes.order():
            with suppress(NodesAway, NodeLost):
                within = urllib3.Timeout(connect=TIDY, read=TIDY)
                self._connections.ask("DELETE", stream_of(url, stream), {}, b"", within)
                return


class BlockingStream:
    """A data stream that can be read lazily, more than once, until its call has ended: `for chunk in stream`."""

    def __init__(self, store: BlockingStreams, stream: str, size: int) -> None:
        self._store = store
        self.id = stream
        #: In bytes.
        self.size = size

    def __iter__(self) -> Iterator[bytes]:
        """Give the chunks. Raises StreamLost where they are not there, or not all."""
        got = 0
        for chunk in self._store.read(self.id):
            got += len(chunk)
            if got > self.size:
                break
            yield chunk
        if got != self.size:
            raise not_whole(self.id, got, self.size)

    def save(self, path: Path) -> None:
        """Write it to a file. Raises StreamLost as iterating does."""
        with path.open("wb") as file:
            for chunk in self:
                file.write(chunk)

    def remove(self) -> None:
        """Remove it from the store."""
        self._store.remove(self.id)


def stored_by(store: BlockingStreams, name: str, source: Source) -> BlockingStream:
    """Store a stream. Raises StreamLost, another RelayError, and what the source raises but for OSError."""
    stream = new_id()
    try:
        return BlockingStream(store, stream, store.store(stream, _chunks_of(source)))
    except OSError as error:
        raise StreamLost(f"data stream {name!r} cannot be stored: {error.strerror or error}") from error


def _chunks_of(source: Source) -> Iterator[bytes]:
    if isinstance(source, AsyncIterable):
        raise InvalidCall("chunks that are waited for are for asyncio: give a file or an iterable of bytes")
    if not isinstance(source, Path):
        yield from source
        return
    with source.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


class _Source:
    """Gives chunks, and notes whether it has begun, and what their source raises."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.begun = False
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        self.begun = True
        try:
            yield from filter(None, self._chunks)  # an empty one would end the body
        except Exception as error:
            self.failure = error
            raise


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

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


class RelayClient:
    """Calls endpoints over nodes, from any number of threads. `with RelayClient(url, token=…) as client:`."""

    def __init__(self, urls: str | Sequence[str], **identity: Unpack[ClientIdentity]) -> None:
        """`urls`: one node, or several that stand for each other. Raises SettingsError."""
        self._nodes = Nodes(urls, **identity)
        self._connections = Connections(self._nodes)
        self._streams = BlockingStreams(self._connections)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the connections that are kept."""
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
        path, headers, whole, lost_after = call_of(endpoint, request, timeout, pickup_timeout)
        within = urllib3.Timeout(connect=CONNECT, read=lost_after)
        written: dict[str, BlockingStream] = {}
        try:
            for name, source in whole.streams.items():
                written[name] = stored_by(self._streams, name, source)
            headers |= wire.dump_streams(written)
            return self._call(path, headers, whole.body, within)
        except NodeLost:
            raise  # the request may run
        except BaseException:  # by Ctrl-C, for example
            for stream in written.values():
                stream.remove()
            raise

    def _call(self, path: str, headers: dict[str, str], body: bytes, within: urllib3.Timeout) -> BlockingResponse:
        failures: dict[str, object] = {}
        for url in self._nodes.order():
            try:
                answer = self._connections.ask("POST", url + path, headers, body, within)
                response = response_of(*answer)
            except (NodesAway, NodeStopping) as error:
                failures[url] = error
            else:
                self._nodes.worked(url)
                notes = wire.load_streams(answer[1].get(wire.STREAMS_HEADER))
                streams = {name: BlockingStream(self._streams, one.id, one.size) for name, one in notes.items()}
                return BlockingResponse(response.body, response.headers, streams)
        raise none_reached(failures)
