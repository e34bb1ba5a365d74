"""The client's own `Connection` and `Channel`, whose hot path (publish, settle, deliver) leads into the model.

In the real client it leads past pika into frames; all the rest is the client's own code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from osrdyne_amqp import Channel, Connection, Properties
from osrdyne_amqp import Message as Delivery
from osrdyne_amqp.channels import publishing
from osrdyne_amqp.codec import frames
from osrdyne_amqp.codec.table import read_table
from osrdyne_amqp.codec.table_writing import write_table
from osrdyne_amqp.errors import BrokerError, ConnectionLost, Returned, Unencodable
from simulation.model.message import Message

if TYPE_CHECKING:
    from simulation.model.raw_channel import RawChannel
    from simulation.model.server_channel import ServerChannel
    from simulation.model.wire import Wire

#: Types that a header value may have to be the same after its way over the wire.
_PLAIN = (str, int, bool, bytes, type(None))
#: What can be written without a trial: texts of so many characters, integers below this.
_SHORT, _LARGE = 100, 2**62


class ModelChannel(Channel):
    """The client's `Channel`, whose hot path leads to the model instead of into frames."""

    def attach(self, raw: RawChannel, wire: Wire) -> None:
        self._raw = raw
        self._model = wire
        raw.channel = self
        # A set of futures has another order in each run.
        self._calls._waiting = _InOrder()  # type: ignore[assignment]

    def _emit(
        self, exchange: str, routing_key: str | bytes, body: bytes, values: Mapping[str, Any], mandatory: bool
    ) -> None:
        known = (exchange, routing_key, mandatory)
        if known not in self._methods:
            # A channel of the real client writes it again where it is not kept, and keeps so many.
            if len(self._methods) >= publishing._METHOD_CACHE_SIZE:
                self._methods.clear()
            self._methods[known] = frames.publish_method(self._number, exchange, routing_key, mandatory)
        if values["user_id"] is not None and values["user_id"] != self._model.user:
            raise Unencodable("user_id is not that of this connection; the broker would close the channel")
        if type(body) is not bytes:
            if not isinstance(body, (bytes, bytearray, memoryview)):
                raise Unencodable(f"a message body must be bytes, not {type(body).__name__}")
            body = bytes(body)
        if not _is_small(values):
            size = 14 + len(frames.write_properties(values)[1])
            if size + frames.FRAME_OVERHEAD > self._model.frame_max:
                raise Unencodable(f"headers and properties need {size} bytes")
        raw = self._raw
        if self._model.sends("publish") and raw.server is not None:
            if isinstance(routing_key, bytes):
                routing_key = frames.read_short(frames.write_short(routing_key, "routing key"), 0)[0]
            sent_at = self._model.broker.now
            raw.up.send(raw.server.publish, exchange, routing_key, _as_sent(values), body, mandatory, sent_at)

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        if server := self._settles("ack"):
            self._raw.up.send(server.ack, tag, multiple, self._model.broker.now)

    def reject(self, tag: int, *, requeue: bool) -> None:
        if server := self._settles("reject"):
            self._raw.up.send(server.reject, tag, requeue)

    def give_back(self, tag: int) -> None:
        if server := self._settles("nack"):
            self._raw.up.send(server.nack, tag)

    def _settles(self, what: str) -> ServerChannel | None:
        if self._reason is not None:
            raise self._reason.again()
        return self._raw.server if self._model.sends(what) else None

    # --- from the broker ---

    def deliver(self, tag: str, number: int, redelivered: bool, message: Message, headers: Any) -> None:
        if self._reason is not None:
            return
        raw_tag = tag.encode()
        consumer = self._consumers.get(raw_tag)
        if consumer is None:  # a consume whose caller gave up
            if raw_tag not in self._no_ack:
                self.give_back(number)
            return
        properties = Properties.__new__(Properties)
        properties.__dict__ = {**message.properties, "headers": None if headers is None else dict(headers)}
        try:
            consumer.on_message(
                Delivery(message.body, message.exchange, message.routing_key, properties, number, redelivered)
            )
        except Exception as error:  # noqa: BLE001 - whatever a callback of the program raises
            self._fail(error)

    def give_return(self, code: int, text: str, message: Message) -> None:
        where = f"exchange {message.exchange!r}" if message.exchange else "the default exchange"
        error = Returned(
            f"{where} has no queue for routing key {message.routing_key!r} ({code} {text})",
            code=code,
            reply_text=text,
            exchange=message.exchange,
            routing_key=message.routing_key,
        )
        values = message.properties
        found = self._confirms is not None and self._confirms.returned(
            error, values["headers"], values["correlation_id"]
        )
        if not found and self.on_return is not None:
            properties = Properties()
            properties.__dict__.update(values)
            self.on_return(error, properties)

    def settle_publish(self, number: int, multiple: bool, accepted: bool) -> None:
        if self._confirms is not None:
            self._confirms.settle(number, multiple, accepted)

    def killed(self, reason: BrokerError) -> None:
        """The program is gone: later calls fail, what waits stays waiting."""
        if self._reason is None:
            self._reason = reason
            self._calls._reason = reason
            self._consumers.clear()


class ModelConnection(Connection):
    """The client's `Connection`, whose channels are `ModelChannel`s."""

    def _adopt(self, channel: Channel, raw: Any, opened: asyncio.Future[None]) -> None:
        super()._adopt(channel, raw, opened)
        # `Connection.channel` makes the class itself; only methods differ.
        channel.__class__ = ModelChannel
        assert isinstance(channel, ModelChannel)
        channel.attach(raw, self._wire)

    def killed(self) -> None:
        for channel in self._channels:
            assert isinstance(channel, ModelChannel)
            channel.killed(ConnectionLost(f"{self.where}: the connection was closed by this program"))


class _InOrder(dict[asyncio.Future[Any], None]):
    """A set that is iterated in the order of adding."""

    def add(self, future: asyncio.Future[Any]) -> None:
        self[future] = None

    def discard(self, future: asyncio.Future[Any]) -> None:
        self.pop(future, None)


def _is_small(values: Mapping[str, Any]) -> bool:
    """Say whether properties are so plain that they can be written, and fit, without trying."""
    headers = values["headers"] or {}
    if "CC" in headers or "BCC" in headers or not all(map(_is_plain, headers.values())):
        return False
    if not all(type(name) is str and _is_plain(name) for name in headers):
        return False
    return all(value is None or _is_simple(name, value) for name, value in values.items() if name != "headers")


def _is_simple(name: str, value: object) -> bool:
    if name in ("correlation_id", "reply_to"):
        return type(value) is str and _is_plain(value)
    return name == "delivery_mode" and value == 2


def _is_plain(value: object) -> bool:
    if type(value) is str:
        return len(value) <= _SHORT and value.isascii()
    return type(value) is int and 0 <= value < _LARGE


def _as_sent(values: Mapping[str, Any]) -> dict[str, Any]:
    """The properties as the other side reads them: what the sender changes later does not matter."""
    sent = dict(values)
    headers = sent["headers"]
    if headers is not None:
        if all(type(header) in _PLAIN for header in headers.values()):
            sent["headers"] = dict(headers)
        else:
            sent["headers"] = read_table(write_table(headers))[0]
    return sent
