"""Workers over a WebSocket: one connection for all requests of a worker. Frames are those of `wire.frame`.

A worker says which endpoints it serves, and how many requests of each it has at once. For each of these there is a
slot: a task that collects a request, sends it, and waits until the worker has ended it. What the worker has when the
connection ends stays in its hand: it may answer over another connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osrdyne_relay import wire
from osrdyne_relay.errors import AccessDenied, InvalidCall, NodeStopping, RelayError, TooMany
from osrdyne_relay.http.access import KnownClient
from osrdyne_relay.http.middleware import CLIENT, SERVICE
from osrdyne_relay.http.node_service import NodeService
from osrdyne_relay.http.node_state import HeldRequest
from osrdyne_relay.http.streams import handed_over
from osrdyne_relay.messages import Answer
from osrdyne_relay.redis.names import check_endpoint, new_id
from osrdyne_runtime import log_lines
from osrdyne_runtime.retry import Retry

log = log_lines.logger(__name__)

#: Seconds between two pings; a peer that does not answer for half of it is gone.
_PING_SECONDS = 30.0
#: Seconds for the peer to end a connection that we end.
_CLOSE_SECONDS = 2.0
#: Seconds that a slot polls at a time. It polls again at once.
_POLL_SECONDS = 300.0


class _Head(BaseModel):
    """The first line of a frame from a worker. A later version may add fields, which are ignored."""

    model_config = ConfigDict(strict=True)

    type: str = Field(max_length=32)
    id: str = Field(default="", max_length=32)
    headers: dict[str, str] = {}
    streams: wire.Notes = {}
    reason: str = Field(default="", max_length=8000)
    endpoints: list[str] = Field(default=[], max_length=100_000)
    at_once: int = Field(default=1, ge=0, le=100_000)


async def socket(request: web.Request) -> web.StreamResponse:
    """Serve a worker until its connection ends."""
    service, client = request.app[SERVICE], request[CLIENT]
    if not client.grant.serve:
        raise AccessDenied
    own = web.WebSocketResponse(
        heartbeat=_PING_SECONDS,
        timeout=_CLOSE_SECONDS,
        compress=False,
        max_msg_size=request.client_max_size + wire.MOST_HEAD,
    )
    if not own.can_prepare(request):
        raise InvalidCall("this path is for WebSockets: poll at /v1/poll, or ask for an upgrade")
    with service.opened(client):
        await own.prepare(request)
        await _Connection(service, client, own).run()
    return own


class _Slot:
    """Place for one request of an endpoint."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.poll = new_id()
        self.wanted = True
        #: Set while it does not poll.
        self.quiet = asyncio.Event()


