"""The errors between a program and its broker, a class for each that callers handle differently.

Those that the bus has, too, are made in `osrdyne_calls.errors`. The first sentence of a class's docstring is its
default message. No message holds a password: addresses are written without it, and exceptions of the AMQP library while
connecting are never chained.
"""

from __future__ import annotations

from osrdyne_calls.errors import AccessRefused, BrokerError, Nacked, Unencodable

__all__ = ["AccessRefused", "BrokerError", "BrokerTimeout", "BrokerUnreachable", "ChannelClosed", "ConnectionLost"]
__all__ += ["ConsumerFailed", "InvalidUri", "Locked", "Nacked", "NotFound", "PreconditionFailed", "Returned"]
__all__ += ["TlsFailed", "Unencodable"]


class InvalidUri(BrokerError):
    """The broker URI cannot be read."""


class BrokerUnreachable(BrokerError):
    """No AMQP broker answers at this address."""


class TlsFailed(BrokerUnreachable):
    """No TLS session could be agreed with the broker."""


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
