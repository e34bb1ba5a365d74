"""The broker's half of a channel: takes a client's operations in order, answers, delivers and confirms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from simulation.model import history
from simulation.model.entries import CHANNEL, NACK, REJECT, Consumer, UnsettledDelivery
from simulation.model.message import Message
from simulation.model.refusals import Refusal
from simulation.model.server_publishing import ClientChannel, ServerPublishing
from simulation.model.stall import Wait

if TYPE_CHECKING:
    from simulation.model.lane import Lane
    from simulation.model.queue import Queue
    from simulation.model.server import ServerConnection


class ServerChannel(ServerPublishing):
    """One open channel."""

    def __init__(self, connection: ServerConnection, number: int, client: ClientChannel, down: Lane) -> None:
        super().__init__(connection, number, client, down)
        self._prefetch = 0
        self._consumers: dict[str, Consumer] = {}
        self._held: dict[int, UnsettledDelivery] = {}
        self._delivered = 0

    @property
    def down_last(self) -> float:
        """When the last of what was sent arrives."""
        return self._down.last

    # --- operations that are answered ---

    def call(self, operation: Callable[..., Any], *arguments: Any) -> None:
        """Do an operation and answer; a refusal closes the channel or the connection."""
        if not self.open:
            return
        try:
            answer = operation(self, *arguments)
        except Refusal as refusal:
            self.refuse(refusal)
        else:
            if isinstance(answer, Wait):
                then = partial(self.call, answer.then)
                self.wait(answer.queue, answer.seconds, then, until_deleted=answer.until_deleted)
            else:
                self._down.send(self._client.answered, answer)

    def refuse(self, refusal: Refusal) -> None:
        if refusal.ends_connection:
            self.connection.refuse(refusal)
            return
        self._broker.record(
            history.CHANNEL_CLOSED, self.connection.name, detail=(self.number, refusal.code, refusal.text)
        )
        self.end()
        self._down.send(self._client.closed, refusal.code, refusal.text)

    def qos(self, prefetch: int) -> None:
        self._prefetch = prefetch

    def turn_on_confirms(self) -> None:
        self._confirming = True

    # --- consuming ---

    def consume(self, queue: Queue, tag: str, no_ack: bool) -> None:
        consumer = self._consumers[tag] = Consumer(tag, self, queue, no_ack, self._prefetch)
        self._broker.record(history.CONSUMING, self.connection.name, queue.name, detail=tag)
        # The answer leaves before the first delivery.
        self._broker.loop.call_soon(self._begin, consumer)

    def _begin(self, consumer: Consumer) -> None:
        if self.open and not consumer.queue.deleted and consumer.tag in self._consumers:
            consumer.queue.add_consumer(consumer)

    def cancel(self, tag: str) -> None:
        if tag == self.reply_tag:
            self.reply_tag = None
        consumer = self._consumers.pop(tag, None)
        if consumer is not None:
            consumer.queue.cancel_consumer(consumer)

    def cancel_by_broker(self, consumer: Consumer, why: str) -> None:
        if self._consumers.pop(consumer.tag, None) is not None:
            self._tell_cancelled(consumer, why)

    def _tell_cancelled(self, consumer: Consumer, why: str) -> None:
        queue = consumer.queue.name
        self._broker.record(history.CONSUMER_CANCELLED, self.connection.name, queue, detail=why)
        self._down.send(self._client.consumer_cancelled, consumer.tag)

    def time_out(self, consumer: Consumer, limit: float) -> None:
        """A delivery of this consumer is older than the consumer timeout."""
        if self._broker.version == "4.0":
            if self.stall is not None:
                self.put_behind(self.time_out, (consumer, limit))
                return
            self.refuse(Refusal(406, f"PRECONDITION_FAILED - delivery acknowledgement timed out ({limit:g} s)"))
        elif not consumer.suspended:
            consumer.suspended = True
            self._tell_cancelled(consumer, "consumer timeout")

    def deliver(self, held: UnsettledDelivery) -> None:
        self._delivered = held.tag = number = self._delivered + 1
        entry = held.entry
        if not held.consumer.no_ack:
            self._held[number] = held
        headers = held.queue.headers_of(entry)
        self._down.send(self._client.delivered, held.consumer.tag, number, entry.redelivered, entry.message, headers)

    def deliver_reply(self, message: Message, tag: str) -> None:
        """Deliver to the consumer of direct reply-to."""
        if self.open:
            self._delivered += 1
            headers = message.properties["headers"]
            self._down.send(self._client.delivered, tag, self._delivered, False, message, headers)

    # --- settling ---

    def ack(self, number: int, multiple: bool, sent: float) -> None:
        for held in self._take(number, multiple):
            self._broker.record(history.ACKED, self.connection.name, held.queue.name, held.entry.message, sent)
            held.queue.settle(held)

    def reject(self, number: int, requeue: bool) -> None:
        for held in self._take(number, False):
            if requeue:
                held.queue.requeue(held, REJECT)
            else:
                self._broker.record(history.REJECTED, self.connection.name, held.queue.name, held.entry.message)
                held.queue.reject(held)

    def nack(self, number: int) -> None:
        for held in self._take(number, False):
            held.queue.requeue(held, NACK)

    def _take(self, number: int, multiple: bool) -> list[UnsettledDelivery]:
        if not self.open:
            return []
        if multiple:
            tags = [tag for tag in self._held if tag <= number or not number]
            return [self._held.pop(tag) for tag in tags]
        held = self._held.pop(number, None)
        if held is None:
            self.refuse(Refusal(406, f"PRECONDITION_FAILED - unknown delivery tag {number}"))
            return []
        return [held]

    # --- the end ---

    def end(self) -> None:
        """The channel is gone: what it holds comes back to its queues, once it does not wait any more."""
        if not self.open:
            return
        self.open = False
        stall = self.stall
        if stall is not None and self._broker.running:
            self._down.release(send=False)
            stall.then = self._give_back
            stall.behind.clear()
            self._broker.lingering[self] = None
        else:
            self._give_back()

    def _give_back(self) -> None:
        self._broker.lingering.pop(self, None)
        for consumer in list(self._consumers.values()):
            consumer.queue.cancel_consumer(consumer)
        held = list(self._held.values())
        self._held.clear()
        for delivery in held:
            delivery.queue.requeue(delivery, CHANNEL)
        self._consumers.clear()

    def end_at_once(self) -> None:
        """The broker ends: the channel does not wait any more."""
        self.forget_stall()
        self._give_back()

    def close(self) -> None:
        """The client closes it."""
        if self.open:
            self.end()
            self._down.send(self._client.closed, 0, "")
