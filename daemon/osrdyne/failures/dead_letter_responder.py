"""The dead-letter responder: answers callers why their request failed, and keeps what workers failed on.

The error reply goes first and waits for nothing else. A dead letter is acknowledged after its reply and, where
one is due, its copy in the inventory are confirmed. A copy for which there is no room waits in a queue of its own, and
comes back from there as a dead letter. When no queue takes it, the letter goes back to the tail of its own, marked as
answered, so that error replies for others never stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from osrdyne.broker.publisher import MessageRefused
from osrdyne.failures import dead_letter_rules
from osrdyne.failures.message_handler import MessageHandler
from osrdyne_amqp import Message
from osrdyne_amqp.errors import BrokerError
from osrdyne_protocol import events, expiry, headers, statuses

log = logging.getLogger(__name__)

#: The broker dead-letters a request as soon as its worker's connection ends. The daemon learns how the worker ended a
#: moment later: it waits for that for the first, and looks each time after the second.
_NEWS_SECONDS, _LOOK_SECONDS = 2.0, 0.1


@dataclass(kw_only=True, eq=False)
class DeadLetterResponder(MessageHandler):
    """Handles each dead letter by `dead_letter_rules`. `message_ttl` is that of request queues, in seconds.

    `worker_reasons`: whether callers learn how workers failed.
    """

    message_ttl: float
    worker_reasons: bool
    #: Delivery tags of dead letters in hand whose callers have their answer.
    _answered: set[int] = field(default_factory=set, init=False)
    #: How many dead letters wait for the news of their workers' ends.
    _awaiting: int = field(default=0, init=False)

    async def _handle(self, message: Message) -> None:
        try:
            await super()._handle(message)
        finally:
            self._answered.discard(message.delivery_tag)

    async def _give_up(self, message: Message, error: Exception) -> None:
        log.error("dead letter could not be handled", exc_info=error)
        names = self.state.names
        waited = dead_letter_rules.died_in(message) == names.waiting_queue
        cause, queue = dead_letter_rules.kept_for(message) if waited else dead_letter_rules.first_death(message)
        failed = dead_letter_rules.workers_failed(names, cause, queue)
        reason = statuses.DELIVERY_LIMIT if failed else statuses.INVALID_REQUEST
        given = message.properties.headers or {}
        key = headers.text(given.get(headers.X_POISON_KEY) if waited else message.routing_key)
        verdict = dead_letter_rules.Verdict(reason, "the daemon failed on this dead letter", reason, key, queue)
        answered = message.delivery_tag in self._answered or (failed and dead_letter_rules.was_answered(message))
        # The bug may be in either: a letter that cannot be answered is kept, and one that cannot be kept stays on the
        # broker until the next session.
        if not waited and not answered:
            with _bugs_logged("the caller of a dead letter could not be answered"):
                await self.error_replies.reply(message, status=reason, reason=verdict.reason)
        with _bugs_logged("dead letter cannot be kept"):
            if await self._keep(message, verdict, reason):
                self.deliveries.ack(message.delivery_tag)

    async def _process(self, message: Message) -> None:
        died_in = dead_letter_rules.died_in(message)
        if died_in == self.state.names.unanswered_queue:
            self._dropped(message)
            return
        if died_in == self.state.names.waiting_queue:
            if await self.error_replies.keep_again(message):
                self.deliveries.ack(message.delivery_tag)
            else:
                await self._put_back(message, answered=False)
            return
        verdict = dead_letter_rules.decide(message, self.state.names)
        said = verdict.reason
        verdict = replace(verdict, reason=dead_letter_rules.with_cause(verdict, await self._cause(message, verdict)))
        keep_as = verdict.keep_as
        answered = dead_letter_rules.was_answered(message)
        if verdict.status is not None:
            answered = await self.error_replies.reply(
                message,
                status=verdict.status,
                reason=verdict.reason if self.worker_reasons else said,
                expired_at=self._stage(message, verdict),
            )
            keep_as = keep_as if answered else verdict.status
            if answered:
                self._answered.add(message.delivery_tag)
        if keep_as is not None and not await self._keep(message, verdict, keep_as):
            await self._put_back(message, answered=answered)
            if verdict.status is None or not answered:
                # It comes again twice a second: an event each time would crowd out all other events.
                return
        else:
            self.deliveries.ack(message.delivery_tag)
        self.metrics.dead_letters.labels(verdict.status or "unanswerable").inc()
        if verdict.status is not None or not dead_letter_rules.was_answered(message):
            self.metrics.ended(verdict.status or keep_as)
        if verdict.key is not None:
            self.lifecycle.record(
                events.DEAD_LETTERED,
                verdict.key,
                request_id=message.properties.correlation_id,
                outcome=verdict.status or keep_as,
                reason=verdict.reason,
            )

    def _dropped(self, message: Message) -> None:
        """Count a copy that the broker dropped, as the oldest of its queue, to have room for others."""
        self.deliveries.ack(message.delivery_tag)
        self.state.tally.dropped += 1
        self.metrics.poison.labels("dropped").inc()
        given = message.properties.headers or {}
        key, reason = (headers.text(given.get(name)) for name in (headers.X_POISON_KEY, headers.X_POISON_REASON))
        log.warning(
            "a request without a caller was dropped: newer ones need its room", extra={"key": key, "reason": reason}
        )

    async def _keep(self, message: Message, verdict: dead_letter_rules.Verdict, keep_as: str) -> bool:
        return await self.error_replies.keep(
            message,
            reason=keep_as,
            detail=verdict.reason,
            key=verdict.key,
            queue=verdict.queue,
            attempts=self.state.activity.delivery_history.of(verdict.key, message.properties.correlation_id),
        )

    def _stage(self, message: Message, verdict: dead_letter_rules.Verdict) -> str | None:
        """Return the stage at which a request expired; None when it did not expire."""
        if verdict.status != statuses.EXPIRED:
            return None
        if not verdict.queue.startswith(self.state.names.request_queue_prefix) or verdict.key is None:
            return expiry.ORPHAN
        return expiry.in_request_queue(
            entered=self._entered(message),
            last_life=self.state.last_life(verdict.key),
            group_started=self.state.groups.attempt(verdict.key).started_at,
        )

    def _entered(self, message: Message) -> float | None:
        """Return when an expired request entered its queue, in monotonic seconds; None when unknown."""
        entered = dead_letter_rules.entered(message, message_ttl=self.message_ttl)
        return None if entered is None else self._monotonic(entered)

    def _monotonic(self, seconds: float) -> float:
        """Convert wall time, which is in messages, to that of the ends and signs of workers."""
        return seconds - events.wall_ms() / 1000 + self.state.clock()

    async def _cause(self, message: Message, verdict: dead_letter_rules.Verdict) -> str | None:
        """Return how workers of the key failed while a request waited for them, where that is known in time."""
        if verdict.key is None or not verdict.queue.startswith(self.state.names.request_queue_prefix):
            return None
        history = self.state.activity.delivery_history.of(verdict.key, message.properties.correlation_id)
        since = self._monotonic(history[0].time_ms / 1000) if history else self._entered(message)
        if since is not None and statuses.EXPIRED in (verdict.status, verdict.keep_as):
            # Without a sign of life of a worker since then, what failed before it came is why nothing takes it. An
            # engine may say that once, and try on.
            life = self.state.last_life(verdict.key)
            since = None if life is None else min(since, life)
        until = self.state.clock() + _NEWS_SECONDS
        failed = verdict.status == statuses.DELIVERY_LIMIT and verdict.keep_as is not None
        # Few do at a time, so that others do not wait behind them: workers that return requests need not have ended.
        waits = failed and since is not None and self._awaiting < max(1, self.prefetch // 4)
        self._awaiting += waits
        try:
            while True:
                cause = self.state.ends.why(verdict.key, since=since)
                if cause is not None or not waits or self.state.clock() >= until:
                    return cause
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._awaiting -= waits

    async def _put_back(self, message: Message, *, answered: bool) -> None:
        try:
            await self._send_back(
                message,
                self.state.names.dead_letter_exchange,
                dead_letter_rules.put_back(message, answered=answered),
            )
        except MessageRefused as error:
            # Neither the inventory nor its own queue accepts it: it stays unacknowledged until the next session.
            log.error(
                "dead letter cannot be kept",
                extra={"key": dead_letter_rules.original_key(message), "reason": str(error)},
            )


@contextlib.contextmanager
def _bugs_logged(text: str) -> Iterator[None]:
    try:
        yield
    except BrokerError:
        raise
    except Exception as error:
        log.error(text, exc_info=error)
