"""The loop of a worker: started, consume, for each delivery request-received, handler, confirmed reply, ack, finished.

Reads deliveries, writes replies, settlements and activity events. A delivery is acknowledged when its reply was
confirmed and never before; a request without a confirmed reply stays unacknowledged, and the broker redelivers it.
Work whose connection is lost goes on: when the broker delivers the same request to this worker again, the loop uses
the running or finished work, and the handler does not run twice. The loop creates no task for a request.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from osrdyne_amqp import Properties
from osrdyne_amqp.errors import AccessRefused, BrokerError, InvalidUri, Nacked, NotFound
from osrdyne_amqp.event_line import EventLine
from osrdyne_calls.closing import CLOSE_SECONDS, in_time, leave
from osrdyne_calls.handling import Outcome, Request, deadline_of, error_if_too_large
from osrdyne_calls.limits import MAX_BODY
from osrdyne_calls.runners import Runner
from osrdyne_protocol import events, expiry, statuses
from osrdyne_protocol.headers import X_EXPIRED_AT, X_REASON, X_RPC_PATH, X_STATUS, deadline_problem, status_for, text
from osrdyne_protocol.names import is_reply_address
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_runtime import log_lines
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry
from osrdyne_worker import consumer_timeout
from osrdyne_worker.errors import HandlerHung
from osrdyne_worker.events import ActivityEvents, queued_ms
from osrdyne_worker.in_flight import InFlight
from osrdyne_worker.session import Delivery, WorkerSession, connect
from osrdyne_worker.suspects import Suspects, failures

log = log_lines.logger(__name__)

T = TypeVar("T")

#: First and longest pause before connecting again, in seconds; each is cut by up to half at random.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
#: Seconds for which the broker may refuse a worker that it accepted before. After that the worker ends, because its
#: driver may start it again with a newer password.
REFUSED_PATIENCE_SECONDS = 30.0
#: A session that lasted this many seconds resets the count of failures.
STABLE_SECONDS = 15.0
#: A reply for which the broker closed the channel this often becomes an error reply; after as many more, it is dropped.
REPLY_ATTEMPTS = 3
#: Seconds for which a reply is tried again while its queue is full.
REPLY_PATIENCE_SECONDS = 60.0
#: Largest prefetch that AMQP has.
MOST_PREFETCH = 65_535
#: Seconds between two attempts at a reply.
REPLY_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of a worker: the keyword arguments of `run` and `serve`. Times are in seconds."""

    #: Most requests that the broker hands to this worker at once; None for as many as there are threads. With more,
    #: requests wait here for a thread, and a crash of this worker counts against all of them once.
    prefetch: int | None = None
    #: Threads in which a plain function runs. With 0 it runs on the loop itself: only for handlers that return at once.
    threads: int = 1
    #: Where a plain function runs instead of these threads.
    executor: concurrent.futures.Executor | None = None
    #: Seconds between the events that say that a long request is still worked on.
    alive_interval: float = 10.0
    #: Seconds that work in hand may take after SIGTERM; longer work goes to another worker.
    grace: float = 30.0
    #: Most bytes of an answer; a larger one becomes an error reply.
    max_body: int = MAX_BODY
    #: Called once, on the loop, when the worker begins to stop: handlers that take long can then be asked to end. It
    #: must return at once, and not raise.
    on_stop: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for what no worker can have, before it connects and takes requests."""
        if not self.threads >= 0 or not 1 <= self.at_once <= MOST_PREFETCH or not self.max_body >= 0:
            raise ValueError(
                f"threads={self.threads}, prefetch={self.prefetch}, max_body={self.max_body}: give 0 threads or more, "
                f"a prefetch of 1 to {MOST_PREFETCH}, and 0 bytes or more"
            )
        if not self.alive_interval > 0 or not self.grace >= 0:
            raise ValueError(
                f"alive_interval={self.alive_interval}, grace={self.grace}: give more than 0 seconds, and 0 or more"
            )

    @property
    def at_once(self) -> int:
        """How many requests the broker hands over before they are acknowledged."""
        return max(1, self.threads) if self.prefetch is None else self.prefetch


class Worker:
    """Serves one key until its stop event is set."""

    def __init__(self, environment: WorkerEnvironment, runner: Runner, options: WorkerOptions) -> None:
        self._environment = environment
        self._runner = runner
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._in_hand: set[InFlight] = set()
        self._line = EventLine(
            environment.activity_exchange,
            partial(connect, environment, "events"),
            sender=environment.id,
            key=environment.key,
        )
        self._activity = ActivityEvents(self._line, environment.key, environment.id, options.alive_interval)
        self._alarm = consumer_timeout.HangAlarm(environment.consumer_timeout_ms)
        self._suspects = Suspects(options.at_once, environment.consumer_timeout_ms)
        self._stopping = False
        #: `started` was sent and consuming has not begun: waiting for the queue is not activity.
        self._announced = False
        #: When it last began to consume over a new connection, on the loop's clock.
        self._serves_since = math.inf
        #: Set whenever a request leaves the hand.
        self._settled = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._outage = OutageLog(log, "the broker", key=environment.key)
        self._no_queue = OutageLog(
            log, "the request queue", meanwhile="waiting for the daemon to make it", key=environment.key
        )

    # --- life -------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then finish what is in hand.

        Raises InvalidUri and AccessRefused, at the first connection and later after `REFUSED_PATIENCE_SECONDS`.
        """
        try:
            await self._serve_sessions(stop)
        finally:
            self._begin_to_stop()
            self._activity.close()
            self._alarm.close()
            self._suspects.close()
            await self._line.close()

    async def _serve_sessions(self, stop: asyncio.Event) -> None:
        retry = Retry(first=FIRST_PAUSE_SECONDS, limit=LONGEST_PAUSE_SECONDS, stable_after=STABLE_SECONDS)
        known, refused = False, math.inf
        while not stop.is_set():
            opened = self._loop.time()
            self._line.open()
            try:
                session = await _unless(stop, WorkerSession.open(self._environment, self._options.at_once))
                if session is None:
                    return
                known, opened, refused = True, self._loop.time(), math.inf
                try:
                    await self._serve(session, stop)
                finally:
                    self._activity.flush()
                    if stop.is_set():  # both at once, so that they take no longer than one of them
                        await asyncio.gather(session.close(), self._line.close())
                    else:
                        await session.close()
            except BrokerError as error:
                if not isinstance(error, InvalidUri | AccessRefused):
                    refused = math.inf
                elif not known or self._loop.time() - refused > REFUSED_PATIENCE_SECONDS:
                    raise
                else:
                    refused = min(refused, self._loop.time())
                outage = self._outage
                if isinstance(error, NotFound):
                    self._outage.over(self._loop.time())
                    outage = self._no_queue
                outage.failed(str(error), self._loop.time())
                pause = retry.failed(self._loop.time() - opened)
                await _first(stop.wait(), asyncio.sleep(pause))

    async def _serve(self, session: WorkerSession, stop: asyncio.Event) -> None:
        """Serve over one session until it is lost (raises why) or `stop` is set."""
        serves = await _unless(stop, self._begin(session))
        while serves and not stop.is_set():
            if session.cancelled.is_set():
                # The queue is gone, or a request was held too long. Other work in hand can still be settled.
                log.warning("the broker cancelled the consumer", extra={"key": self._environment.key})
                if await _unless(stop, session.has_queue()):
                    works = consumer_timeout.held_too_long(self._in_hand, session, self._loop.time())
                    await self._give_up(session, works, taken_back=True)
                else:
                    await _first(stop.wait(), session.lost(), self._all_settled(session))
                if not stop.is_set() and session.is_open:
                    self._suspects.consumes()
                    await _unless(stop, session.consume(self._on_delivery))
            await _first(
                stop.wait(),
                session.cancelled.wait(),
                session.lost(),
                self._alarm.ringing.wait(),
                self._suspects.news.wait(),
            )
            if self._suspects.news.is_set() and session.is_open and not session.cancelled.is_set():
                self._suspects.news.clear()
                await _unless(stop, self._suspects.act(session, self._running, self._begin_with, self._on_delivery))
            if self._alarm.ringing.is_set():
                self._alarm.ringing.clear()
                await self._give_up(session, self._alarm.late(self._in_hand, session), taken_back=False)
            if not session.is_open:
                reason = await session.lost()
                if consumer_timeout.is_timeout(reason):
                    works = consumer_timeout.held_too_long(self._in_hand, session, self._loop.time())
                    await self._give_up(session, works, taken_back=True)
                raise reason
        await self._drain(session)

    async def _begin(self, session: WorkerSession) -> bool:
        """Say that this worker has started, and consume."""
        if not self._announced:
            self._activity.tell(events.STARTED)
        self._announced = True
        # An event must be on its way before its request can end this process.
        await self._line.settled()
        self._serves_since = self._loop.time()
        self._suspects.forget()
        self._suspects.consumes()
        await session.consume(self._on_delivery)
        for outage in (self._outage, self._no_queue):
            outage.over(self._loop.time())
        self._announced = False
        log.info("worker serves its key", extra={"key": self._environment.key})
        return True

    async def _give_up(self, session: WorkerSession, works: list[InFlight], *, taken_back: bool) -> None:
        """Drop requests that were held too long: the broker has taken them back, or gets them back now.

        Raises HandlerHung when a handler cannot be ended.
        """
        waiting = [work for work in works if work.withdraw is not None and work.withdraw()]
        begun = [work for work in works if work not in waiting]
        stuck = await consumer_timeout.end(begun, self._runner)
        if stuck:
            await session.stop_consuming()
            self._suspects.give_back(session)
        for work in waiting:
            if taken_back:
                self._done(work)
            else:  # only what was before it held it up
                work.withdraw = self._runner.start(work.request, partial(self._on_outcome, work))
        for work in begun:
            log.error(
                "a request was held longer than the consumer timeout allows",
                extra={"key": self._environment.key, "request_id": work.request.correlation_id},
            )
            session.reject(work.delivery.message.delivery_tag, requeue=True)
            work.outcome, work.finished_at = Outcome(events.REQUEUED), self._loop.time()
            self._done(work)
        if stuck:
            # Other work in hand is finished first, where it can still be answered; then the process has to end.
            await _first(self._all_settled(session), session.lost(), asyncio.sleep(self._options.grace))
            names = ", ".join(str(work.request.correlation_id) for work in stuck)
            raise HandlerHung(f"the handler of request {names} hangs: held longer than the pool's consumer timeout")

    async def _drain(self, session: WorkerSession) -> None:
        """Graceful stop: no new request, those not begun go back, those begun are finished within the grace."""
        self._begin_to_stop()
        over = self._loop.time() + self._options.grace
        self._activity.tell(events.STOPPING)
        await in_time(session.stop_consuming(), CLOSE_SECONDS)
        self._suspects.give_back(session)
        for work in list(self._in_hand):
            if work.outcome is None and work.withdraw is not None and work.withdraw():
                work.delivery.session.give_back(work.delivery.message.delivery_tag)
                self._done(work)
        left = max(0.0, over - self._loop.time())
        await _first(self._all_settled(session), session.lost(), asyncio.sleep(left))
        if self._in_hand:
            log.warning(
                "stopped with requests in hand; the broker gives them to another worker",
                extra={"key": self._environment.key, "requests": len(self._in_hand), **self._held_for(session)},
            )

    def _held_for(self, session: WorkerSession) -> dict[str, Any]:
        """Return for what requests in hand wait: for their handlers, or for the broker to take their replies."""
        running = sum(work.outcome is None for work in self._in_hand)
        blocked = {} if session.blocked_reason is None else {"alarm": session.blocked_reason}
        return {"running": running, "unconfirmed": len(self._in_hand) - running, **blocked}

    def _begin_to_stop(self) -> None:
        if not self._stopping and self._options.on_stop is not None:
            self._options.on_stop()
        self._stopping = True

    async def _all_settled(self, session: WorkerSession) -> None:
        while any(work.delivery.session is session for work in self._in_hand):
            self._settled.clear()
            await self._settled.wait()

    # --- a request --------------------------------------------------------------------------------------------

    def _on_delivery(self, delivery: Delivery) -> None:
        message, session = delivery.message, delivery.session
        if self._stopping:
            session.give_back(message.delivery_tag)
            return
        properties = message.properties
        uncounted = message.redelivered and consumer_timeout.hang_was_not_counted(properties.headers or {})
        if uncounted and not self._suspects.one_by_one:
            session.reject(message.delivery_tag, requeue=True)
            return
        if message.malformed is not None or (properties.reply_to and not is_reply_address(properties.reply_to)):
            reason = message.malformed or "its reply-to is not the address of a reply queue"
            self._received(delivery)
            log.warning("refused a request", extra={"request_id": properties.correlation_id, "reason": reason})
            session.reject(message.delivery_tag, requeue=False)
        elif message.redelivered and self._take_up(delivery):
            self._received(delivery)
        elif failures(message):
            deadline = deadline_of(properties.headers or {})
            self._suspects.hold(delivery, None if deadline is None else deadline - events.wall_ms() / 1000)
        else:
            self._begin_with(delivery, self._loop.time())
            self._suspects.passed()

    def _received(self, delivery: Delivery) -> None:
        message, correlation_id = delivery.message, _text(delivery.message.properties.correlation_id)
        serves_for = self._loop.time() - self._serves_since
        self._activity.tell(
            events.REQUEST_RECEIVED,
            request_id=correlation_id,
            queued_ms=queued_ms(message, serves_for=serves_for, now_ms=events.wall_ms()),
            # The broker checked it: only this user may name itself so.
            user=text(message.properties.user_id) or None,
            # A request that failed a worker before may end this one in a moment: its event must leave first.
            at_once=message.redelivered,
        )

    def _begin_with(self, delivery: Delivery, delivered_at: float) -> None:
        """Begin with a request, which was delivered at `delivered_at`."""
        self._received(delivery)
        message = delivery.message
        headers = message.properties.headers or {}
        correlation_id = _text(message.properties.correlation_id)
        request = Request(
            self._environment.key, message.body, headers, correlation_id, message.redelivered, deadline_of(headers)
        )
        now = self._loop.time()
        work = InFlight(request, delivery, delivered_at, now, now)
        self._in_hand.add(work)
        self._activity.watch(self._in_hand)
        self._alarm.watch(self._in_hand, again=delivered_at < now)
        if (problem := deadline_problem(headers)) is not None:
            self._on_outcome(work, Outcome(statuses.INVALID_REQUEST, reason=problem))
            return
        work.withdraw = self._runner.start(request, partial(self._on_outcome, work))

    def _running(self) -> int:
        """Return how many requests were begun, and would fail with this process: the broker has taken back others.

        One whose reply was refused does not count: that may last, and the key would not be served meanwhile.
        """
        return sum(work.delivery.session.is_open and not work.refused for work in self._in_hand)

    def _take_up(self, delivery: Delivery) -> bool:
        """Continue work whose connection was lost, when this delivery is the same request."""
        for work in self._in_hand:
            if not work.delivery.session.is_open and work.is_same(delivery):
                work.delivery = delivery
                if work.outcome is not None:
                    self._conclude(work)
                return True
        return False

    def _on_outcome(self, work: InFlight, outcome: Outcome) -> None:
        if work.given_up:
            return
        work.outcome = error_if_too_large(outcome, self._options.max_body)
        work.finished_at = self._loop.time()
        self._conclude(work)

    def _conclude(self, work: InFlight) -> None:
        """Settle finished work over its session; keep it when that is lost, in case the request comes again."""
        session, message, outcome = work.delivery.session, work.delivery.message, work.outcome
        assert outcome is not None
        if not session.is_open:
            self._trim()
        elif outcome.status == events.REQUEUED:
            session.reject(message.delivery_tag, requeue=True)
            self._done(work)
        elif not message.properties.reply_to:
            session.ack(message.delivery_tag)
            self._done(work)
        else:
            self._reply(work, session, outcome)

    def _reply(self, work: InFlight, session: WorkerSession, outcome: Outcome) -> None:
        request = work.delivery.message.properties
        headers: dict[str, Any] = {X_STATUS: status_for(work.request.headers, outcome.status)}
        if outcome.reason is not None:
            headers[X_REASON] = outcome.reason
        if outcome.status == statuses.EXPIRED:
            headers[X_EXPIRED_AT] = expiry.QUEUE
        if X_RPC_PATH in work.request.headers:
            headers[X_RPC_PATH] = work.request.headers[X_RPC_PATH]
        properties = Properties(headers=headers, correlation_id=request.correlation_id, delivery_mode=2)
        shorter = copy.copy(properties)
        shorter.headers = {name: headers[name] for name in (X_STATUS, X_EXPIRED_AT) if name in headers}
        confirm = session.reply(request.reply_to, outcome.body, properties, shorter)
        confirm.add_done_callback(partial(self._on_replied, work, session))

    def _on_replied(self, work: InFlight, session: WorkerSession, confirm: asyncio.Future[bool]) -> None:
        error = confirm.exception()
        if error is None:
            session.ack(work.delivery.message.delivery_tag)
            self._done(work)
        elif not session.is_open:
            self._trim()
        else:
            task = self._loop.create_task(self._reply_again(work, session, error), name="osrdyne worker: reply again")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _reply_again(self, work: InFlight, session: WorkerSession, error: BaseException) -> None:
        """Handle a refused reply: try again, then send the client an error, at last give the request up."""
        request_id = work.request.correlation_id
        log.warning("a reply was refused", extra={"request_id": request_id, "reason": str(error)})
        work.refused = True
        self._suspects.moved()
        if isinstance(error, Nacked):  # the caller's queue is full, which may pass
            given_up = self._loop.time() - work.finished_at > REPLY_PATIENCE_SECONDS
        else:
            work.closed_channels += 1
            given_up = work.closed_channels > 2 * REPLY_ATTEMPTS
            if work.closed_channels == REPLY_ATTEMPTS:
                work.outcome = Outcome(statuses.ERROR, reason=f"the broker refused the reply: {error}"[:1000])
        if given_up:
            session.reject(work.delivery.message.delivery_tag, requeue=False)
            self._done(work)
            return
        await asyncio.sleep(REPLY_PAUSE_SECONDS)
        try:
            await session.reopen_replies()
        except BrokerError as failure:
            log.warning("no channel for replies", extra={"reason": str(failure)})
        self._conclude(work)

    def _trim(self) -> None:
        """Keep finished work that could not be answered, but no more than the broker delivers at once."""
        lost = [
            request for request in self._in_hand if request.outcome is not None and not request.delivery.session.is_open
        ]
        if len(lost) > self._options.at_once or self._stopping:
            self._in_hand.discard(min(lost, key=lambda request: request.finished_at))
        self._settled.set()
        self._suspects.moved()

    def _done(self, work: InFlight) -> None:
        self._in_hand.discard(work)
        self._settled.set()
        self._suspects.moved()
        if work.outcome is not None:
            self._activity.finished(work)


def _text(correlation_id: object) -> str | None:
    return correlation_id if isinstance(correlation_id, str) else None


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what comes of work on the broker; None where `stop` was set before. What is left of it goes on alone."""
    task = asyncio.ensure_future(work)
    try:
        await _first(stop.wait(), asyncio.wait((task,)))
        return task.result() if task.done() else None
    finally:
        if not task.done():
            task.cancel()
            leave(task)


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of the waits is over, and drop the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
