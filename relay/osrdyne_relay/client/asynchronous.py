"""The client for asyncio, and the session that workers use, too. Only this and the node import aiohttp."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, Unpack

import aiohttp

from osrdyne_relay import wire
from osrdyne_relay.client.addresses import BEYOND, CONNECT, Identity, Nodes, call_of, none_reached, response_of
from osrdyne_relay.errors import AccessDenied, NodeFailed, NodeLost, NodesAway, NodeStopping, RelayError, TooMany
from osrdyne_relay.keepalive import keep_alive
from osrdyne_relay.messages import Request, Response

#: Seconds between two pings of a WebSocket.
_PING = 30.0
#: What a node says instead of an upgrade to a WebSocket, by its status; and what says that nothing was sent.
_NOT_UPGRADED: dict[int, type[RelayError]] = {401: AccessDenied, 429: TooMany, 503: NodeStopping}
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class Session:
    """HTTP to nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=nodes.tls, socket_factory=_socket),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT),
            max_field_size=4 * wire.MOST_HEADER,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        within: float | None = None,
    ) -> tuple[int, Any, bytes]:
        """Return status, headers and body of an answer. Raises NodesAway where nothing was sent, and NodeLost."""
        shown = {**(headers or {}), **self.nodes.authorization()}
        try:
            async with (
                asyncio.timeout(within),
                self._session.request(
                    method,
                    url,
                    headers=shown,
                    data=io.BytesIO(body) if body else None,
                    allow_redirects=False,
                ) as answer,
            ):
                return answer.status, answer.headers, await answer.read()
        except _NOT_SENT as error:
            raise NodesAway(str(error) or "no connection in time") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NodeLost(f"{NodeLost.__doc__} ({type(error).__name__})") from error

    async def socket(self, url: str, most: int) -> Socket:
        """Open a WebSocket with frames of `most` bytes. Raises NodesAway, and what the node answers instead."""
        shown = self.nodes.authorization()
        try:
            async with asyncio.timeout(2 * CONNECT):
                return Socket(await self._session.ws_connect(url, headers=shown, heartbeat=_PING, max_msg_size=most))
        except aiohttp.WSServerHandshakeError as error:
            raise _NOT_UPGRADED.get(error.status, NodeFailed) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NodesAway(str(error) or "no connection in time") from error

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()


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


def _socket(info: Any) -> socket.socket:
    family, kind, protocol, _, _ = info
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        keep_alive(made)
    except BaseException:
        made.close()
        raise
    return made


class AsyncRelayClient:
    """Calls endpoints over nodes. `async with AsyncRelayClient(url, token=…) as client:`."""

    def __init__(self, urls: str | Sequence[str], **identity: Unpack[Identity]) -> None:
        """`urls`: one node, or several that stand for each other. Raises SettingsError."""
        self._nodes = Nodes(urls, **identity)

    async def __aenter__(self) -> Self:
        self._session = Session(self._nodes)
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
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

        `timeout`: seconds for all of it. `pickup_timeout`: seconds for which it may wait for a worker; without it, the
        node's setting. Raises a RelayError: docs/relay.md has a table. Cancelling this task cancels the call.
        """
        path, headers, body = call_of(endpoint, request, timeout, pickup_timeout)
        within = None if timeout is None else timeout + BEYOND
        failures: dict[str, object] = {}
        for url in self._nodes.order():
            try:
                answer = await self._session.ask("POST", url + path, headers=headers, body=body, within=within)
                response = response_of(*answer)
            except (NodesAway, NodeStopping) as error:
                failures[url] = error
            else:
                self._nodes.worked(url)
                return response
        raise none_reached(failures)
