"""Queues and exchanges of RabbitMQ, declared over AMQP 1.0.

RabbitMQ makes nothing when a link is attached. From 4.0 it takes requests at `/management`, in the form of HTTP: method
and path, an answer with a status (github.com/rabbitmq/rabbitmq-server, deps/rabbitmq_amqp_client; the extension
"HTTP over AMQP").
"""

from __future__ import annotations

import asyncio
import enum
import itertools
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from osrdyne_bus.addresses.rabbitmq import QueueDeclaration
from osrdyne_bus.credit import CreditWindow
from osrdyne_bus.engine.connection import BusConnection
from osrdyne_bus.engine.senders import SendLink
from osrdyne_bus.engine.subscriptions import IncomingMessage, Subscription
from osrdyne_bus.errors import LinkRefused, MessagingError, SendTimedOut
from osrdyne_bus.messages.envelopes import Envelope
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)

#: Seconds for the broker to answer.
ANSWER_SECONDS = 10.0
#: Credit for answers.
MOST_ANSWERS = 64
#: The queue is there and is another one. Whether it will do is seen when it is attached to.
_LEFT_ALONE = "409"
_REFUSED = "the management refused a request"


class _Result(enum.Enum):
    """What the broker did."""

    DONE = enum.auto()
    LEFT_ALONE = enum.auto()
    MISSING = enum.auto()


class RabbitMQNodes:
    """Declares queues on the broker of one connection. It attaches to the broker's management when that is needed."""

    def __init__(self, connection: BusConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        # One request at a time: the broker ends the link for one that it refuses, and with it all others.
        self._lock = asyncio.Lock()
        self._links: tuple[SendLink, Subscription] | None = None
        #: The number of the request, and its answer.
        self._waiting: tuple[int, asyncio.Future[Envelope]] | None = None

    async def _attached(self) -> SendLink:
        """Return the link to the broker's management. Raises LinkRefused and PeerLost."""
        if self._links is None or not (self._links[0].is_open and self._links[1].is_open):
            self._links = await self._connection.pair("/management", CreditWindow(MOST_ANSWERS), self._answered)
        return self._links[0]

    async def declare(self, queue: QueueDeclaration) -> None:
        """Make a queue, and the exchange that it is bound to, unless they are there. Raises MessagingError.

        Where the user may not declare it, or it is there with other arguments, nothing is changed: infrastructure code
        may have declared it.
        """
        body = {"durable": True, "arguments": dict(queue.arguments)}
        done = await self._ask("PUT", f"/queues/{_part(queue.name)}", body)
        if queue.exchange is not None and done is _Result.DONE:
            path = f"/exchanges/{_part(queue.exchange)}"
            if await self._ask("PUT", path, {"durable": True, "type": "fanout", "arguments": {}}) is _Result.DONE:
                binding = {"source": queue.exchange, "destination_queue": queue.name, "binding_key": ""}
                await self._ask("POST", "/bindings", {**binding, "arguments": {}})

    async def has(self, name: str) -> bool:
        """Return whether there is a queue of this name, or whether the user may not know. Raises MessagingError."""
        return await self._ask("GET", f"/queues/{_part(name)}", None) is not _Result.MISSING

    async def delete(self, name: str) -> None:
        """Delete a queue. Raises MessagingError."""
        await self._ask("DELETE", f"/queues/{_part(name)}", None)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> _Result:
        """Ask the broker for something. Raises MessagingError."""
        async with self._lock:
            try:
                request = Envelope(id=next(self._numbers), to=path, reply_to="$me", subject=method)
                said = await self._answer(request, body)
            except LinkRefused as refused:
                if refused.condition == "amqp:unauthorized-access":
                    log.debug(_REFUSED, extra={"method": method, "path": path, "reason": str(refused)})
                    return _Result.LEFT_ALONE
                raise
        status = said.subject or ""
        if status == _LEFT_ALONE:
            log.debug(_REFUSED, extra={"method": method, "path": path, "reason": status})
            return _Result.LEFT_ALONE
        if status == "404":
            return _Result.MISSING
        if not status.startswith("2"):
            why = said.body.decode(errors="replace") or "it gave no reason"
            raise MessagingError(f"{self._connection.peer} answered {method} {path} with {status or '?'}: {why}")
        return _Result.DONE

    async def _answer(self, request: Envelope, body: Mapping[str, Any] | None) -> Envelope:
        link = await self._attached()
        answer: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        assert isinstance(request.id, int)
        assert self._links is not None
        self._waiting = (request.id, answer)

        def ended(why: MessagingError) -> None:
            if not answer.done():
                answer.set_exception(why)

        answers = self._links[1]
        answers.on_end = ended
        try:
            if answers.ended is not None:
                raise answers.ended.with_traceback(None)
            await link.send(request, ANSWER_SECONDS, value=body)
            async with asyncio.timeout(ANSWER_SECONDS):
                return await answer
        except (TimeoutError, SendTimedOut):
            what = f"{request.subject} {request.to}"
            raise MessagingError(f"{self._connection.peer} did not answer {what} within {ANSWER_SECONDS:g} s") from None
        finally:
            self._waiting = None
            if answer.done() and not answer.cancelled():
                answer.exception()  # the wait may have ended before

    def _answered(self, incoming: IncomingMessage) -> None:
        incoming.accept()
        if self._waiting is not None:
            number, answer = self._waiting
            if incoming.envelope.correlation_id == number and not answer.done():
                answer.set_result(incoming.envelope)


def _part(name: str) -> str:
    return quote(name, safe="")
