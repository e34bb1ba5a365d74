"""Servers of requests and listeners to notifications, for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import platform
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

from osrdyne_bus.aio.bus import AsyncBus
from osrdyne_bus.aio.handler_threads import HandlerThreads
from osrdyne_bus.aio.subscriptions import KeptSubscription
from osrdyne_bus.counts import DROPPED
from osrdyne_bus.endpoints import Endpoint, NoSuchMethod, answer_to, answer_to_failure, find, late
from osrdyne_bus.engine import Incoming
from osrdyne_bus.errors import MessageTooLarge
from osrdyne_bus.server_status import NAMESPACE, PING, VERSION, ServerStatus, described
from osrdyne_bus.targets import Priority, Target
from osrdyne_bus.wire import BusAnswer, BusRequest, Notification, read_notification, read_request, reply_envelope
from osrdyne_protocol import statuses
from osrdyne_worker.handling import Reject, Requeue, WorkerError

log = logging.getLogger(__name__)

#: Seconds for a cancelled handler to end.
CANCELLATION = 2.0
#: Bytes of replies to one address that may wait. Where more do, the caller has gone.
MOST_WAITING_REPLIES = 64 * 2**20
#: Bytes that a reply costs beside its body.
_REPLY = 2048

Listener = Callable[[Notification], None] | Callable[[Notification], Awaitable[None]]


class _Taking(ABC):
    """Takes messages from subscriptions, and runs so many of them at once."""

    def __init__(self, bus: AsyncBus, concurrency: int, name: str) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; give it 1 or more")
        self._bus = bus
        self._concurrency = concurrency
        self._name = name
        self._threads: HandlerThreads | None = None
        self._waiting: deque[Incoming] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._subscriptions: list[KeptSubscription] = []
        self._stopping = False
        #: Whether messages are settled before their handlers begin.
        self._settles_at_start = False

    @property
    def in_hand(self) -> int:
        """Messages that came and are not done."""
        return len(self._waiting) + len(self._running)

    async def _subscribe(self, addresses: Sequence[Callable[[Any], str]], credit: int) -> None:
        if self._threads is not None:
            raise RuntimeError("it is started already")
        self._stopping = False
        self._threads = HandlerThreads(self._name)
        try:
            for address in addresses:
                self._subscriptions.append(await self._bus.subscribe(address, credit, self._received))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Take no more, give back what was not begun, and return when all that was begun is done. Safe to repeat.

        A handler that goes on for longer than the setting `grace` is cancelled; one in a thread is left there.

        What was not begun goes back with its link: once, and not again and again as if it were released while this
        server has credit. Where handlers settle at their end, their link stays until then.
        """
        self._stopping = True
        self._waiting.clear()
        if self._settles_at_start:
            await self._unsubscribe()
        await self._end_running(self._bus.settings.grace)
        await self._unsubscribe()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()

    async def _end_running(self, grace: float) -> None:
        if self._running:
            await asyncio.wait(set(self._running), timeout=grace)
        if left := set(self._running):
            log.warning("%s stops, and %d of its handlers have not ended within %g s", self._name, len(left), grace)
            for one in left:
                one.cancel()
                self._given_up(one)
            await asyncio.wait(left, timeout=CANCELLATION)

    @abstractmethod
    def _given_up(self, task: asyncio.Task[None]) -> None:
        """A handler is not waited for any more."""

    async def _unsubscribe(self) -> None:
        while self._subscriptions:
            one = self._subscriptions[-1]
            await self._bus.unsubscribe(one)
            if one in self._subscriptions:  # and not removed by another stop
                self._subscriptions.remove(one)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def _received(self, incoming: Incoming) -> None:
        if not self._stopping:
            while self._waiting and not self._waiting[0].is_here:
                self._waiting.popleft()
            self._waiting.append(incoming)
            self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._concurrency and not self._stopping:
            task = asyncio.create_task(self._take(self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._begin()

    async def _take(self, incoming: Incoming) -> None:
        if not incoming.is_here:
            return
        try:
            await self._handle(incoming)
        except Exception:
            log.exception("a message to %s could not be handled", incoming.subscription.address)
            incoming.reject("osrdyne:failed", "the receiver failed; its log says why")

    @abstractmethod
    async def _handle(self, incoming: Incoming) -> None:
        """Run the handler for a message, and settle it."""

    async def _run(self, handler: Callable[[Any], Any], given: object) -> tuple[object, BaseException | None]:
        """Return what a handler returns or raises. Raises CancelledError where this task was cancelled."""
        result: object = None
        try:
            call = getattr(handler, "__call__", None)  # noqa: B004 - of an object that is called
            if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
                result = handler(given)
            else:
                assert self._threads is not None
                result, error = await self._threads.run(partial(_caught, handler, given))
                if error is not None:
                    return None, error
            return (await result if inspect.isawaitable(result) else result), None
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None, cancelled
        except BaseException as error:  # noqa: BLE001 - a handler must not end the server, by sys.exit for example
            return None, error


def _caught(handler: Callable[[Any], object], given: object) -> tuple[object, BaseException | None]:
    # Returned and not raised: a future cannot hold StopIteration, and SystemExit would end the thread.
    try:
        return handler(given), None
    except BaseException as error:  # noqa: BLE001
        return None, error


class AsyncBusServer(_Taking):
    """Serves the requests for any server of a topic, for this one, and for all. Use it with `async with`."""

    def __init__(
        self,
        bus: AsyncBus,
        target: Target,
        endpoints: Sequence[Endpoint],
        *,
        concurrency: int = 64,
        acknowledge: Literal["start", "end"] = "start",
    ) -> None:
        """Prepare a server; nothing is received before it starts. `target` has to name it in `server`.

        It has a method more, `ping` of the namespace `osrdyne`, by which `osrdyne bus ping` finds it. Raises ValueError
        for an endpoint of that namespace.

        `concurrency`: handlers that run at once. Further requests wait here, as many as the credit allows.

        `acknowledge`: with "start" a request is acknowledged before its handler begins. Then a cast ends for its
        caller, and a request is lost where this program dies meanwhile. With "end" it is acknowledged when its handler
        ends: a broker gives it to another server where this program dies, so that a handler may run twice; and a
        handler may raise Requeue.
        """
        super().__init__(bus, concurrency, f"osrdyne bus server {target.topic}")
        self._target = target
        if any(one.namespace == NAMESPACE for one in endpoints):
            raise ValueError(f"the namespace {NAMESPACE!r} has the methods of all servers; take another one")
        self._endpoints = (*endpoints, self._own_methods(described(endpoints)))
        self._settles_at_start = acknowledge == "start"
        self._replies: set[asyncio.Task[None]] = set()
        self._waiting_replies: Counter[str] = Counter()
        #: Requests whose handlers run.
        self._unanswered: dict[asyncio.Task[Any], BusRequest] = {}
        #: Replies that could not be sent.
        self.lost_replies = 0

    def _own_methods(self, endpoints: tuple[str, ...]) -> Endpoint:
        async def ping(_: BusRequest) -> bytes:
            return ServerStatus(
                server=self._target.server or "",
                host=platform.node(),
                process=os.getpid(),
                endpoints=endpoints,
                waiting=len(self._waiting),
                running=len(self._running) - 1,  # without this one
                concurrency=self._concurrency,
                lost_replies=self.lost_replies,
            ).to_json()

        made = Endpoint(NAMESPACE, VERSION)
        made.add(PING, ping)
        return made

    async def start(self) -> None:
        """Attach the three subscriptions. Raises InvalidTarget, LinkRefused, PeerLost, BusClosed."""
        target = self._target
        await self._subscribe(
            (
                lambda scheme: scheme.shared(target),
                lambda scheme: scheme.server(target),
                lambda scheme: scheme.fanout_subscription(target),
            ),
            self._bus.settings.server_credit,
        )

    async def stop(self) -> None:
        """Take no more requests, give back those not begun, and return when the rest is answered. Safe to repeat."""
        await super().stop()
        while self._replies:
            await asyncio.wait(set(self._replies))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def _handle(self, incoming: Incoming) -> None:
        request = read_request(incoming.envelope)
        if (answer := late(request, time.time())) is None:
            try:
                handler = find(self._endpoints, request)
            except NoSuchMethod as error:
                answer = answer_to_failure(error)
                if not request.wants_reply:
                    log.warning("a cast was rejected: %s", error)
                    incoming.reject("osrdyne:no-such-method", str(error))
            else:
                if self._settles_at_start:
                    incoming.accept()
                answer = await self._answered(handler, request, incoming)
        incoming.accept()
        if request.reply_to is not None and answer is not None:
            self._reply(request.reply_to, request, answer)

    async def _answered(self, handler: Any, request: BusRequest, incoming: Incoming) -> BusAnswer | None:
        """Return what the handler says; None where the request went back, or its caller has another answer."""
        task = asyncio.current_task()
        assert task is not None
        self._unanswered[task] = request
        try:
            answer = await self._answer(handler, request, incoming)
            return answer if task in self._unanswered else None
        finally:
            self._unanswered.pop(task, None)

    def _given_up(self, task: asyncio.Task[None]) -> None:
        # A request that is not acknowledged goes back with its link.
        request = self._unanswered.pop(task, None) if self._settles_at_start else None
        if request is not None and request.reply_to is not None:
            stopped = "the server stopped before its handler had ended, which may have done its work"
            self._reply(request.reply_to, request, BusAnswer(statuses.ERROR, reason=stopped))

    async def _answer(self, handler: Any, request: BusRequest, incoming: Incoming) -> BusAnswer | None:
        """Return what the handler says; None where the request went back."""
        result, error = await self._run(handler, request)
        if error is None:
            return answer_to(result)
        if isinstance(error, Requeue):
            if not self._settles_at_start:
                incoming.release()
                return None
            return BusAnswer(
                statuses.ERROR, reason="the handler gave the request back, which this server acknowledged before"
            )
        if not isinstance(error, Reject | WorkerError):
            log.error("the handler of %r failed", request.method, exc_info=error)
        return answer_to_failure(error)

    def _reply(self, to: str, request: BusRequest, answer: BusAnswer) -> None:
        # In a task of its own: a caller without credit must not hold up the others.
        size = len(answer.body) + _REPLY
        if self._waiting_replies[to] and self._waiting_replies[to] + size > MOST_WAITING_REPLIES:
            self.lost_replies += 1
            self._bus.counts.sent["reply", DROPPED] += 1
            log.error("a reply to %s is dropped: %d bytes wait for it to take them", to, self._waiting_replies[to])
            return
        self._waiting_replies[to] += size
        task = asyncio.create_task(self._send_reply(to, request, answer, size))
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    async def _send_reply(self, to: str, request: BusRequest, answer: BusAnswer, size: int) -> None:
        try:
            try:
                await self._bus.reply(reply_envelope(request, answer), self._bus.settings.reply_timeout)
            except MessageTooLarge as error:
                short = BusAnswer(statuses.ERROR, reason=f"the answer cannot be sent: {error}")
                await self._bus.reply(reply_envelope(request, short), self._bus.settings.reply_timeout)
        except Exception as error:  # noqa: BLE001 - the caller has its time-out, and others must not suffer
            self.lost_replies += 1
            log.error("the reply to a call of %r is lost: %s", request.method, error)
        finally:
            self._waiting_replies[to] -= size
            if not self._waiting_replies[to]:
                del self._waiting_replies[to]


class AsyncBusListener(_Taking):
    """Takes notifications to a target; each goes to one listener. Use it with `async with`."""

    def __init__(
        self,
        bus: AsyncBus,
        target: Target,
        handler: Listener,
        *,
        priorities: Sequence[Priority] = (Priority.INFO,),
        concurrency: int = 64,
    ) -> None:
        """Prepare a listener. A notification is acknowledged when its handler ends.

        It goes back where the handler raises Requeue, and is rejected where it raises anything else.
        """
        super().__init__(bus, concurrency, f"osrdyne bus listener {target.topic}")
        self._target = target
        self._handler = handler
        self._priorities = tuple(priorities)

    async def start(self) -> None:
        """Attach a subscription for each priority. Raises LinkRefused, PeerLost, BusClosed."""
        target = self._target

        def address_of(priority: Priority) -> Callable[[Any], str]:
            return lambda scheme: scheme.notifications(target, priority)

        await self._subscribe(list(map(address_of, self._priorities)), self._bus.settings.notification_credit)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def _given_up(self, task: asyncio.Task[None]) -> None:
        """Nothing is to be said: its notification goes back with its link."""

    async def _handle(self, incoming: Incoming) -> None:
        notification = read_notification(incoming.envelope)
        _, error = await self._run(self._handler, notification)
        if error is None:
            incoming.accept()
        elif isinstance(error, Requeue):
            incoming.release()
        elif isinstance(error, Reject):
            incoming.reject("osrdyne:rejected", str(error) or "the handler rejected it")
        else:
            log.error("the handler of notification %r failed", notification.event_type, exc_info=error)
            incoming.reject("osrdyne:handler-failed", f"{type(error).__name__}: {error}")
