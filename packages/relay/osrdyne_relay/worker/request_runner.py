"""What a worker does with one request: has the handler run, hears whether the work is still wanted, and answers.

A request belongs to the node that gave it. The answer goes there, and is tried again while the node is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from osrdyne_calls.handling import Outcome, Request
from osrdyne_calls.runners import OnLoop, Runner
from osrdyne_protocol import statuses
from osrdyne_protocol.events import REQUEUED
from osrdyne_protocol.headers import X_DEADLINE, X_REASON, X_STATUS
from osrdyne_relay import wire
from osrdyne_relay.client.asynchronous import NodeStreams, Session
from osrdyne_relay.client.threads import BlockingStream, BlockingStreams, Connections
from osrdyne_relay.errors import (
    NodeFailed,
    NodeLost,
    NodesAway,
    RedisAway,
    RelayError,
    TooLarge,
    TooMany,
    UnknownRequest,
)
from osrdyne_relay.messages import CORRELATION_HEADER, REDELIVERED_HEADER, is_deadline
from osrdyne_relay.streams.base import StoredStream
from osrdyne_relay.wire import StreamEntry
from osrdyne_relay.worker.requests import AnswerStreams, AsyncRelayRequest, RelayRequest
from osrdyne_runtime import log_lines
from osrdyne_runtime.retry import Retry

log = log_lines.logger(__name__)

#: Seconds after which the worker begins to ask whether a request is still wanted, and for which it waits then.
ASK_AFTER_SECONDS, ASK_WAIT_SECONDS = 1.0, 20.0
#: Seconds for which an answer is tried again. A node gives a silent worker up after a minute.
RETRY_ANSWER_SECONDS = 60.0
#: Seconds after which the worker takes its next request although an answer is still tried: its node may be dead.
_SLOT_FREE_SECONDS = 2.0
#: Seconds for an answer to arrive. The node may have to wait for Redis.
_ANSWER_SECONDS = 60.0
#: Most characters of a reason.
_MOST_REASON = 1000

#: What may pass.
_PASSING = (NodesAway, NodeLost, NodeFailed, RedisAway, TooMany)


class ReceivingConnection(Protocol):
    """A connection over which a request came. Both methods end when it has ended."""

    async def news(self, request: str) -> RelayError | None:
        """Wait until a request is no longer wanted; return why, or None when the connection has ended."""

    async def say(self, request: str, what: str, body: bytes, more: Mapping[str, Any]) -> None:
        """Say what became of a request. Raises what the node answers, and NodeLost where the connection has ended."""


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request that this worker received, and the node that it is from."""

    url: str
    id: str
    endpoint: str
    headers: Mapping[str, str]
    body: bytes
    streams: Mapping[str, StreamEntry]
    #: How it came; None for a poll.
    connection: ReceivingConnection | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of the worker library's request. Its key is what follows the endpoint's first slash."""
        pool, _, key = self.endpoint.partition("/")
        deadline = self.headers.get(X_DEADLINE, "")
        return {
            "key": key or pool,
            "body": self.body,
            "headers": self.headers,
            "correlation_id": self.headers.get(CORRELATION_HEADER, self.id),
            "redelivered": self.headers.get(REDELIVERED_HEADER) == "true",
            "deadline": int(deadline) / 1000 if is_deadline(deadline) else None,
        }


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """What the node gets: an answer, or the reason why there is none."""

    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, StreamEntry] = field(default_factory=dict)
    failure: str | None = None

    @classmethod
    def of(cls, outcome: Outcome, streams: Mapping[str, StreamEntry]) -> WorkerAnswer:
        """Return what an outcome is: statuses are those of a worker over AMQP. Only a good one has streams."""
        if outcome.status == statuses.OK:
            return cls(outcome.body, streams=streams)
        if outcome.status == REQUEUED:
            return cls(failure="the worker cannot process this here and now: call again")
        headers = {X_STATUS: outcome.status}
        if outcome.reason:
            headers[X_REASON] = outcome.reason.encode("utf-8", "replace").decode()[:_MOST_REASON]
        return cls(outcome.body, headers)


class RequestRunner:
    """Runs requests of one worker."""

    def __init__(self, session: Session, runner: Runner) -> None:
        self._session = session
        self._runner = runner
        self._streams = NodeStreams(session)
        self._connections = Connections(session.nodes)
        self._blocking = BlockingStreams(self._connections)
        #: Set at the end of the worker's grace.
        self.over = asyncio.Event()
        #: Answers that are on their way.
        self._answers: set[asyncio.Task[None]] = set()

    async def run(self, received: ReceivedRequest) -> None:
        """Have the handler run one request, and answer it. Raises nothing but CancelledError."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()
        sent = AnswerStreams()
        request = self._for_handler(received, sent)
        named = False
        withdraw = self._runner.start(request, lambda result: None if outcome.done() else outcome.set_result(result))
        abandoned = asyncio.create_task(self._abandoned(received))
        over = asyncio.create_task(self.over.wait())
        ends: list[asyncio.Future[Any]] = [outcome, over]
        try:
            await asyncio.wait([*ends, abandoned], return_when=asyncio.FIRST_COMPLETED)
            sent.close()
            if outcome.done():
                named = outcome.result().status == statuses.OK
                await self._answer_soon(received, WorkerAnswer.of(outcome.result(), sent.streams))
            elif abandoned.done():
                log.warning(
                    "a request is no longer wanted",
                    extra={"endpoint": received.endpoint, "why": str(abandoned.result())},
                )
                if not withdraw():
                    if isinstance(self._runner, OnLoop):
                        await self._runner.end(request)
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if received.connection is not None:
                    # The node refuses it, and knows that this worker has room again.
                    with suppress(RelayError):
                        await received.connection.say(received.id, "failure", b"", {"reason": "no longer wanted"})
            elif withdraw():
                await self.give_back(received)
            else:
                await self._answer_soon(
                    received, WorkerAnswer(failure="the worker stopped before it was done; it has begun")
                )
        finally:
            abandoned.cancel()
            over.cancel()
            await asyncio.gather(abandoned, over, return_exceptions=True)
            if not named:
                await self._drop(sent.streams)

    def _for_handler(self, received: ReceivedRequest, sent: AnswerStreams) -> Request:
        """Return the request in the form that the handler takes."""
        if isinstance(self._runner, OnLoop):
            store = self._streams
            streams = {name: StoredStream(store, stored.id, stored.size) for name, stored in received.streams.items()}
            return AsyncRelayRequest(**received.fields(), streams=streams, _store=store, _sent=sent)
        blocking = {
            name: BlockingStream(self._blocking, stored.id, stored.size) for name, stored in received.streams.items()
        }
        return RelayRequest(**received.fields(), streams=blocking, _store=self._blocking, _sent=sent)

    async def _drop(self, streams: Mapping[str, StreamEntry]) -> None:
        """Remove streams of an answer that does not count."""
        with suppress(RelayError):
            await self._streams.remove_all(stored.id for stored in streams.values())

    async def _abandoned(self, received: ReceivedRequest) -> RelayError:
        """Wait until a request is no longer wanted; return why. Meanwhile the node hears of this worker."""
        if received.connection is None:
            await asyncio.sleep(ASK_AFTER_SECONDS)
        elif why := await received.connection.news(received.id):
            return why
        retry = Retry(first=0.2, limit=5.0)
        while True:
            try:
                status, _, body = await self._session.ask(
                    "GET", f"{_of(received)}/news?wait={ASK_WAIT_SECONDS:g}", within=ASK_WAIT_SECONDS + _ANSWER_SECONDS
                )
            except (NodesAway, NodeLost):
                status, body = 503, b""
            if status == 204:
                retry.worked()
                continue
            said = wire.error_of(status, body)
            if status == 200 or not isinstance(said, _PASSING):
                return said
            await asyncio.sleep(retry.failed())

    async def _answer_soon(self, received: ReceivedRequest, answered: WorkerAnswer) -> None:
        task = asyncio.create_task(self.answer(received, answered), name=f"answer to {received.id}")
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        await asyncio.wait([task], timeout=_SLOT_FREE_SECONDS)

    async def rest(self) -> None:
        """Wait until no answer is on its way."""
        while self._answers:
            await asyncio.wait(self._answers)

    async def close(self) -> None:
        """Give up the answers that are on their way, and end the connections of handlers in threads."""
        answers = list(self._answers)
        if answers:
            log.warning(
                "answers are given up, as this worker ends and their nodes did not take them",
                extra={"answers": len(answers)},
            )
        for task in answers:
            task.cancel()
        await asyncio.gather(*answers, return_exceptions=True)
        await asyncio.to_thread(self._connections.close)

    async def answer(self, received: ReceivedRequest, answered: WorkerAnswer) -> None:
        """Have the node take an answer. Logs where it does not count."""
        try:
            if answered.failure is None:
                await self._say(received, "response", answered.body, answered.headers, answered.streams)
            else:
                await self._say(received, "failure", answered.failure.encode())
        except TooLarge as error:
            if answered.failure is None:
                await self.answer(received, WorkerAnswer(failure=str(error)))
        except RelayError as error:
            log.warning("an answer does not count", extra={"endpoint": received.endpoint, "reason": str(error)})
            if not isinstance(error, NodeLost | RedisAway):  # of these it is not known
                await self._drop(answered.streams)

    async def give_back(self, received: ReceivedRequest) -> None:
        """Have the node give the request, which was not begun, to another worker."""
        try:
            await self._say(received, "return", b"")
        except RelayError as error:
            log.warning("a request cannot be given back", extra={"endpoint": received.endpoint, "reason": str(error)})

    async def _say(
        self,
        received: ReceivedRequest,
        what: str,
        body: bytes,
        headers: Mapping[str, str] = MappingProxyType({}),
        streams: Mapping[str, StreamEntry] = MappingProxyType({}),
    ) -> None:
        """Say what became of a request until the node has heard it. Raises what the node answers."""
        lost = False
        if received.connection is not None:
            try:
                if what == "failure":
                    return await received.connection.say(received.id, what, b"", {"reason": body.decode()})
                named = {"streams": wire.notes_of(streams)} if streams else {}
                return await received.connection.say(received.id, what, body, {"headers": dict(headers), **named})
            except NodeLost:
                lost = True
            except _PASSING as error:
                log.info("an answer is sent once more", extra={"endpoint": received.endpoint, "reason": str(error)})
        try:
            await self._say_over_http(received, what, body, headers, streams)
        except UnknownRequest:
            # The node had heard it before the connection ended.
            if not lost:
                raise

    async def _say_over_http(
        self,
        received: ReceivedRequest,
        what: str,
        body: bytes,
        headers: Mapping[str, str],
        streams: Mapping[str, StreamEntry],
    ) -> None:
        shown = {"Content-Type": "application/octet-stream", **wire.dump_streams(streams)}
        if headers:
            shown[wire.HEADERS_HEADER] = wire.dump_headers(headers)
        until = asyncio.get_running_loop().time() + RETRY_ANSWER_SECONDS
        retry = Retry(first=0.2, limit=5.0)
        while True:
            try:
                status, _, said = await self._session.ask(
                    "POST", f"{_of(received)}/{what}", headers=shown, body=body, within=_ANSWER_SECONDS
                )
                if status == 204:
                    return
                raise wire.error_of(status, said)
            except _PASSING:
                pause = retry.failed()
                if asyncio.get_running_loop().time() + pause > until:
                    raise
                await asyncio.sleep(pause)


def _of(received: ReceivedRequest) -> str:
    return f"{received.url}{wire.REQUESTS}/{received.id}"
