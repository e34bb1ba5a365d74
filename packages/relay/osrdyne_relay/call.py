"""One call on the calling node: writes the request, beats, waits for the response, and returns it or raises an error.

It reads and writes the call's hash in Redis. It never gives up in silence: whatever ends it, the serving node finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from osrdyne_relay.errors import (
    CallFailed,
    CallTimedOut,
    Cancelled,
    DataLost,
    NotCollected,
    PeerGone,
    RedisAway,
    RelayClosed,
    RelayError,
    Stage,
    UnreadableRecord,
    UnreadableResponse,
)
from osrdyne_relay.messages import LOOK_PULSE, Request, Response, pulse
from osrdyne_relay.node import Node, Wakeup
from osrdyne_relay.redis import names, records
from osrdyne_relay.redis.records import RequestHeader, ResponseHeader
from osrdyne_relay.redis.transactions import CallerView, EnterView
from osrdyne_relay.streams.base import StoredStream
from osrdyne_relay.time_rules import LookSchedule, PeerWatch
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)

T = TypeVar("T")
#: Seconds that Redis has after the end of a call's time to answer what it is asked. A caller over HTTP waits for one.
LATE_SECONDS = 0.4


@dataclass(frozen=True, slots=True)
class Cancellation:
    """How far a cancelled call had come."""

    stage: Stage
    #: The response, if the request had finished before.
    response: Response | None = None


class _Phase(IntEnum):
    """How far a request has come, as far as the call knows. It goes through these in order, and may leave some out."""

    #: Not in Redis.
    NEW = 0
    #: It may be in Redis, and no node has it.
    WAITING = 1
    #: A node has it.
    CLAIMED = 2
    #: That node was asked to stop.
    STOPPING = 3


class _Wish(IntEnum):
    """What the calling side wants. A later wish replaces an earlier one."""

    RESPONSE = 0
    CANCEL = 1
    #: The same, because its time is over.
    TIMEOUT = 2


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
        self._news = Wakeup()
        self._phase = _Phase.NEW
        self._wish = _Wish.RESPONSE
        #: A response that came by a pulse.
        self._pulsed: bytes | None = None
        #: The error to end with, unless the response has come.
        self._failure: RelayError | None = None
        #: Whether `cancel` returns a response that came too late.
        self._response_wanted = False
        #: Token of the node that has the request.
        self._claim: bytes | None = None
        self._beats = 0
        self._began = node.now()
        #: Since when it waits for Redis; None while it does not.
        self._asks_since: float | None = None
        self._task = node.spawn(self._run(), f"call {self.id}")

    async def response(self) -> Response:
        """Wait for the response. Raises a RelayError. A caller that is cancelled here cancels the call."""
        try:
            await self._ended_or_late()
            return await self._outcome()
        except asyncio.CancelledError:
            self._want_cancel()
            self._task.add_done_callback(self._unheard)
            raise

    async def _ended_or_late(self) -> None:
        """Wait for the end of the call. Raises RedisAway where its time is over, and Redis does not answer.

        Without its caller, the call goes on until Redis has answered, and cancels its request.
        """
        if self._timeout is None:
            return
        end, unanswered = self._began + self._timeout, None
        while not self._task.done():
            begin = self._node.now()
            asked = self._asks_since if begin >= end else None
            if asked is not None and asked == unanswered:
                self._task.add_done_callback(self._unheard)
                raise RedisAway(
                    f"Redis did not answer within the {self._timeout:g} s of the call. The request may have run: check "
                    "Redis."
                )
            await asyncio.wait([self._task], timeout=LATE_SECONDS if begin >= end else end - begin)
            # A process that stood still meanwhile has not read what Redis answered.
            stood_still = self._node.now() > begin + 2 * LATE_SECONDS
            unanswered = None if stood_still else asked

    async def _outcome(self) -> Response:
        """Wait for the end of the call. Raises CancelledError only where the caller is cancelled."""
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if self._task.cancelled() and me is not None and not me.cancelling():
                raise RelayClosed from None  # Redis did not answer at the end of the node
            raise

    def _unheard(self, task: asyncio.Task[Response]) -> None:
        """Remove the streams of a response that came too late for its caller."""
        if not self._response_wanted and not task.cancelled() and task.exception() is None and task.result().streams:
            self._node.later(task.result().close(), f"streams of the response to {self.id}")

    async def cancel(self) -> Cancellation:
        """Cancel the call, and wait until it is known how far it had come.

        Raises a RelayError where that cannot be known: the other side is gone, for example.
        """
        self._response_wanted = True
        self._want_cancel()
        try:
            response = await self._outcome()
        except Cancelled as ended:
            return Cancellation(ended.stage)
        return Cancellation(Stage.FINISHED_BEFORE, response)

    def _want_cancel(self) -> None:
        self._wish = max(self._wish, _Wish.CANCEL)
        self._news.set()

    def close(self) -> None:
        """End with RelayClosed."""
        self._failure = RelayClosed()
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
        self._looks = LookSchedule(node.timings.look_first, node.timings.beat_every, self._began)
        node.calls[self.id] = self
        try:
            await self._enter()
            self._watch = PeerWatch(node.timings.server_gone_after, node.timings.beat_every, node.now())
            self._pickup_at = node.now() + self._pickup_timeout
            self._looks.looked(node.now())
            while True:
                await self._wait()
                response = await self._step(node.now())
                if response is not None:
                    return response
        finally:
            del node.calls[self.id]
            if self._phase is not _Phase.NEW:
                node.ended(self.endpoint, self.id)
            if self._streams:
                node.later(self._remove_streams(), f"streams of call {self.id}")

    async def _ask(self, answer: Awaitable[T]) -> T:
        """Wait for an answer of Redis."""
        self._asks_since = self._node.now()
        try:
            return await answer
        finally:
            self._asks_since = None

    async def _remove_streams(self) -> None:
        for stream in self._streams:
            await self._node.streams.remove(stream)

    async def _enter(self) -> None:
        """Write the request, in the present life of Redis."""
        node = self._node
        notes = await node.store_streams(self._request.streams, self._streams)
        while True:
            life = await self._ask(node.life(self.endpoint))
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
            self._phase = _Phase.WAITING
            entry = node.transactions.enter(self.endpoint, self.id, record, self._pickup_timeout)
            done = await self._ask(node.run(entry))
            if EnterView.of(done.answers).life == life.encode():
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
        if self._phase is _Phase.WAITING:
            due.append(self._pickup_at)
        if self._timeout is not None and self._wish is not _Wish.TIMEOUT:
            due.append(self._began + self._timeout)
        await self._news.wait(min(due))

    async def _step(self, now: float) -> Response | None:
        """Do what is due, and return the response if it has come. Raises a RelayError when the call has failed."""
        if self._pulsed is not None:
            return self._read(self._pulsed)
        if self._failure is not None:
            return await self._give_up(self._failure)
        if self._timeout is not None and now >= self._began + self._timeout:
            self._wish = _Wish.TIMEOUT
        if self._wish is not _Wish.RESPONSE and self._phase is not _Phase.STOPPING:
            return await self._cancel()
        if self._phase is _Phase.WAITING and now >= self._pickup_at:
            return await self._withdraw(cancel=False)
        return await self._look() if now >= self._looks.due else None

    async def _cancel(self) -> Response | None:
        response = await self._withdraw(cancel=True)
        if response is None:
            self._phase = _Phase.STOPPING
            await self._pulse_server()
        return response

    async def _withdraw(self, *, cancel: bool) -> Response | None:
        """Take the request back, unless a node has it."""
        withdrawal = self._node.transactions.withdraw(self.endpoint, self.id, cancel=cancel)
        done = await self._ask(self._node.run(withdrawal))
        view = CallerView.of(done.answers)
        # A request that Redis has lost may have been collected before.
        if view.there and view.response is None and view.claim == names.WITHDRAWN.encode():
            raise self._cancelled(Stage.NEVER_COLLECTED) if cancel else NotCollected()
        return self._note(view)

    async def _look(self) -> Response | None:
        """Beat, and look."""
        self._beats += 1
        waits = None if self._phase is not _Phase.WAITING else max(0.0, self._pickup_at - self._node.now())
        beat = self._node.transactions.caller_beat(self.endpoint, self.id, self._beats, waits)
        view = CallerView.of((await self._ask(self._node.run(beat))).answers)
        now = self._node.now()
        self._looks.looked(now)
        response = self._note(view)
        if response is None and self._phase is not _Phase.WAITING and self._watch.note(view.server_beat, now):
            return await self._give_up(PeerGone())
        return response

    def _note(self, view: CallerView) -> Response | None:
        """Take in what Redis has of the call, and return the response if it is there. Raises DataLost."""
        if view.response is not None:
            return self._read(view.response)
        if not view.there or (self._phase is not _Phase.WAITING and view.claim is None):
            raise DataLost
        if self._phase is _Phase.WAITING and view.claim is not None:
            self._phase, self._claim = _Phase.CLAIMED, view.claim
            self._watch = PeerWatch(
                self._node.timings.server_gone_after, self._node.timings.beat_every, self._node.now()
            )
        return None

    async def _give_up(self, error: RelayError) -> Response:
        """Raise an error, unless the response has come meanwhile."""
        done = await self._ask(self._node.run(self._node.transactions.give_up(self.endpoint, self.id)))
        view = CallerView.of(done.answers)
        if view.response is not None:
            return self._read(view.response)
        await self._pulse_server()
        raise error

    async def _pulse_server(self) -> None:
        server = names.node_of(self._claim) if self._claim else None
        if server is not None:
            await self._ask(self._node.run(self._node.transactions.pulse(server, pulse(LOOK_PULSE, self.id))))

    def _read(self, raw: bytes) -> Response:
        """Return a response, or raise what the serving node says."""
        try:
            header, body = records.decode(ResponseHeader, raw, self._node.most_bytes)
        except UnreadableRecord as error:
            raise UnreadableResponse(f"the response cannot be read, but the request has run: {error}") from error
        match header.status:
            case "ok":
                store = self._node.streams
                streams = {name: StoredStream(store, note.id, note.size) for name, note in header.streams.items()}
                return Response(body, header.headers, streams)
            case "returned":
                raise NotCollected if self._wish is _Wish.RESPONSE else self._cancelled(Stage.NEVER_COLLECTED)
            case "cancelled":
                raise self._cancelled(Stage.WHILE_RUNNING)
            case "abandoned":
                raise PeerGone(f"the serving node gave the call up: {header.reason}")
            case "failed":
                raise CallFailed(header.reason or None)

    def _cancelled(self, stage: Stage) -> RelayError:
        if self._wish is _Wish.TIMEOUT and self._timeout is not None:
            return CallTimedOut(stage, self._timeout)
        return Cancelled(stage)
