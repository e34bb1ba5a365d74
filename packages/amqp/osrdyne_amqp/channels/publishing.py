"""The publishing half of a channel: to the wire at once, and a future for each confirm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from osrdyne_amqp.channels.confirms import Confirms
from osrdyne_amqp.codec import frames
from osrdyne_amqp.codec.content import Complete
from osrdyne_amqp.connecting.wire import Wire
from osrdyne_amqp.errors import BrokerError, Returned, Unencodable
from osrdyne_amqp.message import Properties

#: Most method frames of basic.publish that are cached; a full cache is cleared.
_METHOD_CACHE_SIZE = 1024


class PublishingChannel:
    """Publishes on one channel; `Channel` adds the rest."""

    def __init__(self, wire: Wire, number: int, *, confirm: bool) -> None:
        self._wire = wire
        self._number = number
        #: why the channel has ended; None while it is open
        self._reason: BrokerError | None = None
        self._methods: dict[tuple[str, str | bytes, bool], bytes] = {}
        self._confirms = Confirms(str(number)) if confirm else None
        #: called with every return that no waiting publish is known for (`send` with mandatory)
        self.on_return: Callable[[Returned, Properties], None] | None = None

    @property
    def is_open(self) -> bool:
        return self._reason is None

    def publish(
        self,
        exchange: str,
        routing_key: str | bytes,
        body: bytes,
        properties: Properties | None = None,
        *,
        mandatory: bool = False,
        publish_id: str | None = None,
    ) -> asyncio.Future[None]:
        """Publish on a confirm channel; the future resolves when the broker has taken responsibility.

        It fails with Nacked, Returned (`mandatory` only), or the reason for which the channel ended; then the
        broker may have the message or not. A return is matched by the header `x-osrdyne-publish-id` (set
        where `publish_id` is given), else by the correlation id; where that is missing or not unique, a
        publish id is made up.

        Raises Unencodable, before anything is sent, for what AMQP cannot carry and for what makes brokers
        close the channel or connection, as far as it can be known here. A body over the broker's own limit
        (16 MiB unless configured) cannot: the broker closes the channel with PreconditionFailed, and all that
        waits on it fails.
        """
        return self._publish(exchange, routing_key, body, properties, mandatory, publish_id)

    def publish_final(
        self,
        exchange: str,
        routing_key: str | bytes,
        body: bytes,
        properties: Properties | None = None,
    ) -> asyncio.Future[bool]:
        """Publish like `publish(mandatory=True)`; the future resolves to False on a return (no queue), else to True."""
        return self._publish(exchange, routing_key, body, properties, mandatory=True, publish_id=None, final=True)

    def _publish(
        self,
        exchange: str,
        routing_key: str | bytes,
        body: bytes,
        properties: Properties | None,
        mandatory: bool,
        publish_id: str | None,
        *,
        final: bool = False,
    ) -> asyncio.Future[Any]:
        confirms = self._confirms
        if confirms is None:
            raise RuntimeError("this channel has no confirms: open it with confirm=True, or use send()")
        future: asyncio.Future[Any] = self._wire.loop.create_future()
        if self._reason is not None:
            future.set_exception(self._reason.again())
            return future
        values: Mapping[str, Any] = frames.NO_PROPERTIES if properties is None else properties.__dict__
        key: object = None
        if mandatory:
            key, values = confirms.key(values, publish_id)
        self._emit(exchange, routing_key, body, values, mandatory)
        confirms.add(future, key, final=final)
        return future

    def send(
        self,
        exchange: str,
        routing_key: str | bytes,
        body: bytes,
        properties: Properties | None = None,
        *,
        mandatory: bool = False,
    ) -> None:
        """Publish and forget. Raises Unencodable, or the reason for which the channel ended."""
        if self._reason is not None:
            raise self._reason.again()
        values = frames.NO_PROPERTIES if properties is None else properties.__dict__
        self._emit(exchange, routing_key, body, values, mandatory)
        if self._confirms is not None:
            self._confirms.add(None)

    def _emit(
        self, exchange: str, routing_key: str | bytes, body: bytes, values: Mapping[str, Any], mandatory: bool
    ) -> None:
        method = self._methods.get((exchange, routing_key, mandatory))
        if method is None:
            method = frames.publish_method(self._number, exchange, routing_key, mandatory)
            if len(self._methods) >= _METHOD_CACHE_SIZE:
                self._methods.clear()
            self._methods[exchange, routing_key, mandatory] = method
        user = values["user_id"]
        if user is not None and user != self._wire.user:
            raise Unencodable(
                f"user_id is {user!r}, but this connection logged in as {self._wire.user!r}; "
                "the broker would close the channel"
            )
        if type(body) is not bytes:
            if not isinstance(body, (bytes, bytearray, memoryview)):
                raise Unencodable(f"a message body must be bytes, not {type(body).__name__}")
            body = bytes(body)
        self._wire.emit(method + frames.content(self._number, values, body, self._wire.frame_max))

    def _returned(self, data: bytes, at: int) -> Complete:
        """What to do with the returned message, once it is all here, whose method's payload starts at `at`."""
        code, text, exchange, routing_key = frames.read_return(data, at)

        def complete(properties: Properties, malformed: str | None, body: bytes, size: int) -> None:  # noqa: ARG001
            where = f"exchange {exchange!r}" if exchange else "the default exchange"
            error = Returned(
                f"{where} has no queue for routing key {routing_key!r} ({code} {text})",
                code=code,
                reply_text=text,
                exchange=exchange,
                routing_key=routing_key,
            )
            found = self._confirms is not None and self._confirms.returned(
                error, properties.headers, properties.correlation_id
            )
            if not found and self.on_return is not None:
                self.on_return(error, properties)

        return complete
