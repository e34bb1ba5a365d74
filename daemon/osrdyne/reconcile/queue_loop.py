"""The queue loop: brings request queues to the target, with one action at a time for each key.

Reads the target and the listing of groups. Only this loop writes `state.queues`, and only it declares, binds, unbinds
and deletes request queues. A key has at most one action under way, so a deletion never races a declare.
The loop sets no targets: messages found in an unwanted queue are a fact, which makes the key Active.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from osrdyne.broker.channel_pool import ChannelPool
from osrdyne.broker.lifecycle_events import LifecycleEvents
from osrdyne.broker.management_api import ManagementApi
from osrdyne.errors import ManagementError
from osrdyne.metrics import Metrics
from osrdyne.reconcile import queue_rules
from osrdyne.reconcile.keyed_loop import KeyedLoop
from osrdyne.reconcile.queue_rules import Finding, MessagesFound, QueuePlan, QueueStep
from osrdyne.state.pool import PoolState
from osrdyne.state.values import Phase, QueueState
from osrdyne_amqp import Channel
from osrdyne_amqp.errors import BrokerError, Locked, NotFound, PreconditionFailed
from osrdyne_pool.broker import quorum
from osrdyne_pool.topology import request_queue_arguments
from osrdyne_protocol import events

log = logging.getLogger(__name__)


def adopt(state: PoolState, keys: Iterable[str]) -> None:
    """Begin a session with the existing queues of these keys, before any loop runs."""
    state.queues.clear()
    for key in keys:
        # Also keys that are wanted already: without a connection, no activity could renew them.
        state.require(key)
        state.queues.may_exist(key)


class QueueLoop:
    """Runs until cancelled; raises only when the connection is gone."""

    def __init__(
        self,
        state: PoolState,
        channels: ChannelPool,
        management: ManagementApi,
        lifecycle: LifecycleEvents,
        metrics: Metrics,
        *,
        statistics_interval: float,
        recheck: float,
        most: int,
        take_back: Callable[[str, Channel], Awaitable[bool]],
    ) -> None:
        """Take times in seconds: how late the broker's totals may be, and when to recheck a queue that others use.

        `most` is how many request queues there may be. `take_back` takes what waits in the queue of a key, and returns
        whether workers had taken any of it.
        """
        self._state = state
        self._channels = channels
        self._management = management
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._statistics_interval = statistics_interval
        self._recheck = recheck
        self._most = most
        self._take_back = take_back
        #: Keys that need a queue, which is made once there is room for it.
        self._waiting: dict[str, None] = {}
        #: What is done on a channel. A sample needs none.
        self._operations: dict[QueueStep, Callable[[str, QueueState, Channel], Awaitable[Finding]]] = {
            QueueStep.ASSERT: self._assert,
            QueueStep.UNBIND: self._unbind,
            QueueStep.LOOK: self._look,
            QueueStep.DELETE: self._delete,
            QueueStep.DISCARD: self._discard,
            QueueStep.REFUSE: self._refuse,
        }
        self._loop = KeyedLoop(state.clock, [state.tracker.changes, state.groups.changes, state.lost.changes])

    async def run(self) -> None:
        keys = (*self._state.tracker.wanted, *self._state.queues)
        await self._loop.run(self._look_at, keys=keys, afterwards=self._make_waiting)

    def _plan(self, key: str, queue: QueueState) -> QueuePlan:
        return queue_rules.plan(
            self._state.tracker.wanted.get(key),
            queue,
            group_gone=key not in self._state.groups,
            interval=self._statistics_interval,
            now=self._state.clock(),
            lost=key in self._state.lost.evidence.lost,
            refused_until=self._state.refused_until(key),
        )

    def _look_at(self, key: str) -> None:
        queue = self._state.queues.get(key) or QueueState(Phase.GONE)
        plan = self._plan(key, queue)
        self._waiting.pop(key, None)
        if plan.step is QueueStep.ASSERT and queue.phase is Phase.GONE:
            self._waiting[key] = None
        elif plan.step is not None:
            self._loop.begin(key, partial(self._act, key, queue, plan.step), f"queue-{plan.step.name.lower()}")
        elif plan.at is not None:
            self._loop.look_at(key, plan.at)
        elif queue.phase in (Phase.GONE, Phase.FOREIGN) and key not in self._state.tracker.wanted:
            self._state.queues.forget(key)
            self._state.lost.remade.pop(key, None)

    def _make_waiting(self) -> None:
        if not self._waiting:
            return
        queues = self._state.queues
        room = self._most - sum(queue.phase not in (Phase.GONE, Phase.FOREIGN) for queue in queues.values())
        for key in list(self._waiting)[: max(0, room)]:
            del self._waiting[key]
            action = partial(self._act, key, queues.may_exist(key), QueueStep.ASSERT)
            self._loop.begin(key, action, "queue-assert")

    async def _act(self, key: str, queue: QueueState, step: QueueStep) -> None:
        try:
            found = await self._take(key, queue, step)
        except (BrokerError, ManagementError, TimeoutError) as error:
            found = self._failed(key, queue, step, error)
        except Exception as error:
            # A bug with one key must not end the whole session.
            log.exception("queue action failed unexpectedly; it is tried again", extra={"key": key})
            found = queue_rules.after_failure(queue, step, f"{type(error).__name__}: {error}", now=self._state.clock())
        if isinstance(found, MessagesFound):
            log.info("messages found in an unwanted queue; the key is active again", extra={"key": key})
            self._state.require(key, found_unbound=True)
            found = found.queue
        self._state.queues.note(key, found)

    def _failed(self, key: str, queue: QueueState, step: QueueStep, error: Exception) -> QueueState:
        # The broker refuses one queue too many as it refuses other arguments.
        if isinstance(error, PreconditionFailed | Locked) and "queue limit" not in str(error):
            return self._left_alone(key, queue, str(error))
        log.warning(
            "queue action failed; it is tried again", extra={"key": key, "action": step.value, "reason": str(error)}
        )
        return queue_rules.after_failure(queue, step, str(error) or type(error).__name__, now=self._state.clock())

    def _left_alone(self, key: str, queue: QueueState, said: str) -> QueueState:
        if queue.phase is not Phase.FOREIGN:
            log.warning("a foreign queue has a request queue's name; left alone", extra={"key": key, "reason": said})
        return queue_rules.foreign(queue, self._state.names.request_queue(key), said, now=self._state.clock())

    async def _take(self, key: str, queue: QueueState, step: QueueStep) -> Finding:
        if step is QueueStep.SAMPLE:
            return await self._sample(key, queue)

        async def operation(channel: Channel) -> Finding:
            # It may have waited for the channel, and its key may be wanted again meanwhile, or not any more.
            return await self._operations[step](key, queue, channel) if self._plan(key, queue).step is step else queue

        # Keys that keep failing may hang, or have much to take back: they share half of the channels.
        suspect = queue.failures > 0 or step is QueueStep.REFUSE
        return await self._channels.run(operation, suspect=suspect)

    async def _assert(self, key: str, queue: QueueState, channel: Channel) -> QueueState:
        # Read before the first broker operation: an orphan that arrives meanwhile needs a later assertion.
        generation = self._state.tracker.generation
        name = self._state.names.request_queue(key)
        await channel.declare_queue(name, arguments=request_queue_arguments(key))
        if key in self._state.queues.unrouted:
            # The binding may be listed and route nothing; binding once more does not mend it
            # (docs/reference/rabbitmq-facts.md#bindings-that-route-nothing).
            self._state.queues.unrouted.discard(key)
            await channel.unbind_queue(name, self._state.names.request_exchange, key)
        await channel.bind_queue(name, self._state.names.request_exchange, key)
        if queue.phase is not Phase.BOUND:
            self._lifecycle.record(events.QUEUE_READY, key)
        return QueueState(Phase.BOUND, asserted=generation)

    async def _unbind(self, key: str, _: QueueState, channel: Channel) -> QueueState:
        name = self._state.names.request_queue(key)
        try:
            await channel.unbind_queue(name, self._state.names.request_exchange, key)
        except NotFound:
            return QueueState(Phase.GONE)
        self._lifecycle.record(events.UNBOUND, key)
        return QueueState(Phase.UNBOUND)

    async def _refuse(self, key: str, _: QueueState, channel: Channel) -> QueueState:
        name, consumed = self._state.names.request_queue(key), self._state.queues.consumed_until
        try:
            await channel.unbind_queue(name, self._state.names.request_exchange, key)
            consumed[key] = math.inf
            taken = await self._take_back(key, channel)
        except NotFound:
            return QueueState(Phase.GONE)
        finally:
            consumed[key] = self._state.clock()
        return QueueState(Phase.UNBOUND, emptied=True, taken_at=self._state.clock() if taken else None)

    async def _look(self, key: str, queue: QueueState, channel: Channel) -> Finding:
        try:
            seen = await channel.declare_queue(self._state.names.request_queue(key), passive=True)
        except NotFound:
            return QueueState(Phase.GONE)
        return queue_rules.after_look(
            queue,
            ready=seen.ready,
            consumers=seen.consumers,
            recheck=self._recheck,
            now=self._state.clock(),
        )

    async def _sample(self, key: str, queue: QueueState) -> Finding:
        totals = await self._management.totals(self._state.names.request_queue(key))
        if totals is None:
            return QueueState(Phase.GONE)
        if not totals.ours:
            return self._left_alone(key, queue, "as the management API lists it")
        return queue_rules.after_sample(queue, totals, recheck=self._recheck, now=self._state.clock())

    async def _delete(self, key: str, queue: QueueState, channel: Channel) -> Finding:
        sampled = await self._sample(key, queue)
        if not queue_rules.is_quiet_sample(sampled):
            return sampled
        looked = await self._look(key, queue, channel)
        if not queue_rules.is_quiet_look(looked):
            return looked
        if key in self._state.tracker.wanted or key in self._state.groups:
            return QueueState(Phase.UNKNOWN)
        await channel.delete_queue(self._state.names.request_queue(key))
        log.info("queue deleted", extra={"key": key})
        self._lifecycle.record(events.QUEUE_DELETED, key)
        return QueueState(Phase.GONE)

    async def _discard(self, key: str, queue: QueueState, channel: Channel) -> QueueState:
        """Delete a queue that the broker has lost. A queue that answers again stays."""
        name, exchange = self._state.names.request_queue(key), self._state.names.request_exchange
        self._state.lost.take(key, self._state.clock())
        # From here on its requests are orphans, which the daemon holds until the new queue is there.
        await channel.unbind_queue(name, exchange, key)
        members = await self._management.members(name)
        seen = await channel.declare_queue(name, passive=True)
        if members is None or not (quorum.never_led(members) and seen.ready == seen.consumers == 0):
            return queue_rules.after_failure(
                queue,
                QueueStep.DISCARD,
                "the broker answers for this queue again, which looked lost",
                now=self._state.clock(),
            )
        await channel.delete_queue(name)
        held = self._state.lost.held(key)
        log.warning(
            "the broker had lost this queue; it is created again",
            extra={"key": key, "messages_when_last_seen": "not known" if held is None else held},
        )
        self._metrics.queues_lost.inc()
        self._metrics.messages_lost.inc(held or 0)
        self._lifecycle.record(events.QUEUE_LOST, key)
        self._state.lost.remade[key] = self._state.clock()
        if key in self._state.groups:
            # Callers may have waited for it and call again now: keep its group running.
            self._state.require(key, found_unbound=True)
        return QueueState(Phase.GONE)
