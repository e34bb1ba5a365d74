"""The client for asyncio, and the session that workers use, too. Only this and the node import aiohttp."""

from __future__ import annotations

import asyncio
import dataclasses
import io
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar, Unpack

import aiohttp

from osrdyne_relay import wire
from osrdyne_relay.client.addresses import (
    CONNECT_SECONDS,
    LOST_AFTER_TIMEOUT_SECONDS,
    STREAM_REMOVAL_SECONDS,
    STREAM_SILENCE_SECONDS,
    STREAM_STALL_SECONDS,
    ClientIdentity,
    Nodes,
    call_of,
    cut_off,
    none_reached,
    not_sent,
    response_of,
    size_in,
    stream_of,
    timeout_at,
)
from osrdyne_relay.client.sockets import Sockets
from osrdyne_relay.errors import AccessDenied, NodeFailed, NodeLost, NodesAway, NodeStopping, RelayError, TooMany
from osrdyne_relay.messages import Request, Response
from osrdyne_relay.streams.base import CHUNK, StoredStream, stored
from osrdyne_runtime.forks import OwnerProcess, keep

T = TypeVar("T")

#: Seconds between two pings of a WebSocket.
_PING_SECONDS = 30.0
#: What a node says instead of an upgrade to a WebSocket, by its status; and what says that nothing was sent.
_NOT_UPGRADED: dict[int, type[RelayError]] = {401: AccessDenied, 429: TooMany, 503: NodeStopping}
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


def _timeout(connect: float, silence: float | None = None) -> aiohttp.ClientTimeout:
    # The first for the name's addresses, too. It waits for no other connection: there may be any number of them.
    return aiohttp.ClientTimeout(total=None, connect=connect, sock_connect=connect, sock_read=silence)


class Session:
    """HTTP to nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self._home = OwnerProcess()
        self._sockets = Sockets()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=self._sockets.made),
            timeout=_timeout(CONNECT_SECONDS),
            max_field_size=4 * wire.MOST_HEADER,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    def check_here(self) -> None:
        """Raise OtherProcess in a fork of the process that opened this."""
        self._home.check("this AsyncRelayClient or RelayWorker")

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        body: bytes | AsyncIterable[bytes] | None = None,
        within: float | None = None,
    ) -> tuple[int, Any, bytes]:
        """Return status, headers and body of an answer. Raises NodesAway where nothing was sent, and NodeLost."""
        self.check_here()
        shown = {**(headers or {}), **self.nodes.authorization()}
        try:
            async with (
                asyncio.timeout(within),
                self._session.request(
                    method,
                    url,
                    headers=shown,
                    data=io.BytesIO(body) if isinstance(body, bytes) and body else body or None,
                    allow_redirects=False,
                    # Another node may be there.
                    timeout=_timeout(CONNECT_SECONDS if within is None else min(CONNECT_SECONDS, within / 2)),
                    ssl=self.nodes.tls,
                ) as answer,
            ):
                # Not `read`, which waits until a body is sent whole: this may be why it is not.
                return answer.status, answer.headers, await answer.content.read()
        except _NOT_SENT as error:
            raise self._not_reached(error) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = f"{NodeLost.__doc__} ({type(error).__name__})"
            if within is not None and type(error) is TimeoutError:
                said = f"the node did not answer within {round(within, 1):g} s. The request may have run"
            raise NodeLost(said) from error

    async def chunks(self, url: str) -> AsyncIterator[bytes]:
        """Give a body as it comes. Raises what the node answers instead; NodesAway where nothing was sent, NodeLost."""
        self.check_here()
        shown = self.nodes.authorization()
        within = _timeout(CONNECT_SECONDS, STREAM_SILENCE_SECONDS)
        try:
            async with self._session.get(
                url, headers=shown, allow_redirects=False, timeout=within, ssl=self.nodes.tls
            ) as answer:
                if answer.status != 200:
                    raise wire.error_of(answer.status, await answer.read())
                async for chunk in answer.content.iter_chunked(CHUNK):
                    yield chunk
        except _NOT_SENT as error:
            raise self._not_reached(error) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NodeLost(f"{NodeLost.__doc__} ({type(error).__name__})") from error

    async def socket(self, url: str, most: int) -> Socket:
        """Open a WebSocket with frames of `most` bytes. Raises NodesAway, and what the node answers instead."""
        shown = self.nodes.authorization()
        try:
            async with asyncio.timeout(2 * CONNECT_SECONDS):
                return Socket(
                    await self._session.ws_connect(
                        url, headers=shown, heartbeat=_PING_SECONDS, max_msg_size=most, ssl=self.nodes.tls
                    )
                )
        except aiohttp.WSServerHandshakeError as error:
            raise _NOT_UPGRADED.get(error.status, NodeFailed) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._not_reached(error) from error

    def _not_reached(self, error: Exception) -> NodesAway:
        said = str(error)
        if isinstance(error, aiohttp.ClientConnectorError):  # whose own text shows how TLS is represented in Python
            said = f"cannot connect to {error.host}:{error.port}: {error.os_error}"
        return NodesAway(self.nodes.certificate_fault(error) or said or "no connection in time")

    async def close(self) -> None:
        """End all connections. Does nothing in a fork: they are the other process's."""
        if not self._home.is_here:
            keep(self._session)
            return
        self._sockets.shut()
        try:
            await self._session.close()
        finally:
            await self._sockets.closed()


