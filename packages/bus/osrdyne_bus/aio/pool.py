"""Calls to the workers of a pool over AMQP 1.0, with the answers and errors of the client of pools."""

from __future__ import annotations

import itertools
import math
import secrets
import time
from collections.abc import Awaitable, Mapping
from typing import TypeVar
from urllib.parse import quote, unquote

from osrdyne_bus.addresses import RabbitMQ, Scheme
from osrdyne_bus.addresses.rabbitmq import QUEUES
from osrdyne_bus.aio.bus import REFUSED, AsyncBus
from osrdyne_bus.aio.senders import AnyAddress
from osrdyne_bus.errors import (
    BusClosed,
    DeliveryFailure,
    DeliveryRejected,
    InvalidTarget,
    LinkRefused,
    MessageTooLarge,
    MessagingError,
    MessagingTimeout,
    OutcomeUnknown,
    PeerLost,
    RepliesLost,
    SendTimedOut,
    UnsendableMessage,
)
from osrdyne_bus.messages.envelopes import Envelope, Header, checked_body, checked_headers
from osrdyne_bus.messages.wire import NO_HEADERS, read_reply
from osrdyne_calls.errors import (
    AccessRefused,
    BodyTooLarge,
    BrokerError,
    CallTimeout,
    ClientClosed,
    Nacked,
    ReplyAddressLost,
    Unconfirmed,
    Undeliverable,
    Unencodable,
)
from osrdyne_calls.limits import MAX_BODY, lifetime
from osrdyne_calls.replies import Reply
from osrdyne_protocol import keys
from osrdyne_protocol.durations import timeout_of
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_protocol.headers import X_DEADLINE
from osrdyne_protocol.names import PoolNames

Result = TypeVar("Result")


class AsyncPoolClient:
    """Calls the workers of a pool on RabbitMQ, cold keys included. Any number of clients share a bus.

    It raises what the client of pools raises (`osrdyne_calls.errors`).
    """

    def __init__(
        self, bus: AsyncBus, pool: str, *, timeout: float = 60.0, max_body: int = MAX_BODY, resend: bool = True
    ) -> None:
        """Prepare a client; nothing is sent.

        `timeout`: seconds that a call waits unless it says otherwise. `max_body`: most bytes of a request. `resend`: a
        request that was not acknowledged when the connection broke is sent again, so that a worker may see it twice;
        False fails it with Unconfirmed instead. Raises InvalidPoolName.
        """
        self._bus = bus
        self._exchange = PoolNames(pool).request_exchange
        self._timeout = timeout_of(timeout)
        self._max_body = max_body
        self._resend = resend
        self._casts = itertools.count()
        self._prefix = secrets.token_hex(8)

    async def call(
        self,
        key: str,
        body: bytes,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Header] = NO_HEADERS,
        deadline: bool = True,
    ) -> Reply:
        """Send a request to the workers of `key` and return their answer, as `AsyncClient.call`."""
        within = self._timeout if timeout is None else timeout_of(timeout)
        to, sent, fields = self._prepared(key, body, headers, within if deadline and within != math.inf else None)

        def request(name: str, reply_to: str) -> Envelope:
            # Workers speak AMQP 0-9-1, where a reply goes to the name of a queue.
            queue = unquote(reply_to.removeprefix(QUEUES))
            return Envelope(sent, to=to, correlation_id=name, reply_to=queue, headers=fields, durable=True)

        found = await self._sent(key, within, self._bus.call(self._link, request, within, resend=self._resend))
        answer = read_reply(found)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def cast(
        self, key: str, body: bytes, *, timeout: float | None = None, headers: Mapping[str, Header] = NO_HEADERS
    ) -> None:
        """Send a request without a reply; return once the broker has it. As `AsyncClient.cast`."""
        within = self._timeout if timeout is None else timeout_of(timeout)
        to, sent, fields = self._prepared(key, body, headers, None)
        name = f"{self._prefix}-cast-{next(self._casts):x}"
        request = Envelope(sent, to=to, correlation_id=name, headers=fields, durable=True)
        await self._sent(key, within, self._bus.send(self._link, request, within, resend=self._resend))

    def _prepared(
        self, key: str, body: bytes, headers: Mapping[str, Header], timeout: float | None
    ) -> tuple[str, bytes, Mapping[str, Header]]:
        """Return address, body and headers of a request. Raises errors of the client of pools."""
        address = f"/exchanges/{quote(self._exchange, safe='')}/{quote(keys.decode(key), safe='')}"
        try:
            body, fields = checked_body(body), checked_headers(headers)
        except UnsendableMessage as error:
            raise Unencodable(str(error)) from None
        if len(body) > self._max_body:
            raise BodyTooLarge(
                f"body of {len(body)} bytes; this client sends at most {self._max_body} (max_body)",
                size=len(body),
                limit=self._max_body,
            )
        if timeout is not None:
            # So that the answer "expired" comes before the caller stops waiting.
            fields[X_DEADLINE] = int((time.time() + lifetime(timeout)) * 1000)
        return address, body, fields

    async def _sent(self, key: str, within: float, sending: Awaitable[Result]) -> Result:
        """Return what comes of sending. Raises errors of the client of pools only."""
        try:
            return await sending
        except MessagingError as error:
            raise error_for(error, key, within) from error

    def _link(self, scheme: Scheme) -> AnyAddress:
        """Return the link of this pool's requests, whatever their keys: these come and go."""
        if not isinstance(scheme, RabbitMQ):
            raise InvalidTarget("pools are on RabbitMQ: the peer is another one, or the setting `addressing` says so")
        return AnyAddress(self._exchange)


def error_for(error: MessagingError, key: str, within: float) -> OsrdyneError:
    """Return the error of the client of pools for one of the bus."""
    match error:
        case BusClosed():
            return ClientClosed(str(error))
        case MessagingTimeout():
            return CallTimeout(f"no reply within {within:g} s for key {key!r}; the broker has the request")
        case SendTimedOut():
            where = "the broker may have the request" if error.sent else "the request was not sent"
            return CallTimeout(f"nothing within {within:g} s for key {key!r}; {where}")
        case MessageTooLarge():
            text = f"a message of {error.size} bytes; this broker takes at most {error.limit} (max_message_size)"
            return BodyTooLarge(text, size=error.size, limit=error.limit)
        case UnsendableMessage():
            return Unencodable(str(error))
        case RepliesLost():
            return ReplyAddressLost(str(error))
        case DeliveryRejected() | LinkRefused() | OutcomeUnknown() if error.condition == REFUSED:
            return AccessRefused(str(error))
        case PeerLost() | OutcomeUnknown():
            return Unconfirmed(f"the broker may have the request for key {key!r} or not: {error}")
        case _:
            return _not_taken(error, key)


def _not_taken(error: MessagingError, key: str) -> OsrdyneError:
    if isinstance(error, DeliveryRejected) and error.condition != "amqp:not-found":
        return Nacked(f"the broker did not accept the request for key {key!r}: its queue is full")
    if isinstance(error, DeliveryFailure | DeliveryRejected):
        return Undeliverable(
            f"nothing takes requests: the pool is not set up in this virtual host ({error}); apply its topology, "
            "and check it with `osrdyne lint`"
        )
    return BrokerError(str(error))
