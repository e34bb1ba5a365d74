"""The errors with which a call can end, a class for each that callers handle differently.

Every class is an `OsrdyneError`, and the first sentence of its docstring is its default message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osrdyne_calls.waits import Wait
from osrdyne_protocol import statuses
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_protocol.headers import X_EXPIRED_AT, X_RETRY_AFTER, integer, text

__all__ = ["AccessRefused", "BodyTooLarge", "BrokerError", "CallError", "CallTimeout", "ClientClosed"]
__all__ += ["DeliveryLimit", "Expired", "InvalidRequest", "KeyRefused", "MaxLength", "Nacked", "NoFreeSlot"]
__all__ += ["REMOTE_ERRORS", "Rejected", "RemoteError", "ReplyAddressLost", "StartFailed", "Throttled", "Unconfirmed"]
__all__ += ["Undeliverable", "Unencodable", "Unroutable", "WorkerFailed"]


class BrokerError(OsrdyneError):
    """The broker, or the way to it, failed."""

    #: the broker's AMQP reply code (403, 404, 405, 406, 320, 501, ...); 501 also where the broker's own
    #: frames cannot be read; 0: the reason is not the broker's
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


class AccessRefused(BrokerError):
    """The broker refused access (403, or 530 while connecting)."""


class Nacked(BrokerError):
    """The broker did not accept the message (negative confirm: a full queue or a broker failure)."""


class Unencodable(OsrdyneError, ValueError):
    """AMQP cannot carry this value; nothing was sent."""


class CallError(OsrdyneError):
    """A request was not answered."""


class NoFreeSlot(CallError):
    """Every slot of this client waits for a reply; wait for some, or open the client with more slots."""


class CallTimeout(CallError):
    """Nothing came back in time; whether the request was or will be served is unknown."""

    def __init__(self, message: str | None = None, *, wait: Wait | None = None) -> None:
        super().__init__(message)
        #: How far the request had come, as the text says, too.
        self.wait = wait


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
        """Where its time ran out: `orphan`, `start` or `queue` (`osrdyne_protocol.expiry`); None when not known."""
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


class _Later(RemoteError):
    """Another try may succeed later."""

    @property
    def retry_after(self) -> float | None:
        """Seconds after which another try may succeed; None when not known."""
        milliseconds = integer(self.headers, X_RETRY_AFTER)
        return None if milliseconds is None else max(0, milliseconds) / 1000


class Throttled(_Later):
    """The request would wake a new key, and its user or the pool may have no more for now."""


class StartFailed(_Later):
    """Workers of this key could not be started, several times in a row; the reason says why."""


class WorkerFailed(RemoteError):
    """A worker took the request and answered that it cannot serve it; the body says why."""


#: The class for each status; RemoteError itself is for every other status.
REMOTE_ERRORS: Mapping[str, type[RemoteError]] = {
    statuses.EXPIRED: Expired,
    statuses.DELIVERY_LIMIT: DeliveryLimit,
    statuses.MAXLEN: MaxLength,
    statuses.REJECTED: Rejected,
    statuses.INVALID_KEY: KeyRefused,
    statuses.INVALID_REQUEST: InvalidRequest,
    statuses.UNROUTABLE: Unroutable,
    statuses.THROTTLED: Throttled,
    statuses.START_FAILED: StartFailed,
    statuses.ERROR: WorkerFailed,
}
