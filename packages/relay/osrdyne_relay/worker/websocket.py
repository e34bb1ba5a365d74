"""Gets requests over a WebSocket: one connection to one node for all endpoints of a worker.

When the connection ends, work in hand goes on. Its answers then go to the node over HTTP, as those of polls do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from osrdyne_relay import wire
from osrdyne_relay.client.asynchronous import Session, Socket
from osrdyne_relay.errors import NodeFailed, NodeLost, NodeStopping, RelayError
from osrdyne_relay.redis.names import is_id
from osrdyne_relay.worker.polling import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, pause
from osrdyne_relay.worker.request_runner import ReceivedRequest, RequestRunner
from osrdyne_runtime import log_lines
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry

log = log_lines.logger(__name__)

#: Most bytes of a frame: those of the largest record that a relay can have, and its head.
_MOST = 16_777_216 + wire.MOST_HEAD
#: Seconds for the node to confirm what the worker serves, and an answer.
_CONFIRM_SECONDS = 60.0


class WebSocketConnection:
    """One connection to one node."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        #: Requests that are no longer wanted, and answers that the node has not confirmed, by the request.
        self._unwanted: dict[str, asyncio.Future[RelayError]] = {}
        self._unconfirmed: dict[str, asyncio.Future[RelayError | None]] = {}
        self._ended = asyncio.Event()
        #: Whether the node has confirmed what this worker serves.
        self.served = False
        #: Set when the node has confirmed that it serves nothing more, and when the node stops.
        self.left = asyncio.Event()
        self.stopping = asyncio.Event()

    async def serve(self, endpoints: list[str], at_once: int) -> None:
        """Say what this worker serves."""
        await self._socket.send(wire.frame({"type": "serve", "endpoints": endpoints, "at_once": at_once}))

    async def news(self, request: str) -> RelayError | None:
        """Wait until a request is no longer wanted; return why, or None when the connection has ended."""
        why = self._unwanted.get(request)
        if why is None:
            return None
        ended = asyncio.create_task(self._ended.wait())
        try:
            first: list[asyncio.Future[Any]] = [why, ended]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            self._unwanted.pop(request, None)
        return why.result() if why.done() else None

    async def say(self, request: str, what: str, body: bytes, more: Mapping[str, Any]) -> None:
        """Say what became of a request. Raises what the node answers, and NodeLost where the connection has ended."""
        if self._ended.is_set():
            raise NodeLost
        confirmed = self._unconfirmed[request] = asyncio.get_running_loop().create_future()
        try:
            await self._socket.send(wire.frame({"type": what, "id": request, **more}, body))
            async with asyncio.timeout(_CONFIRM_SECONDS):
                why = await confirmed
        except TimeoutError:
            raise NodeLost from None
        finally:
            self._unconfirmed.pop(request, None)
            self._unwanted.pop(request, None)
        if why is not None:
            raise why

    async def next(self, url: str) -> ReceivedRequest | None:
        """Return the next request; None when something else happened. Raises NodeLost when the connection has ended."""
        head, body = wire.unframe(await self._socket.next())
        request, endpoint = str(head.get("id", "")), str(head.get("endpoint", ""))
        match head.get("type"):
            case "request" if is_id(request):
                headers = wire.checked_headers(head.get("headers", {}))
                streams = wire.checked_streams(head.get("streams", {}))
                self._unwanted[request] = asyncio.get_running_loop().create_future()
                return ReceivedRequest(url, request, endpoint, headers, body, streams, self)
            case "abandoned":
                _set(self._unwanted.get(request), wire.error_in(head) or NodeFailed())
            case "settled":
                _set(self._unconfirmed.get(request), None)
            case "refused":
                _set(self._unconfirmed.get(request), wire.error_in(head) or NodeFailed())
            case "serving":
                self.served = True
                if head.get("slots") == 0:
                    self.left.set()
            case "stopping":
                self.stopping.set()
            case "error":
                raise wire.error_in(head) or NodeFailed()
        return None

    async def end(self) -> None:
        """End the connection. What was not confirmed raises NodeLost."""
        self._ended.set()
        for confirmed in self._unconfirmed.values():
            _set(confirmed, NodeLost())
        await self._socket.close()


