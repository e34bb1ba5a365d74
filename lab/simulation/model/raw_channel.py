"""The client's half of a channel: what the client's own `Channel` sees where pika's would be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pika import exceptions as pika_errors

from simulation.model import history, operations
from simulation.model.lane import Lane
from simulation.model.message import Message
from simulation.model.server_channel import ServerChannel

if TYPE_CHECKING:
    from simulation.model.client import ModelChannel
    from simulation.model.wire import Wire


class RawChannel:
    """One channel as the client's `Channel` sees pika's: calls wait for one another."""

    def __init__(self, wire: Wire, number: int) -> None:
        assert wire.server is not None
        self.channel_number = number
        self.is_closed = False
        self.is_closing = False
        self.channel: ModelChannel | None = None
        self.server: ServerChannel | None = None
        self.up = Lane(wire.loop, wire.broker.rng, wire.broker.timing, wire.server.arrive, wire.broker.context)
        self._wire = wire
        self._connection = wire.server
        self._on_close: list[Callable[[Any, Exception], None]] = []
        self._on_cancel: Callable[[Any], None] = ignore
        #: the call that waits for its answer, and those behind it
        self._waiting: Callable[[Any], None] | None = None
        self._behind: deque[tuple[str, tuple[Any, ...], Callable[[Any], None]]] = deque()

    def open(self, opened: Callable[[Any], None]) -> None:
        def on_open(server: ServerChannel) -> None:
            self.server = server
            opened(self)

        self.up.send(self._connection.open_channel, self.channel_number, self, on_open)

    def add_on_close_callback(self, callback: Callable[[Any, Exception], None]) -> None:
        self._on_close.append(callback)

    def add_on_cancel_callback(self, callback: Callable[[Any], None]) -> None:
        self._on_cancel = callback

    # --- calls ---

    def queue_declare(
        self,
        name: str,
        *,
        passive: bool,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Mapping[str, Any],
        callback: Callable[[Any], None],
    ) -> None:
        def answered(info: Any) -> None:
            method = SimpleNamespace(queue=info.name, message_count=info.ready, consumer_count=info.consumers)
            callback(SimpleNamespace(method=method))

        self._call(
            "look" if passive else "declare",
            (operations.declare, name, passive, durable, exclusive, auto_delete, arguments),
            answered,
        )

    def queue_bind(self, queue: str, exchange: str, routing_key: str, *, callback: Callable[[Any], None]) -> None:
        self._call("bind", (operations.bind, queue, exchange, routing_key), callback)

    def queue_unbind(self, queue: str, exchange: str, routing_key: str, *, callback: Callable[[Any], None]) -> None:
        self._call("unbind", (operations.unbind, queue, exchange, routing_key), callback)

    def queue_delete(
        self, queue: str, *, if_unused: bool = False, if_empty: bool = False, callback: Callable[[Any], None]
    ) -> None:
        def answered(count: int) -> None:
            callback(SimpleNamespace(method=SimpleNamespace(message_count=count)))

        self._call("delete", (operations.delete, queue, if_unused, if_empty), answered)

    def basic_qos(self, prefetch_count: int, *, callback: Callable[[Any], None]) -> None:
        self._call("qos", (operations.qos, prefetch_count), callback)

    def confirm_delivery(self, _: Any, *, callback: Callable[[Any], None]) -> None:
        self._call("confirms", (operations.confirms,), callback)

    def basic_consume(
        self,
        queue: str,
        _: Any,
        *,
        auto_ack: bool,
        consumer_tag: str,
        arguments: Mapping[str, Any],
        callback: Callable[[Any], None],
    ) -> None:
        self._call("consume", (operations.consume, queue, consumer_tag, auto_ack), callback)

    def basic_cancel(self, consumer_tag: str, *, callback: Callable[[Any], None] | None = None) -> None:
        self._call("cancel", (operations.cancel, consumer_tag), callback or ignore)

    def _call(self, what: str, operation: tuple[Any, ...], callback: Callable[[Any], None]) -> None:
        if self.is_closed or self.is_closing or self._wire.is_closed or self._wire.killed:
            raise pika_errors.ChannelWrongStateError("closed")
        if self._waiting is not None:
            self._behind.append((what, operation, callback))
            return
        self._begin(what, operation, callback)

    def _begin(self, what: str, operation: tuple[Any, ...], callback: Callable[[Any], None]) -> None:
        self._waiting = callback
        if self._wire.sends(what) and self.server is not None:
            least, most = self._wire.broker.timing.work
            work = least + (most - least) * self._wire.broker.rng.random()
            self.up.send(self.server.call, *operation, work=work)

    def answered(self, answer: Any) -> None:
        if self.is_closing:
            return
        callback, self._waiting = self._waiting, None
        if callback is not None:
            callback(answer)
        if self._behind and self._waiting is None:
            self._begin(*self._behind.popleft())

    def forget_calls(self) -> None:
        self._behind.clear()

    def close(self) -> None:
        """Ask the broker to close the channel."""
        if self.is_closed or self.is_closing:
            return
        self.is_closing = True
        if self.server is not None and self._wire.sends("close channel"):
            self.up.send(self.server.close)

    # --- from the broker ---

    def delivered(self, tag: str, number: int, redelivered: bool, message: Message, headers: Any) -> None:
        if self.channel is not None and not self.is_closing:
            self.channel.deliver(tag, number, redelivered, message, headers)

    def returned(self, code: int, text: str, message: Message) -> None:
        if self.channel is not None:
            self._wire.broker.record(history.RETURNED, self._wire.name, message.exchange, message)
            self.channel.give_return(code, text, message)

    def settled(self, number: int, multiple: bool, accepted: bool, messages: list[Message]) -> None:
        if self.channel is not None:
            kind = history.CONFIRMED if accepted else history.NACKED
            for message in messages:
                self._wire.broker.record(kind, self._wire.name, message.exchange, message)
            self.channel.settle_publish(number, multiple, accepted)

    def consumer_cancelled(self, tag: str) -> None:
        if not self.is_closing:
            self._on_cancel(SimpleNamespace(method=SimpleNamespace(consumer_tag=tag)))

    def closed(self, code: int, text: str) -> None:
        self._wire.raws.pop(self.channel_number, None)
        by_client = not code or self.is_closing
        self.ended(
            pika_errors.ChannelClosedByClient(200, "closed")
            if by_client
            else pika_errors.ChannelClosedByBroker(code, text)
        )

    def ended(self, error: Exception) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._behind.clear()
        for callback in self._on_close:
            callback(self, error)


def ignore(*_: Any) -> None:
    """No caller waits for this."""
