"""One call on the calling node: writes the request, beats, waits for the response, and gives it or a typed error.

It reads and writes the call's hash in Redis. It never gives up in silence: whatever ends it, the serving node finds it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from osrdyne_relay.errors import (
    CallFailed,
    CallTimedOut,
    Cancelled,
    DataLost,
    NotCollected,
    PeerGone,
    RelayClosed,
    RelayError,
    Stage,
    UnreadableRecord,
    UnreadableResponse,
)
from osrdyne_relay.messages import LOOK_PULSE, Request, Response, pulse
from osrdyne_relay.node import News, Node
from osrdyne_relay.redis import names, records
from osrdyne_relay.redis.records import RequestHeader, ResponseHeader
from osrdyne_relay.redis.transactions import CallerView, Entered
from osrdyne_relay.streams.base import StoredStream
from osrdyne_relay.time_rules import Looks, PeerWatch
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What a cancelled call came to."""

    stage: Stage
    #: Where it had finished before.
    response: Response | None = None


@dataclass(slots=True)
class _Ended(Exception):
    """The call has a response, or an error that the other side wrote."""

    header: ResponseHeader
    body: bytes


class Call:
    """A call under way. `Relay.start` makes it."""

    def __init__(
        self, node: Node, endpoint: str, request: Request, pickup_timeout: float, timeout: float | None
    ) -> None:
        self.id = names.new_id()
        self.endpoint = endpoint
        self._node = node
        self._request = request
        self._pickup_timeout = pickup_timeout
        self._timeout = timeout
        self._streams: list[str] = []
        self._news = News()
        #: Whether the request may be in Redis.
        self._sent = False
        #: A response that came by a pulse.
        self._pulsed: bytes | None = None
        self._cancel_wanted = False
        #: Whether `cancel` returns the response that came too late.
        self._asked = False
        #: Whether the serving node was asked to stop.
        self._cancel_sent = False
        self._timed_out = False
        self._closing = False
        #: Token of the node that has the request.
        self._claim: bytes | None = None
        self._beats = 0
        self._task = node.spawn(self._run(), f"call {self.id}")

    async def response(self) -> Response:
        """Wait for the response. Raises a RelayError. A caller that is cancelled here cancels the call."""
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            self._want_cancel()
            self._task.add_done_callback(self._unheard)
            raise

    def _unheard(self, task: asyncio.Task[Response]) -> None:
        """Remove the streams of a response that came too late for its caller."""
        if not self._asked and not task.cancelled() and task.exception() is None and task.result().streams:
            self._node.later(task.result().close(), f"streams of the response to {self.id}")

    async def cancel(self) -> Cancellation:
        """Cancel the call, and wait until it is known how far it had come.

        Raises a RelayError where that cannot be known: the other side is gone, for example.
        """
        self._asked = True
        self._want_cancel()
        try:
            response = await asyncio.shield(self._task)
        except Cancelled as ended:
            return Cancellation(ended.stage)
        return Cancellation(Stage.FINISHED_BEFORE, response)

    def _want_cancel(self) -> None:
        self._cancel_wanted = True
        self._news.set()

    def close(self) -> None:
        """End with RelayClosed."""
        self._closing = True
        self._news.set()

    async def ended(self) -> None:
        """Wait until the call has ended, in whatever way."""
        await asyncio.wait([self._task])

    def look(self) -> None:
        """Have the call look at Redis now: pulses may have been lost, or a pulse says so."""
        self._looks.at_once()
        self._news.set()

    def receive(self, response: bytes) -> None:
        """Take a response from a pulse."""
        self._pulsed = response
        self._news.set()

    # --- the task -------------------------------------------------------------------------------------------------

    async def _run(self) -> Response:
        node = self._node
        self._began = node.now()
        self._looks = Looks(node.timings.look_first, node.timings.beat_every, self._began)
        node.calls[self.id] = self
        try:
            await self._enter()
            self._watch = PeerWatch(node.timings.server_gone_after, node.timings.beat_every, node.now())
            self._pickup_at = node.now() + self._pickup_timeout
            self._looks.looked(node.now())
            while True:
                await self._wait()
                await self._step(node.now())
        except _Ended as ended:
            return self._result(ended.header, ended.body)
        finally:
            del node.calls[self.id]
            if self._sent:
                node.ended(self.endpoint, self.id)
            if self._streams:
                node.later(self._remove_streams(), f"streams of call {self.id}")

    async def _remove_streams(self) -> None:
        for stream in self._streams:
            await self._node.streams.remove(stream)

    async def _enter(self) -> None:
        """Write the request, in the present life of Redis."""
        node = self._node
        notes = await node.store_streams(self._request.streams, self._streams)
        while True:
            life = await node.life(self.endpoint)
            header = records.made(
                RequestHeader,
                id=self.id,
                endpoint=self.endpoint,
                node=node.id,
                life=life,
                headers=dict(self._request.headers),
                streams=notes,
            )
            record = records.encode(header, self._request.body, node.most_bytes)
            self._sent = True
            done = await node.run(node.transactions.enter(self.endpoint, self.id, record, self._pickup_timeout))
            if Entered.of(done.answers).life == life.encode():
                return
            node.lost(self.endpoint, life)
            if done.maybe_before:
                raise DataLost
            # It was written only after the loss, and names the life before it: no node takes it.
            del node.calls[self.id]
            self.id = names.new_id()
            node.calls[self.id] = self

    async def _wait(self) -> None:
        """Wait until something is to be done."""
        due = [self._looks.due]
        if self._claim is None:
            due.append(self._pickup_at)
        if self._timeout is not None and not self._timed_out:
            due.append(self._began + self._timeout)
        await self._news.wait(min(due))

    async def _step(self, now: float) -> None:
        """Do what is due. Raises _Ended or a RelayError when the call has ended."""
        if self._pulsed is not None:
            raise self._read(self._pulsed)
        if self._closing:
            await self._give_up(RelayClosed())
        if self._timeout is not None and now >= self._began + self._timeout:
            self._timed_out = self._cancel_wanted = True
        if self._cancel_wanted and not self._cancel_sent:
            await self._cancel()
        elif self._claim is None and now >= self._pickup_at:
            await self._withdraw(cancel=False)
        elif now >= self._looks.due:
            await self._look()

    async def _cancel(self) -> None:
        await self._withdraw(cancel=True)
        self._cancel_sent = True
        await self._pulse_server()

    async def _withdraw(self, *, cancel: bool) -> None:
        """Take the request back, unless a node has it."""
        done = await self._node.run(self._node.transactions.withdraw(self.endpoint, self.id, cancel=cancel))
        view = CallerView.of(done.answers)
        # A request that Redis has lost may have been collected before.
        if view.there and view.response is None and view.claim == names.WITHDRAWN.encode():
            raise self._cancelled(Stage.NEVER_COLLECTED) if cancel else NotCollected()
        self._note(view)

    async def _look(self) -> None:
        """Beat, and look."""
        self._beats += 1
        waits = None if self._claim else max(0.0, self._pickup_at - self._node.now())
        beat = self._node.transactions.caller_beat(self.endpoint, self.id, self._beats, waits)
        view = CallerView.of((await self._node.run(beat)).answers)
        now = self._node.now()
        self._looks.looked(now)
        self._note(view)
        if self._claim is not None and self._watch.note(view.server_beat, now):
            await self._give_up(PeerGone())

    def _note(self, view: CallerView) -> None:
        """Take in what Redis has of the call. Raises _Ended or DataLost when that is its end."""
        if view.response is not None:
            raise self._read(view.response)
        if not view.there or (self._claim is not None and view.claim is None):
            raise DataLost
        if self._claim is None and view.claim is not None:
            self._claim = view.claim
            self._watch = PeerWatch(
                self._node.timings.server_gone_after, self._node.timings.beat_every, self._node.now()
            )

    async def _give_up(self, error: RelayError) -> None:
        """End with an error, unless the response has come meanwhile."""
        done = await self._node.run(self._node.transactions.give_up(self.endpoint, self.id))
        view = CallerView.of(done.answers)
        if view.response is not None:
            raise self._read(view.response)
        await self._pulse_server()
        raise error

    async def _pulse_server(self) -> None:
        server = names.node_of(self._claim) if self._claim else None
        if server is not None:
            await self._node.run(self._node.transactions.pulse(server, pulse(LOOK_PULSE, self.id)))

    def _read(self, raw: bytes) -> _Ended:
        try:
            return _Ended(*records.decode(ResponseHeader, raw, self._node.most_bytes))
        except UnreadableRecord as error:
            raise UnreadableResponse(f"the response cannot be read, but the request has run: {error}") from error

    def _cancelled(self, stage: Stage) -> RelayError:
        if self._timed_out and self._timeout is not None:
            return CallTimedOut(stage, self._timeout)
        return Cancelled(stage)

    def _result(self, header: ResponseHeader, body: bytes) -> Response:
        """Return a response, or raise what the serving node says."""
        match header.status:
            case "ok":
                store = self._node.streams
                streams = {name: StoredStream(store, one.id, one.size) for name, one in header.streams.items()}
                return Response(body, header.headers, streams)
            case "returned":
                raise self._cancelled(Stage.NEVER_COLLECTED) if self._cancel_wanted else NotCollected()
            case "cancelled":
                raise self._cancelled(Stage.WHILE_RUNNING)
            case "abandoned":
                raise PeerGone(f"the serving node gave the call up: {header.reason}")
            case "failed":
                raise CallFailed(header.reason or None)