class Socket:
    """A WebSocket to a node. A node that answers nothing more is found by pings."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._sending = asyncio.Lock()

    async def send(self, frame: bytes) -> None:
        """Send a binary frame. Raises NodeLost."""
        try:
            async with self._sending:
                await self._socket.send_bytes(frame)
        except (ConnectionError, aiohttp.ClientError) as error:
            raise NodeLost from error

    async def next(self) -> bytes:
        """Wait for a binary frame. Raises NodeLost."""
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise NodeLost
        return bytes(message.data)

    async def close(self) -> None:
        """End the connection. Raises nothing."""
        await self._socket.close()


class NodeStreams:
    """The store of data streams that all nodes have, over HTTP. Any node will do."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def store(self, stream: str, chunks: AsyncIterable[bytes]) -> int:
        failures: dict[str, object] = {}
        source = _Source(chunks)
        for url in self._session.nodes.order():
            try:
                asked = self._session.ask("PUT", stream_of(url, stream), headers=_PLAIN, body=source)
                status, _, said = await source.watched(asked)
                return size_in(status, said)
            except (NodesAway, NodeStopping, NodeLost) as error:
                if source.failure is not None:
                    raise source.failure from None
                if source.begun or isinstance(error, NodeLost):
                    raise not_sent(error) from None
                failures[url] = error
        raise none_reached(failures)

    async def read(self, stream: str) -> AsyncIterator[bytes]:
        failures: dict[str, object] = {}
        for url in self._session.nodes.order():
            try:
                async for chunk in self._session.chunks(stream_of(url, stream)):
                    yield chunk
            except (NodesAway, NodeStopping) as error:
                failures[url] = error
            except NodeLost:
                raise cut_off(stream) from None
            else:
                return
        raise none_reached(failures)

    async def touch(self, stream: str) -> None:
        """Nodes do so."""

    async def remove(self, stream: str) -> None:
        for url in self._session.nodes.order():
            with suppress(NodesAway, NodeLost):
                await self._session.ask("DELETE", stream_of(url, stream), within=STREAM_REMOVAL_SECONDS)
                return

    async def sweep(self) -> int:
        return 0

    async def remove_all(self, streams: Iterable[str]) -> None:
        """Remove streams that nothing came for."""
        for stream in streams:
            await self.remove(stream)


#: Of a body that is a data stream.
_PLAIN = {"Content-Type": "application/octet-stream"}


class _Source:
    """Gives chunks, and notes whether it has begun, what their source raises, and since when the node takes none."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = chunks
        self._clock = asyncio.get_running_loop().time
        #: When the last chunk was given; None while there is none to give.
        self._given_at: float | None = None
        self.begun = False
        self.failure: Exception | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.begun = True
        try:
            async for chunk in self._chunks:
                if chunk:  # an empty one would end the body
                    self._given_at = self._clock()
                    yield chunk
                self._given_at = None
        except Exception as error:
            self.failure = error
            raise
        self._given_at = self._clock()

    async def watched(self, asked: Coroutine[Any, Any, T]) -> T:
        """Wait for the answer. Raises NodeLost when the node takes nothing, or says nothing, for too long."""
        task = asyncio.ensure_future(asked)
        try:
            while not (await asyncio.wait([task], timeout=STREAM_STALL_SECONDS / 20))[0]:
                if self._given_at is not None and self._clock() > self._given_at + STREAM_STALL_SECONDS:
                    raise NodeLost(f"the node took nothing of a data stream for {STREAM_STALL_SECONDS:g} s")
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class AsyncRelayClient:
    """Calls endpoints over nodes. `async with AsyncRelayClient(url, token=…) as client:`."""

    def __init__(self, urls: str | Sequence[str] | Nodes, **identity: Unpack[ClientIdentity]) -> None:
        """`urls`: one node, or several that stand for each other. Raises SettingsError."""
        self._nodes = urls if isinstance(urls, Nodes) else Nodes(urls, **identity)

    async def __aenter__(self) -> Self:
        self._session = Session(self._nodes)
        self.streams = NodeStreams(self._session)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(
        self,
        endpoint: str,
        request: Request | bytes,
        *,
        timeout: float | None = None,
        pickup_timeout: float | None = None,
    ) -> Response:
        """Have a request run once by a worker that polls as `endpoint` at any node; return its response.

        `timeout`: seconds for all of it; None or `math.inf` for no end. `pickup_timeout`: seconds for which it may
        wait for a worker; without it, the node's setting. The time of data streams is not counted. Raises a RelayError:
        docs/reference/relay-errors.md has a table. Cancelling this task cancels the call.
        """
        self._session.check_here()
        path, headers, whole, timeout = call_of(endpoint, request, timeout, pickup_timeout)
        written: list[str] = []
        try:
            headers |= wire.dump_streams(await stored(self.streams, whole.streams, written))
            return await self._call(path, headers, whole.body, timeout)
        except NodeLost:
            raise  # the request may run
        except BaseException:  # as where this task is cancelled
            await self.streams.remove_all(written)
            raise

    async def _call(
        self, path: Callable[..., str], headers: dict[str, str], body: bytes, timeout: float | None
    ) -> Response:
        failures: dict[str, object] = {}
        clock = asyncio.get_running_loop().time
        began, within, left = clock(), None, None
        for url in self._nodes.order():
            if timeout is not None:
                within = began + timeout + LOST_AFTER_TIMEOUT_SECONDS - clock()
                left = timeout_at(within, timeout)
                if left <= 0:
                    failures[url] = "no time was left to try it"
                    continue
            try:
                answer = await self._session.ask(
                    "POST", url + path(timeout=left), headers=headers, body=body, within=within
                )
                response = response_of(*answer)
            except (NodesAway, NodeStopping) as error:
                failures[url] = error
            else:
                self._nodes.worked(url)
                notes = wire.load_streams(answer[1].get(wire.STREAMS_HEADER))
                streams = {name: StoredStream(self.streams, note.id, note.size) for name, note in notes.items()}
                return dataclasses.replace(response, streams=streams)
        raise none_reached(failures)
