"""The errors between a program and its broker, a class for each that callers handle differently.

The first sentence of a class's docstring is its default message. No message holds a password: addresses are written
without it, and exceptions of the AMQP library while connecting are never chained.
"""

from __future__ import annotations

from osrdyne_protocol.errors import OsrdyneError


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


class Unencodable(OsrdyneError, ValueError):
    """AMQP cannot carry this value; nothing was sent."""
