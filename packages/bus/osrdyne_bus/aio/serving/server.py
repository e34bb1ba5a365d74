"""Servers of requests, for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import platform
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, Self

from osrdyne_bus.aio.bus import AsyncBus
from osrdyne_bus.aio.serving.consumer import Consumer
from osrdyne_bus.aio.serving.replies import Replies
from osrdyne_bus.endpoints import Endpoint, NoSuchMethod, answer_to, answer_to_failure, find, late
from osrdyne_bus.engine import IncomingMessage
from osrdyne_bus.messages.wire import BusRequest, read_request
from osrdyne_bus.server_status import NAMESPACE, PING, VERSION, ServerStatus, described
from osrdyne_bus.targets import Target
from osrdyne_calls.handling import Outcome, Reject, Requeue, WorkerError
from osrdyne_calls.runners import is_async
from osrdyne_protocol import statuses
from osrdyne_protocol.events import REQUEUED
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)


class AsyncBusServer(Consumer):
    """Serves the requests for any server of a topic, for this one, and for all. Use it with `async with`."""

    def __init__(
        self,
        bus: AsyncBus,
        target: Target,
        endpoints: Sequence[Endpoint],
        *,
        concurrency: int = 64,
        acknowledge: Literal["start", "end"] = "start",
        executor: concurrent.futures.Executor | None = None,
    ) -> None:
        """Prepare a server; nothing is received before it starts. `target` has to name it in `server`.

        It has a method more, `ping` of the namespace `osrdyne`, by which `osrdyne bus ping` finds it. Raises ValueError
        for an endpoint of that namespace.

        `concurrency`: handlers that run at once. Further requests wait here, as many as the credit allows.

        `acknowledge`: with "start" a request is acknowledged before its handler begins. Then a cast ends for its
        caller, and a request is lost where this program dies meanwhile. With "end" it is acknowledged when its handler
        ends: a broker gives it to another server where this program dies, so that a handler may run twice; and a
        handler may raise Requeue.

        `executor`: where plain handlers run instead of in threads. With processes, a handler is a function of a module.
        Give `concurrency` no more than it has workers: further requests then wait in other servers' reach.
        """
        super().__init__(bus, concurrency, f"osrdyne bus server {target.topic}", executor, answer_to, _failed)
        self._target = target
        if any(endpoint.namespace == NAMESPACE for endpoint in endpoints):
            raise ValueError(f"the namespace {NAMESPACE!r} has the methods of all servers; take another one")
        self._endpoints = (*endpoints, self._own_methods(described(endpoints)))
        self._settles_at_start = acknowledge == "start"
        self._replies = Replies(bus)
        #: Requests whose handlers run.
        self._unanswered: dict[asyncio.Task[Any], BusRequest] = {}

    @property
    def lost_replies(self) -> int:
        """Replies that could not be sent."""
        return self._replies.lost

    def _own_methods(self, endpoints: tuple[str, ...]) -> Endpoint:
        async def ping(_: BusRequest) -> bytes:
            return ServerStatus(
                server=self._target.server or "",
                host=platform.node(),
                process=os.getpid(),
                endpoints=endpoints,
                waiting=len(self._waiting),
                running=len(self._running) - 1,  # without this one
                concurrency=self._concurrency,
                lost_replies=self.lost_replies,
            ).to_json()

        made = Endpoint(NAMESPACE, VERSION)
        made.add(PING, ping)
        return made

    async def start(self, timeout: float | None = None) -> None:
        """Attach the three subscriptions, and return when they can be reached from everywhere.

        Over a mesh that is when all routers know them, where the routers say so (docs/howto/bus-peers.md). Takes
        `timeout` seconds at most, by default the setting `start_timeout`; `math.inf` to wait for the peer without an
        end. Raises StartTimedOut, InvalidTarget, LinkRefused, PeerLost, BusClosed, InvalidTimeout. Nothing is received
        after it has raised, and it may be started again.
        """
        target = self._target
        await self._subscribe(
            (
                lambda scheme: scheme.shared(target),
                lambda scheme: scheme.server(target),
                lambda scheme: scheme.fanout_subscription(target),
            ),
            self._bus.settings.server_credit,
            timeout,
        )

    async def stop(self) -> None:
        """Take no more requests, give back those not begun, and return when the rest is answered. Safe to repeat."""
        await super().stop()
        if not self._is_elsewhere:
            await self._replies.drained()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def _handle(self, incoming: IncomingMessage) -> None:
        request = read_request(incoming.envelope)
        if (answer := late(request, time.time())) is None:
            try:
                handler = find(self._endpoints, request)
            except NoSuchMethod as error:
                answer = answer_to_failure(error)
                if not request.wants_reply:
                    log.warning("a cast was rejected", extra={"method": request.method, "reason": str(error)})
                    incoming.reject("osrdyne:no-such-method", str(error))
            else:
                if self._settles_at_start:
                    incoming.accept()
                answer = await self._answered(handler, request, incoming)
        elif not request.wants_reply:
            # A router may have held any number of them.
            level = logging.DEBUG if answer.status == statuses.EXPIRED else logging.WARNING
            log.log(level, "a cast was rejected", extra={"method": request.method, "reason": answer.reason})
            incoming.reject(f"osrdyne:{answer.status}", answer.reason or "")
        incoming.accept()
        if request.reply_to is not None and answer is not None:
            self._replies.send(request.reply_to, request, answer)

    async def _answered(self, handler: Any, request: BusRequest, incoming: IncomingMessage) -> Outcome | None:
        """Return what the handler says; None where the request went back, or its caller has another answer."""
        task = asyncio.current_task()
        assert task is not None
        self._unanswered[task] = request
        try:
            answer = await self._answer(handler, request, incoming)
            return answer if task in self._unanswered else None
        finally:
            self._unanswered.pop(task, None)

    def _given_up(self, task: asyncio.Task[None]) -> None:
        # A request that is not acknowledged goes back with its link.
        request = self._unanswered.pop(task, None) if self._settles_at_start else None
        if request is not None and request.reply_to is not None:
            stopped = "the server stopped before its handler had ended, which may have done its work"
            self._replies.send(request.reply_to, request, Outcome(statuses.ERROR, reason=stopped))

    async def _answer(self, handler: Any, request: BusRequest, incoming: IncomingMessage) -> Outcome | None:
        """Return what the handler says; None where the request went back."""
        outcome = await self._run(handler if is_async(handler) else partial(_in_time, handler), request)
        if outcome.status != REQUEUED:
            return outcome
        if not self._settles_at_start:
            incoming.release()
            return None
        return Outcome(
            statuses.ERROR, reason="the handler gave the request back, which this server acknowledged before"
        )


def _in_time(handler: Any, request: BusRequest) -> Any:
    """Run a plain handler, unless its caller has left while it waited for the executor."""
    return late(request, time.time()) or handler(request)


def _failed(request: BusRequest, error: BaseException) -> Outcome:
    if isinstance(error, Requeue):
        return Outcome(REQUEUED)
    if not isinstance(error, Reject | WorkerError):
        log.error("the handler of a request failed", extra={"method": request.method}, exc_info=error)
    return answer_to_failure(error)