def _set(future: asyncio.Future[Any] | None, value: object) -> None:
    if future is not None and not future.done():
        future.set_result(value)


class WebSocketReceiver:
    """Serves endpoints over one connection at a time."""

    def __init__(self, session: Session, requests: RequestRunner, endpoints: list[str], at_once: int) -> None:
        self._session, self._requests, self._endpoints, self._at_once = session, requests, endpoints, at_once
        self._in_hand: set[asyncio.Task[None]] = set()
        # The connection to a node that stops is replaced by that to another node: only what lasts is logged.
        self._outage = OutageLog(log, "the relay", tolerated=1)

    async def run(self, stop: asyncio.Event) -> None:
        """Get and do requests until `stop` is set, and work in hand is done."""
        retry = Retry(first=FIRST_PAUSE_SECONDS, limit=LONGEST_PAUSE_SECONDS)
        nodes = self._session.nodes
        try:
            while not stop.is_set():
                url = nodes.order()[retry.failures % len(nodes.urls)]
                connection = None
                try:
                    socket = await self._opened(url, stop)
                    if socket is None:
                        break
                    connection = WebSocketConnection(socket)
                    await self._serve(url, connection, stop)
                except RelayError as error:
                    if connection is not None and connection.served:
                        nodes.worked(url)
                        retry.worked()
                    self._outage.failed(str(error), asyncio.get_running_loop().time(), node=url)
                    await pause(stop, retry.failed())
            while self._in_hand:
                await asyncio.wait(self._in_hand)
        finally:
            for task in self._in_hand:
                task.cancel()
            await asyncio.gather(*self._in_hand, return_exceptions=True)

    async def _opened(self, url: str, stop: asyncio.Event) -> Socket | None:
        """Return a connection to a node; None where the stop came first: nothing is lost with a node that is silent."""
        opening = asyncio.create_task(self._session.socket(url + wire.SOCKET, _MOST))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([opening, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (opening, stopped):
                task.cancel()
            await asyncio.gather(opening, stopped, return_exceptions=True)
        return None if opening.cancelled() else opening.result()

    async def _serve(self, url: str, connection: WebSocketConnection, stop: asyncio.Event) -> None:
        """Serve over a connection until it ends, or node or worker stop. Raises why, but for the worker's stop."""
        reading = asyncio.create_task(self._read(url, connection))
        stops = [asyncio.create_task(event.wait()) for event in (stop, connection.stopping)]
        try:
            await connection.serve(self._endpoints, self._at_once)
            await asyncio.wait([reading, *stops], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                # From its confirmation on, no request is on its way.
                await connection.serve([], 0)
                stops.append(asyncio.create_task(connection.left.wait()))
                await asyncio.wait([reading, stops[-1]], return_when=asyncio.FIRST_COMPLETED, timeout=_CONFIRM_SECONDS)
        finally:
            for task in (reading, *stops):
                task.cancel()
            await asyncio.gather(reading, *stops, return_exceptions=True)
            await connection.end()
        if reading.done() and not reading.cancelled():
            reading.result()
        if not stop.is_set():
            raise NodeStopping

    async def _read(self, url: str, connection: WebSocketConnection) -> None:
        """Read until the connection has ended. Raises why."""
        while True:
            received = await connection.next(url)
            if connection.served:
                self._outage.over(asyncio.get_running_loop().time())
            if received is not None:
                task = asyncio.create_task(self._requests.run(received), name=f"request {received.id}")
                self._in_hand.add(task)
                task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._in_hand.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a request failed in this library", exc_info=error)
