"""Queues: which consumer gets a message, what comes back, and how they end.

One class for quorum and classic queues, which differ in few rules; `Stream` only counts.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from simulation.model import history
from simulation.model.contents import Contents
from simulation.model.entries import CHANNEL, REJECT, TIMEOUT, Consumer, Entry, UnsettledDelivery
from simulation.model.policies import Rules
from simulation.model.samples import Samples

if TYPE_CHECKING:
    from simulation.model.objects import Objects
    from simulation.model.stall import Stall

#: What is a failed delivery of a quorum queue, by the broker's version. 4.3 limits these, 4.0 all hand-outs.
_FAILURES = {"4.0": (CHANNEL,), "4.3": (REJECT, CHANNEL)}
#: Of ten messages, how many RabbitMQ 4.3.6 leaves with their consumer for ever, where the queue has served others
#: before. Up to three were measured (docs/reference/rabbitmq-facts.md).
_OVERLOOKED_OF_TEN = 2


class Queue(Contents):
    """A quorum or classic queue."""

    def __init__(self, broker: Objects, name: str, kind: str, **properties: Any) -> None:
        super().__init__(broker, name, kind, **properties)
        #: exchange and routing key of each, in the order of binding
        self.bindings: dict[tuple[str, str], None] = {}
        #: the channels that wait for it, a lost one: what to call with each when it is deleted
        self.waiting: dict[Stall, Callable[[Stall], None]] = {}
        self._timeouts: asyncio.TimerHandle | None = None
        self._unused: asyncio.TimerHandle | None = None

    # --- out ---

    def pump(self) -> None:
        """Deliver what can be delivered."""
        while self._fresh or self._returned:
            consumer = self._free_consumer()
            if consumer is None or not self._expire_head(self._loop.time()):
                break
            entry = (self._returned or self._fresh).popleft()
            self._deliver(entry, consumer)
        self._watch_head()

    def _free_consumer(self) -> Consumer | None:
        consumers = self.consumers
        for _ in range(len(consumers)):
            one = consumers[0]
            consumers.rotate(-1)
            if not one.cancelled and not one.suspended and (one.no_ack or not one.prefetch or one.held < one.prefetch):
                return one
        return None

    def _deliver(self, entry: Entry, consumer: Consumer) -> None:
        self.sampled()
        self.delivered += 1
        self._broker.record(
            history.DELIVERED,
            consumer.channel.connection.name,
            self.name,
            entry.message,
            entry.redelivered,
        )
        held = UnsettledDelivery(entry, self, consumer, 0, self._loop.time())
        if not consumer.no_ack:
            self.unacked[entry] = held
            consumer.held += 1
            if self._broker.version != "4.0" and self.delivered > 1:
                held.overlooked = zlib.crc32(f"{self.name} {entry.message.id}".encode()) % 10 < _OVERLOOKED_OF_TEN
            if self.rules.consumer_timeout is not None and self._timeouts is None:
                self._watch_timeouts(self.rules.consumer_timeout)
        consumer.channel.deliver(held)
        entry.acquired += 1

    # --- settling ---

    def settle(self, held: UnsettledDelivery) -> None:
        """The delivery was acknowledged."""
        if held.taken_back:
            held.consumer.suspended = False
        self._release(held)
        if not self.deleted:
            self.pump()

    def reject(self, held: UnsettledDelivery) -> None:
        """Refused without requeue."""
        self._release(held)
        if not self.deleted and not held.taken_back:
            held.entry.failures += 1
            self._leave(held.entry, "rejected")
            self.pump()

    def requeue(self, held: UnsettledDelivery, how: str) -> None:
        """The delivery comes back."""
        self._release(held)
        if self.deleted or held.taken_back:
            return
        entry = held.entry
        entry.redelivered = True
        self._broker.record(history.REQUEUED, held.consumer.channel.connection.name, self.name, entry.message, how)
        if self._failed_too_often(entry, how):
            self._leave(entry, "delivery_limit")
            self.pump()
            return
        self._put_back(entry, how)
        self._watch_head()
        self.pump()

    def _failed_too_often(self, entry: Entry, how: str) -> bool:
        counted = how in _FAILURES[self._broker.version]
        entry.failures += counted
        limit = self.rules.delivery_limit
        if limit is None or self.kind != "quorum":
            return False
        if self._broker.version == "4.0":
            return entry.acquired > limit
        return counted and entry.failures > limit

    def _put_back(self, entry: Entry, how: str) -> None:
        if self.kind == "classic":
            before = sum(1 for message in self._fresh if message.order < entry.order)
            self._fresh.insert(before, entry)
        elif how != CHANNEL and self.rules.delivery_limit is None and self._broker.version == "4.0":
            self._fresh.append(entry)
        else:
            self._returned.append(entry)

    def headers_of(self, entry: Entry) -> Mapping[str, Any] | None:
        """The headers with which a message is delivered: those about earlier deliveries are the broker's."""
        headers: Mapping[str, Any] | None = entry.message.properties["headers"]
        acquired = entry.acquired or entry.message.failures
        if self.kind != "quorum" or not acquired:
            return headers
        if self._broker.version == "4.0":
            return {**(headers or {}), "x-delivery-count": acquired}
        failures = {"x-delivery-count": entry.failures} if entry.failures else {}
        return {**(headers or {}), **failures, "x-acquired-count": acquired}

    def _release(self, held: UnsettledDelivery) -> None:
        if held.taken_back:
            return
        self.sampled()
        if self.unacked.pop(held.entry, None) is not None:
            held.consumer.held -= 1
            if held.consumer.cancelled and not held.consumer.held:
                self._forget_consumer(held.consumer)

    # --- consumers ---

    def add_consumer(self, consumer: Consumer) -> None:
        self.sampled()
        if not self.consumers:
            self.unserved_before = (self.unserved_since, self._loop.time())
        self.consumers.append(consumer)
        self._used()
        self.pump()

    def cancel_consumer(self, consumer: Consumer) -> None:
        """Deliver nothing more to it; what it holds stays its own."""
        consumer.cancelled = True
        if not (self.kind == "quorum" and consumer.held):
            self._forget_consumer(consumer)

    def _forget_consumer(self, consumer: Consumer) -> None:
        self.sampled()
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        if not self.consumers and not self.deleted:
            self.unserved_since = self._loop.time()
            self.watch_unused()
            if self.auto_delete:
                self._broker.remove_queue(self, by=consumer.channel.connection.name)

    def _watch_timeouts(self, after: float) -> None:
        # 4.0 looks once a minute, 4.3 in time.
        late = self._broker.rng.random() * 60.0 if self._broker.version == "4.0" else 0.01
        self._timeouts = self._loop.call_later(after + late, self._time_out)

    def _time_out(self) -> None:
        self._timeouts = None
        limit = self.rules.consumer_timeout
        if self.deleted or limit is None:
            return
        now = self._loop.time()
        watched = [delivery for delivery in self.unacked.values() if not delivery.overlooked]
        late = [delivery for delivery in watched if now - delivery.acquired_at >= limit]
        for held in late:
            if self.unacked.get(held.entry) is held:
                held.consumer.channel.time_out(held.consumer, limit)
                if self._broker.version != "4.0":
                    self.requeue(held, TIMEOUT)
                    held.taken_back = True
        waiting = [delivery.acquired_at for delivery in self.unacked.values() if not delivery.overlooked]
        if waiting:
            self._watch_timeouts(max(0.0, min(waiting) + limit - now))

    # --- life of the queue itself ---

    def lose(self) -> None:
        """The broker has lost what the queue held; up to RabbitMQ 4.2 the queue itself, too, until it is deleted."""
        broker = self._broker
        self.lost = broker.version == "4.0"
        broker.record(history.LOST_BY_BROKER, place=self.name, detail=history.FOR_GOOD if self.lost else history.EMPTY)
        for what, entries in self.by_state():
            for entry in entries:
                broker.record(history.LOST_BY_BROKER, place=self.name, message=entry.message, detail=what)
        for held in self.unacked.values():
            held.taken_back = True
        for part in (self._returned, self._fresh, self.unacked, self.dead_lettering, self.consumers):
            part.clear()
        self.samples = Samples()
        self._stop_timers()

    def _used(self) -> None:
        if self._unused is not None:
            self._unused.cancel()
            self._unused = None

    def watch_unused(self) -> None:
        """Count from now on how long the queue is unused."""
        self._used()
        if self.rules.expires is not None and not self.consumers and not self.lost:
            self._unused = self._loop.call_later(self.rules.expires, self._broker.remove_queue, self, "expires")

    def apply(self, rules: Rules) -> None:
        """The queue's policy has changed."""
        if self.rules.at_least_once and not rules.at_least_once and self.dead_lettering:
            self.sampled()
            for entry in self.dead_lettering:
                self._broker.record(history.DROPPED, place=self.name, message=entry.message, detail="policy")
            self.dead_lettering.clear()
        self.rules = rules
        if rules.max_length is not None and not rules.reject_publish:
            self._drop_head(rules.max_length)
        self.watch_unused()

    def end(self) -> None:
        """The queue is gone."""
        self.deleted = True
        self._stop_timers()
        for stall, wake in self.waiting.items():
            self._loop.call_soon(wake, stall)

    def _stop_timers(self) -> None:
        for timer in (self._expiry, self._timeouts, self._unused):
            if timer is not None:
                timer.cancel()
        self._expiry = self._timeouts = self._unused = None

    def restart(self) -> None:
        """The broker is back: no consumers, and what was not acknowledged is ready again."""
        self.consumers.clear()
        self.unserved_since = self._loop.time()
        self.samples = Samples()
        self.sampled()
        if self.kind == "classic":
            for lane in (self._returned, self._fresh):
                for entry in list(lane):
                    if entry.message.properties["delivery_mode"] != 2:
                        lane.remove(entry)
                        self._broker.record(
                            history.LOST, place=self.name, message=entry.message, detail="transient at a restart"
                        )
        self._watch_head()
        self.watch_unused()