class _Connection:
    def __init__(self, service: NodeService, client: KnownClient, own: web.WebSocketResponse) -> None:
        self._service, self._client, self._own = service, client, own
        self._sending = asyncio.Lock()
        self._slots: dict[str, list[_Slot]] = {}
        #: What is set when the worker has ended a request that it got here.
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until the worker, or this node, or a change of the access file ends the connection."""
        self._service.sockets += 1
        self._spawn(self._tell_stop())
        ends = [self._spawn(work) for work in (self._read(), self._denied(), self._over())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._service.sockets -= 1
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if not self._own.closed:
                await self._own.close(code=WSCloseCode.GOING_AWAY)

    async def _read(self) -> None:
        async for message in self._own:
            try:
                if message.type is not WSMsgType.BINARY:
                    raise InvalidCall("a frame is binary: a line of JSON, and then the body")
                head, body = wire.unframe(message.data)
                await self._take(_read_head(head), body)
                await asyncio.sleep(0)  # others, too, where frames come without a pause
            except (InvalidCall, AccessDenied, TooMany) as error:
                await self._send({"type": "error", **wire.problem(error)})
                await self._own.close(code=WSCloseCode.POLICY_VIOLATION)
                return

    async def _take(self, head: _Head, body: bytes) -> None:
        match head.type:
            case "serve":
                # The next frame is read when this one was confirmed: so a flood of them waits for the network.
                await self._serve(head.endpoints, head.at_once)
            case "response":
                streams = handed_over(self._service, head.streams)
                await self._end(head, lambda held: self._service.answer(held, Answer(body, head.headers, streams)))
            case "failure":
                why = head.reason or "the worker gives no reason"
                await self._end(head, lambda held: self._service.fail(held, why))
            case "return":
                await self._end(head, self._put_back)
            case _:
                raise InvalidCall(f"a frame has the type {head.type!r}, which this version does not know")

    # --- slots ----------------------------------------------------------------------------------------------------

    async def _serve(self, endpoints: list[str], at_once: int) -> None:
        """Have so many slots for each of these endpoints, and none for others."""
        for endpoint in endpoints:
            self._client.may_serve(check_endpoint(endpoint))
        wanted = dict.fromkeys(endpoints, at_once)
        if sum(wanted.values()) > self._service.limit_of(self._client):
            raise TooMany("this is more than the client may have open: serve less, or raise `most` in the access file")
        leaving = []
        for endpoint in {**self._slots, **wanted}:
            slots = self._slots.setdefault(endpoint, [])
            while len(slots) > wanted.get(endpoint, 0):
                slot = slots.pop()
                slot.wanted = False
                self._service.end_poll(self._client, slot.poll)
                leaving.append(slot)
            while len(slots) < wanted.get(endpoint, 0):
                slots.append(slot := _Slot(endpoint))
                self._spawn(self._fill(slot))
            if not slots:
                del self._slots[endpoint]
        # From its confirmation on, nothing comes any more for a slot that was left.
        for slot in leaving:
            await slot.quiet.wait()
        await self._send({"type": "serving", "slots": sum(wanted.values())})

    async def _fill(self, slot: _Slot) -> None:
        retry = Retry(first=0.2, limit=10.0)
        try:
            while slot.wanted:
                slot.quiet.clear()
                try:
                    held = await self._service.collect(self._client, slot.endpoint, _POLL_SECONDS, slot.poll)
                    retry.worked()
                except NodeStopping:
                    return
                except RelayError:
                    # Redis is away, for example, or the client has too much open.
                    slot.quiet.set()
                    await asyncio.sleep(retry.failed())
                    continue
                if held is not None:
                    await self._pass_on(held, slot)
        finally:
            slot.quiet.set()

    async def _pass_on(self, held: HeldRequest, slot: _Slot) -> None:
        """Send a request, and wait until the worker has ended it."""
        collected = held.collected
        head = {
            "type": "request",
            "id": collected.id,
            "endpoint": collected.endpoint,
            "headers": dict(collected.headers),
            **({"streams": wire.notes_of(collected.streams)} if collected.streams else {}),
        }
        sent = False
        ended = self._ends[collected.id] = asyncio.Event()
        held.settled = ended.set
        unwanted = self._spawn(self._tell_unwanted(held))
        try:
            with self._service.worker_connected(held):
                async with self._sending:
                    if self._own.closed:
                        return
                    # From here on the worker may have it.
                    sent = True
                    slot.quiet.set()
                    await self._own.send_bytes(wire.frame(head, collected.body))
                await ended.wait()
        except ConnectionError:
            pass  # which the reader notices
        finally:
            unwanted.cancel()
            # Another slot may have it again.
            if self._ends.get(collected.id) is ended:
                del self._ends[collected.id]
            if not sent:
                self._service.put_back(held)

    async def _tell_unwanted(self, held: HeldRequest) -> None:
        why = await held.collected.wait_abandoned()
        await self._send({"type": "abandoned", "id": held.collected.id, **wire.problem(why)})

    # --- ends of requests -----------------------------------------------------------------------------------------

    async def _end(self, head: _Head, how: Any) -> None:
        """End a request as the worker says. The next frame is read meanwhile."""
        try:
            held = self._service.state.find(self._client.name, head.id)
        except RelayError as error:
            await self._refuse(head.id, error)
        else:
            self._spawn(self._ended(held, how))

    async def _ended(self, held: HeldRequest, how: Any) -> None:
        try:
            with self._service.worker_connected(held):
                await how(held)
        except RelayError as error:
            await self._refuse(held.collected.id, error)
        else:
            await self._send({"type": "settled", "id": held.collected.id})

    async def _refuse(self, request: str, error: RelayError) -> None:
        ended = self._ends.get(request)
        if ended is not None and request not in self._service.state.in_hand:
            # It was no longer wanted, and now the worker has ended it, too.
            ended.set()
        await self._send({"type": "refused", "id": request, **wire.problem(error)})

    async def _put_back(self, held: HeldRequest) -> None:
        self._service.put_back(held)

    # --- the connection -------------------------------------------------------------------------------------------

    async def _tell_stop(self) -> None:
        await self._service.stopping.wait()
        await self._send({"type": "stopping"})

    async def _denied(self) -> None:
        with self._service.access_changes() as changed:
            while self._service.access.still_grants(self._client):
                await changed.wait()
                changed.clear()

    async def _over(self) -> None:
        await self._service.grace_over.wait()

    async def _send(self, head: dict[str, Any]) -> None:
        try:
            async with self._sending:
                if not self._own.closed:
                    await self._own.send_bytes(wire.frame(head))
        except ConnectionError:
            pass  # which the reader notices

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._service.later(work, "WebSocket")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _read_head(head: dict[str, Any]) -> _Head:
    try:
        return _Head.model_validate(head)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))[:80]
        raise InvalidCall(f"a frame's {where} is wrong: {first['msg']}") from None
