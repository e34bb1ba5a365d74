"""What can go wrong between a program and its pool, a class for each thing that is handled differently.

The first sentence of a class's docstring is its default message. No message holds a password: addresses
are written without it, and what the AMQP library raised while connecting is never chained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osrdyne_protocol import statuses
from osrdyne_protocol.headers import X_EXPIRED_AT, text


class OsrdyneError(Exception):
    """Something went wrong in osrdyne."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().partition("\n")[0])


# --- the broker, and the way to it --------------------------------------------------------------------------


class BrokerError(OsrdyneError):
    """The broker, or the way to it, failed."""

    #: the broker's AMQP reply code (403, 404, 405, 406, 320, 501, ...); 0: the reason is not the broker's
    code: int

    def __init__(self, message: str | None = None, *, code: int = 0) -> None:
        super().__init__(message)
        self.code = code

    def again(self) -> BrokerError:
        """A fresh copy, so that every future that fails with it has a traceback of its own."""
        copy = type(self).__new__(type(self), *self.args)
        copy.args = self.args
        copy.__dict__.update(self.__dict__)
        copy.__cause__ = self.__cause__
        copy.__suppress_context__ = self.__suppress_context__
        return copy


class InvalidUri(BrokerError):
    """The broker URI cannot be read."""


class BrokerUnreachable(BrokerError):
    """No AMQP broker answers at this address."""


class TlsFailed(BrokerUnreachable):
    """No TLS session could be agreed with the broker."""


class AccessRefused(BrokerError):
    """The broker refused access (403, or 530 while connecting)."""


class ConnectionLost(BrokerError):
    """The connection to the broker ended."""


class ChannelClosed(BrokerError):
    """The channel ended."""


class NotFound(ChannelClosed):
    """The broker knows no such queue or exchange (404)."""


class Locked(ChannelClosed):
    """The queue is exclusive to another connection (405)."""


class PreconditionFailed(ChannelClosed):
    """The broker refused because of a state or property of the object or message (406)."""


class ConsumerFailed(ChannelClosed):
    """A callback of this program raised an exception, and its channel was closed."""


class BrokerTimeout(BrokerError):
    """The broker did not answer in time; whether it did what was asked is unknown."""


class Nacked(BrokerError):
    """The broker did not accept the message (negative confirm: a full queue or a broker failure)."""


class Returned(BrokerError):
    """The broker could not route the message to any queue and returned it."""

    def __init__(
        self,
        message: str | None = None,
        *,
        code: int = 0,
        reply_text: str = "",
        exchange: str = "",
        routing_key: str | bytes = "",
    ) -> None:
        super().__init__(message, code=code)
        #: the broker's own words, for example NO_ROUTE
        self.reply_text = reply_text
        self.exchange = exchange
        self.routing_key = routing_key


class HandlerHung(OsrdyneError):
    """A handler held a request for longer than the broker lets it, and cannot be ended but with its process."""


class Unencodable(OsrdyneError, ValueError):
    """AMQP cannot carry this value; nothing was sent."""


# --- calls --------------------------------------------------------------------------------------------------


class CallError(OsrdyneError):
    """A request was not answered."""


class NoFreeSlot(CallError):
    """Every slot of this client waits for a reply; wait for some, or open the client with more slots."""


class CallTimeout(CallError):
    """Nothing came back in time; whether the request was or will be served is unknown."""


class Undeliverable(CallError):
    """The pool is not set up on this broker; apply its topology, and check it with `osrdyne lint`."""


class Unconfirmed(CallError):
    """The connection ended before the broker confirmed the request; whether the broker has it is unknown."""


class ReplyAddressLost(CallError):
    """The connection ended, and the direct reply-to address of this call with it; the reply cannot arrive."""


class ClientClosed(CallError):
    """This client is closed."""


class BodyTooLarge(CallError, ValueError):
    """The body is larger than what may be sent."""

    def __init__(self, message: str | None = None, *, size: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        #: bytes of the body that was refused
        self.size = size
        #: most bytes that may be sent
        self.limit = limit


# --- error replies ------------------------------------------------------------------------------------------


class RemoteError(CallError):
    """The request was answered with a status that is not `ok`."""

    def __init__(
        self,
        message: str | None = None,
        *,
        status: str = "",
        body: bytes = b"",
        reason: str | None = None,
        correlation_id: str = "",
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        #: `x-status` of the reply; the table is `osrdyne_protocol.statuses`
        self.status = status
        self.body = body
        #: `x-reason` of the reply: a sentence for a person, where the peer sent one
        self.reason = reason
        self.correlation_id = correlation_id
        self.headers: Mapping[str, Any] = headers or {}


class Expired(RemoteError):
    """No worker took the request in time."""

    @property
    def stage(self) -> str | None:
        """Where its time ran out: `orphan`, `start` or `queue` (`osrdyne_protocol.stages`); None when nobody says."""
        return text(self.headers.get(X_EXPIRED_AT))


class DeliveryLimit(RemoteError):
    """Workers took the request and failed, too often; a copy is in the poison inventory."""


class MaxLength(RemoteError):
    """The request queue of this key is full."""


class Rejected(RemoteError):
    """A worker or the daemon refused the request; trying again will not help."""


class KeyRefused(RemoteError):
    """No worker can be given this key."""


class InvalidRequest(RemoteError):
    """The request cannot be forwarded as it is."""


class Unroutable(RemoteError):
    """The request was forwarded several times and found no queue each time."""


class WorkerFailed(RemoteError):
    """A worker took the request and answered that it cannot serve it; the body says why."""


#: Which class a status is raised as; RemoteError itself stands for every status that is not here.
REMOTE_ERRORS: Mapping[str, type[RemoteError]] = {
    statuses.EXPIRED: Expired,
    statuses.DELIVERY_LIMIT: DeliveryLimit,
    statuses.MAXLEN: MaxLength,
    statuses.REJECTED: Rejected,
    statuses.INVALID_KEY: KeyRefused,
    statuses.INVALID_REQUEST: InvalidRequest,
    statuses.UNROUTABLE: Unroutable,
    statuses.ERROR: WorkerFailed,
}
