"""One AMQP channel: publish with confirms, consume, settle, declare.

Publishing, confirms, deliveries and settling go straight to and from the wire (`frames`); calls that the
broker answers (declare, bind, consume, ...) go through pika's channel, each with a timeout. A channel ends
once, with one reason: every pending future fails with it and `wait_closed` returns it. Nothing here logs a
message's content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from osrdyne_amqp.channels.acknowledgements import Acknowledgements
from osrdyne_amqp.channels.pending_calls import PendingCalls
from osrdyne_amqp.channels.publishing import PublishingChannel
from osrdyne_amqp.codec import frames
from osrdyne_amqp.codec.arguments import check_binding, check_name, checked_arguments
from osrdyne_amqp.codec.content import Content
from osrdyne_amqp.connecting.wire import Wire
from osrdyne_amqp.errors import BrokerError, ChannelClosed, ConsumerFailed
from osrdyne_amqp.message import Message, Properties, QueueInfo
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)


class _Consumer(NamedTuple):
    on_message: Callable[[Message], None]
    on_cancel: Callable[[], None]


class Channel(PublishingChannel):
    """A channel of a `Connection`, made by `Connection.channel`. Use it only in the thread of its event loop."""

    def __init__(self, wire: Wire, pika_channel: Any, *, confirm: bool, timeout: float) -> None:
        super().__init__(wire, pika_channel.channel_number, confirm=confirm)
        self._pika = pika_channel
        self._closed: asyncio.Future[BrokerError] = wire.loop.create_future()
        self._calls = PendingCalls(wire, timeout)
        self._content = Content(self._fail, frames.longest_read(wire.frame_max))
        self._acknowledgements = Acknowledgements()
        self._consumers: dict[bytes, _Consumer] = {}
        self._no_ack: set[bytes] = set()

    async def wait_closed(self) -> BrokerError:
        """Wait until the channel ends, however it does, and return why."""
        return await asyncio.shield(self._closed)

    # --- settling ---

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Acknowledge a delivery, with `multiple` all older ones too. Raises the channel's reason when it ended: the
        broker has requeued the message.

        The acknowledgements of one iteration of the loop leave together, as few as possible (`acknowledgements`).
        """
        if self._reason is not None:
            raise self._reason.again()
        if self._acknowledgements.add(tag, multiple=multiple):
            self._wire.gather(self._send_acks)

    def _send_acks(self) -> None:
        for tag, multiple in self._acknowledgements.take():
            self._wire.emit(frames.ack(self._number, tag, multiple))

    def reject(self, tag: int, *, requeue: bool) -> None:
        """Refuse a delivery: requeued it counts towards the delivery limit, else it is dead-lettered. Raises
        as `ack`.
        """
        if self._reason is not None:
            raise self._reason.again()
        self._acknowledgements.refused(tag)
        self._wire.emit(frames.reject(self._number, tag, requeue))

    def give_back(self, tag: int) -> None:
        """Return a delivery that was not begun to its queue (basic.nack): RabbitMQ 4.3 does not count it, 4.0 does."""
        if self._reason is not None:
            raise self._reason.again()
        self._acknowledgements.refused(tag)
        self._wire.emit(frames.nack(self._number, tag, requeue=True))

    # --- receiving ---

    def receive(self, kind: int, data: bytes, at: int, stop: int) -> bool:
        """Handle the frame whose payload is data[at:stop]; False: it is one for pika. Called by the wire."""
        if kind == frames.METHOD:
            return self._receive_method(data, at)
        return self._content.receive(kind, data, at, stop)

    def _receive_method(self, data: bytes, at: int) -> bool:
        method = data[at : at + 4]
        if method == frames.DELIVER:
            self._receive_delivery(data, at)
        elif method == frames.RETURN:
            self._content.begin(self._returned(data, at))
        elif self._confirms is None:
            return False
        elif method == frames.ACK:
            self._confirms.settle(*frames.read_confirm(data, at), accepted=True)
        elif method == frames.NACK:
            self._confirms.settle(*frames.read_confirm(data, at), accepted=False)
        else:
            return False
        return True

    def _receive_delivery(self, data: bytes, at: int) -> None:
        consumer_tag, tag, redelivered, exchange, routing_key = frames.read_deliver(data, at)
        consumer = self._consumers.get(consumer_tag)

        def complete(properties: Properties, malformed: str | None, body: bytes, properties_size: int) -> None:
            if consumer is None:  # the caller of this consume gave up: its messages go back to the queue
                if consumer_tag not in self._no_ack:
                    self._wire.emit(frames.nack(self._number, tag, requeue=True))
            else:
                if consumer_tag not in self._no_ack:
                    self._acknowledgements.delivered(tag)
                consumer.on_message(
                    Message(body, exchange, routing_key, properties, tag, redelivered, malformed, properties_size)
                )

        self._content.begin(complete)

    # --- consuming ---

    async def consume(
        self,
        queue: str,
        on_message: Callable[[Message], None],
        *,
        on_cancel: Callable[[], None],
        no_ack: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """Consume and return the consumer tag. `on_message` is called from before this returns until `cancel`
        has.

        `on_cancel` is called when the broker cancels the consumer (its queue is gone, or it let a message
        wait for longer than the consumer timeout). Both are plain functions and must not block. When one
        raises, the channel is closed with ConsumerFailed: a message it did not handle must not stay with it.
        """
        check_name(queue, "queue")
        checked = checked_arguments(arguments, self._wire.frame_max)
        tag = self._wire.new_consumer_tag(self._pika)
        self._consumers[tag.encode()] = _Consumer(on_message, on_cancel)
        if no_ack:
            self._no_ack.add(tag.encode())

        def start(callback: Callable[[Any], None]) -> None:
            self._pika.basic_consume(
                queue,
                _pika_must_not_deliver,
                auto_ack=no_ack,
                consumer_tag=tag,
                arguments=checked,
                callback=callback,
            )

        def give_up() -> None:
            if self._reason is None:
                self._pika.basic_cancel(tag)

        try:
            await self._calls.do(f"consume from queue {queue!r}", start, late=give_up)
        except BaseException:
            self._consumers.pop(tag.encode(), None)
            raise
        return tag

    async def cancel(self, consumer_tag: str) -> None:
        """Stop a consumer; its caller still settles its open deliveries. Does nothing for an unknown consumer."""
        raw = consumer_tag.encode()
        consumer = self._consumers.get(raw)
        if consumer is None:
            return
        self._consumers[raw] = consumer._replace(on_cancel=_nothing)
        await self._calls.do(
            "cancel a consumer", lambda callback: self._pika.basic_cancel(consumer_tag, callback=callback)
        )
        self._consumers.pop(raw, None)
        self._no_ack.discard(raw)

    def cancelled_by_broker(self, consumer_tag: str) -> None:
        """Called by the connection for the broker's basic.cancel."""
        consumer = self._consumers.pop(consumer_tag.encode(), None)
        if consumer is None:
            return
        self._no_ack.discard(consumer_tag.encode())
        if self._reason is None:
            # RabbitMQ 4.3 only suspends a consumer at its timeout, and delivers to it again once it has settled its
            # open deliveries: these would be lost here. This ends it for good, and has no effect where it has ended.
            self._wire.emit(frames.cancel(self._number, consumer_tag.encode()))
        try:
            consumer.on_cancel()
        except Exception as error:  # noqa: BLE001 - whatever a callback raises
            self._fail(error)

    # --- calls that the broker answers ---

    async def declare_queue(
        self,
        name: str,
        *,
        passive: bool = False,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> QueueInfo:
        """Declare a queue, or with `passive` only look at it. A refusal closes the channel.

        Raises NotFound (passive), Locked (exclusive to another connection), PreconditionFailed (exists with
        other arguments), AccessRefused. An empty name lets the broker choose one.
        """
        check_name(name, "queue")
        checked = checked_arguments(arguments, self._wire.frame_max)
        answer = await self._calls.do(
            f"declare queue {name!r}",
            lambda callback: self._pika.queue_declare(
                name,
                passive=passive,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=checked,
                callback=callback,
            ),
        )
        return QueueInfo(answer.method.queue, answer.method.message_count, answer.method.consumer_count)

    async def bind_queue(self, queue: str, exchange: str, routing_key: str) -> None:
        """Bind; doing it again changes nothing. Raises NotFound when queue or exchange is missing."""
        check_binding(queue, exchange, routing_key)
        await self._calls.do(
            f"bind queue {queue!r} to exchange {exchange!r}",
            lambda callback: self._pika.queue_bind(queue, exchange, routing_key, callback=callback),
        )

    async def unbind_queue(self, queue: str, exchange: str, routing_key: str) -> None:
        """Unbind; where there is no such binding, nothing happens."""
        check_binding(queue, exchange, routing_key)
        await self._calls.do(
            f"unbind queue {queue!r} from exchange {exchange!r}",
            lambda callback: self._pika.queue_unbind(queue, exchange, routing_key, callback=callback),
        )

    async def delete_queue(self, queue: str) -> int:
        """Delete a queue with all it holds; returns how many ready messages that was. Of no such queue: 0."""
        check_name(queue, "queue")
        answer = await self._calls.do(
            f"delete queue {queue!r}", lambda callback: self._pika.queue_delete(queue, callback=callback)
        )
        return int(answer.method.message_count)

    async def start(self, *, prefetch: int | None) -> None:
        """Set up a channel that was just opened. Called by the connection."""
        if prefetch is not None:
            await self.limit(prefetch)
        if self._confirms is not None:
            await self._calls.do(
                "turn on confirms",
                lambda callback: self._pika.confirm_delivery(_pika_must_not_deliver, callback=callback),
            )

    async def limit(self, prefetch: int) -> None:
        """Limit each consumer that starts from now on to this many unsettled messages."""
        await self._calls.do(
            f"set the prefetch to {prefetch}",
            lambda callback: self._pika.basic_qos(prefetch_count=prefetch, callback=callback),
        )

    # --- the end ---

    async def close(self) -> None:
        """Close the channel; messages it has not settled go back to their queues. Never raises, takes 1 s at most."""
        self.finish(ChannelClosed("the channel was closed by this program"))
        await self._wire.close_channel(self._pika)

    def forget_calls(self) -> None:
        """Drop pending calls, so that a close need not wait for them. Called by the connection."""
        self._wire.forget_calls(self._pika)

    def _fail(self, error: Exception) -> None:
        """A callback raised: what it did with its message is unknown, so the broker gets all of them back."""
        log.error("callback failed, its channel is closed", exc_info=error)
        reason = ConsumerFailed(f"a callback of this program raised {type(error).__name__}: {error}")
        reason.__cause__ = error
        self.finish(reason)
        self._wire.begin_close_channel(self._pika)

    def finish(self, reason: BrokerError) -> None:
        """End the channel with a reason; later reasons are ignored. Also called by the connection."""
        if self._reason is not None:
            return
        self._reason = reason
        if self._confirms is not None:
            self._confirms.fail(reason)
        self._calls.fail(reason)
        self._content.stop()
        self._consumers.clear()
        self._closed.set_result(reason)


def _nothing() -> None:
    """Ignore that the broker cancels a consumer that this program is cancelling."""


def _pika_must_not_deliver(*_: Any) -> None:
    raise AssertionError("deliveries and confirms do not pass pika")
