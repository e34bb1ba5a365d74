"""The orphan forwarder: forwards each orphan to its key's queue, or answers why it cannot.

Each orphan has its own task: require the key, wait until the queue loop has asserted the queue after that, publish
with confirm, then acknowledge. No orphan waits for another key's. Reads `state.queues`, and waits nowhere else.
An orphan is acknowledged after its forward, its answer or its copy is confirmed, never before.

The wall clock is read once for each orphan, when it comes: deadlines in messages are wall time. From then on its time
is counted by the monotonic clock, and looked at again whenever the forward leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from osrdyne.broker.publisher import MessageRefused
from osrdyne.failures.message_handler import MessageHandler
from osrdyne.intake import orphan_rules, wake_rules
from osrdyne.intake.bursts import Bursts
from osrdyne.intake.hold_limits import HeldMessages
from osrdyne.intake.orphan_rules import ErrorAnswer, Forward
from osrdyne.intake.wake_rules import WakeBudget
from osrdyne.state.values import Phase, QueueState
from osrdyne_amqp import Message
from osrdyne_amqp.errors import BrokerTimeout, Nacked, Returned
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import events, expiry, headers, keys, statuses
from osrdyne_protocol.errors import InvalidKey
from osrdyne_protocol.names import is_reply_address
from osrdyne_runtime.retry import Retry, back_off

log = logging.getLogger(__name__)

#: After this many forwards that came back, the binding counts as broken and is created again.
_UNROUTED_AFTER_HOPS = 4
#: Longest wait between two tries to forward one orphan.
_LONGEST_WAIT_SECONDS = 5.0
#: Seconds in which one refused request of each reason is reported by an event.
_REFUSALS_SECONDS = 0.1


@dataclass(kw_only=True, eq=False)
class OrphanForwarder(MessageHandler):
    """Handles each orphan by `orphan_rules`. `orphan_ttl_ms` is how long an orphan lives."""

    pool: PoolSettings
    budget: WakeBudget
    #: The user that the daemon logged in as; None where that is not known.
    user: str | None
    holding: HeldMessages
    orphan_ttl_ms: int
    #: Of the events about refused requests, one is sent in this time, for each reason.
    refusals: Bursts = field(default_factory=lambda: Bursts(_REFUSALS_SECONDS))

    async def _give_up(self, message: Message, error: Exception) -> None:
        log.error("orphan could not be handled", exc_info=error)
        failed = ErrorAnswer(statuses.INVALID_REQUEST, "the daemon failed on this request")
        await self._answer(message, failed, events.wall_ms())

    async def _process(self, message: Message) -> None:
        now_ms = events.steady_ms(self.state.clock)
        seen_ms = now_ms()
        decision = orphan_rules.decide(message, orphan_ttl_ms=self.orphan_ttl_ms, now_ms=seen_ms, own_user=self.user)
        if isinstance(decision, Forward):
            refused = self._refusal(message, decision.key)
            if refused is None and (refused := self._start_failed(message, decision.key)) is not None:
                # It is demand: while there are callers, starts are tried again.
                self.state.require(decision.key)
            decision = refused or decision
        if isinstance(decision, ErrorAnswer):
            await self._answer(message, decision, seen_ms)
        elif self.holding.admit(decision.key, size := message.size):
            try:
                with self.metrics.held.track_inprogress():
                    await self._hold(message, decision, seen_ms, now_ms)
            finally:
                self.holding.release(decision.key, size)
        else:
            if self.state.refused_until(decision.key) is not None:
                # It has no caller, and would go round until the next try, in the way of other keys' orphans.
                self.state.groups.let_wait(decision.key)
                self.state.require(decision.key, found_unbound=True)
            await self._put_back(message, seen_ms, let_in=True)

    def _refusal(self, message: Message, key: str) -> ErrorAnswer | None:
        """Return why a key may not be woken; None when it may, and is wanted from now on.

        So the request of a key that was let in is not judged again when it was put back.
        """
        state, most = self.state, self.pool.limits.groups
        if key in state.tracker.wanted:
            return None
        origin = orphan_rules.origin(message.properties, self.user)
        refused = wake_rules.refusal(key, origin, self.pool, self.budget, now=state.clock())
        if refused is None and not state.make_room(most, idle=wake_rules.IDLE_SECONDS, busy=self.holding.holds):
            refused = wake_rules.no_room(origin, most, self.budget)
        if refused is None:
            state.require(key)
            state.tally.woken[key] = state.clock()
        else:
            state.tally.refused[str(refused.refused)] += 1
            self.metrics.wakes_refused.labels(refused.refused).inc()
        return refused

    def _start_failed(self, message: Message, key: str) -> ErrorAnswer | None:
        """Return why a request with a caller cannot wait for workers of a key; None where it can, or has none.

        One that workers have taken shows that they start: it waits for the next.
        """
        until = self.state.refused_until(key)
        if until is None or not is_reply_address(message.properties.reply_to):
            return None
        if headers.delivered_before(message.properties.headers or {}):
            return None
        attempt, now = self.state.groups.attempt(key), self.state.clock()
        return orphan_rules.start_failed(attempt, until - now, with_reason=self.pool.worker_reasons)

    async def _hold(self, message: Message, forward: Forward, seen_ms: int, now_ms: Callable[[], int]) -> None:
        began, request_id = self.state.clock(), message.properties.correlation_id
        user = orphan_rules.origin(message.properties, self.user).user
        self.lifecycle.record(
            events.ORPHAN_SEEN, forward.key, request_id=request_id, more={headers.X_USER: user} if user else None
        )
        try:
            async with asyncio.timeout((forward.deadline_ms - now_ms()) / 1000):
                if forward.hops:
                    # It was forwarded before and came back: a binding may take a moment to reach every node.
                    await asyncio.sleep(back_off(forward.hops, first=0.05, limit=_LONGEST_WAIT_SECONDS))
                if forward.hops >= _UNROUTED_AFTER_HOPS:
                    self.state.queues.unrouted.add(forward.key)
                outcome = await self._forward(message, forward, now_ms)
        except TimeoutError:
            queue = self.state.queues.get(forward.key)
            why = f": {queue.error}" if queue is not None and queue.error else ""
            outcome = ErrorAnswer(statuses.EXPIRED, f"waited too long for its worker group's queue{why}")
        if outcome is not None:
            await self._answer(message, outcome, seen_ms, let_in=True)
            return
        self.deliveries.ack(message.delivery_tag)
        self.metrics.orphans.labels("forwarded").inc()
        self.metrics.forward_seconds.observe(self.state.clock() - began)
        self.lifecycle.record(events.FORWARDED, forward.key, request_id=request_id)

    async def _bound(self, message: Message, key: str) -> ErrorAnswer | None:
        """Wait until the queue was declared and bound after now: an orphan proves that it was not.

        Return an answer when workers of the key cannot be started.
        """
        state = self.state
        generation = state.require(key, found_unbound=True)

        def ends(queue: QueueState) -> bool:
            bound = queue.phase is Phase.BOUND and queue.asserted >= generation
            return bound or self._start_failed(message, key) is not None

        while True:
            try:
                async with asyncio.timeout((state.tracker.wanted[key].until - state.clock()) / 2):
                    await state.queues.wait(key, ends)
                return self._start_failed(message, key)
            except TimeoutError:
                # A request that waits keeps its key wanted, however long the queue takes.
                state.require(key)

    async def _forward(self, message: Message, forward: Forward, now_ms: Callable[[], int]) -> ErrorAnswer | None:
        """Publish until confirmed. Return an answer when that is impossible.

        Raises TimeoutError when the deadline passes before the publish leaves; the caller's timeout ends all else.
        """
        retry = Retry(first=0.1, limit=_LONGEST_WAIT_SECONDS / 2)
        while True:
            if (failed := await self._bound(message, forward.key)) is not None:
                return failed
            try:
                await self.publisher.publish(
                    self.state.names.request_exchange,
                    message.routing_key,
                    message.body,
                    lambda: orphan_rules.at_publish(forward, now_ms=now_ms()),
                )
                return None
            except MessageRefused as error:
                return ErrorAnswer(statuses.INVALID_REQUEST, str(error))
            except Nacked:
                answer = ErrorAnswer(statuses.MAXLEN, "the request queue is full, or the broker does not run it")
            except Returned:
                answer = ErrorAnswer(
                    statuses.UNROUTABLE, "the request exchange has no alternate exchange; apply the topology"
                )
            except BrokerTimeout as error:
                # One queue that does not confirm must not end the whole session. Whether the request
                # arrived is unknown; delivery is at least once, so it is sent again.
                self.state.lost.unconfirmed.add(forward.key)
                answer = ErrorAnswer(statuses.UNROUTABLE, str(error))
            pause = retry.failed()
            if retry.failures == 1:
                log.warning("forward not accepted; trying again", extra={"key": forward.key, "reason": answer.reason})
            if now_ms() + 1000 * _LONGEST_WAIT_SECONDS >= forward.deadline_ms and retry.failures > 1:
                return answer
            await asyncio.sleep(pause)

    async def _answer(self, message: Message, answer: ErrorAnswer, seen_ms: int, *, let_in: bool = False) -> None:
        expired_at = expiry.ORPHAN if answer.status == statuses.EXPIRED else None
        if await self.error_replies.settle(
            message,
            status=answer.status,
            reason=answer.reason,
            expired_at=expired_at,
            retry_after_ms=answer.retry_after_ms,
        ):
            # Who asks for thousands of keys, or for one that fails, must not crowd out all other events: the metrics
            # count each refusal.
            refused = answer.status if answer.status == statuses.START_FAILED else answer.refused
            often = refused is not None and self.refusals.observe(refused, self.state.clock()) is None
            self._answered(message, answer, reported=not often)
        else:
            await self._put_back(message, seen_ms, let_in=let_in)

    async def _put_back(self, message: Message, seen_ms: int, *, let_in: bool) -> None:
        # As of when it was seen: a request that was held must not begin its time again.
        properties = orphan_rules.put_back(
            message.properties,
            seen_ms=seen_ms,
            orphan_ttl_ms=self.orphan_ttl_ms,
            own_user=self.user,
            let_in=let_in,
        )
        exchange = self.state.names.orphan_exchange
        if message.malformed is not None:
            # A copy lacks the headers that could not be read, and must not come back as a request that never had any.
            exchange, properties.expiration = self.state.names.dead_letter_exchange, None
        try:
            await self._send_back(message, exchange, properties)
            self.metrics.orphans.labels("put_back").inc()
        except MessageRefused as error:
            answer = ErrorAnswer(statuses.INVALID_REQUEST, str(error))
            if await self.error_replies.settle(message, status=answer.status, reason=answer.reason):
                self._answered(message, answer)
            else:
                log.error("orphan can be neither put back nor kept", extra={"reason": str(error)})

    def _answered(self, message: Message, answer: ErrorAnswer, *, reported: bool = True) -> None:
        """Acknowledge, count and report an orphan that was answered."""
        self.deliveries.ack(message.delivery_tag)
        self.metrics.orphans.labels(answer.status).inc()
        self.metrics.ended(answer.status)
        if not reported:
            return
        # An event cannot carry an invalid key.
        with contextlib.suppress(InvalidKey):
            self.lifecycle.record(
                events.DEAD_LETTERED,
                keys.decode(message.routing_key),
                request_id=message.properties.correlation_id,
                outcome=answer.status,
                reason=answer.reason,
            )
