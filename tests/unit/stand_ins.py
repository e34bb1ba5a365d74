"""Small stand-ins for broker, management API, lifecycle and engine: for tests of the loops under virtual time.

They answer what a broker would for the few calls the loops make, and nothing more; real brokers are in
tests/broker. `on` makes a call of broker or driver fail, or run something first; `hanging` names calls of the broker
that are never answered; the publisher has `answers` and `refusing`.

Each that stands for a class is a subclass of it, so that mypy compares their methods. None calls the constructor of
that class: a method that is not replaced here fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from osrdyne.base.changes import ChangeReader, Changes
from osrdyne.broker.lifecycle_events import LifecycleEvents
from osrdyne.broker.management_api import ManagementApi, RequestQueue
from osrdyne.broker.memory_limit import MemoryLimit
from osrdyne.broker.publisher import Publisher
from osrdyne.drivers.base import Change, Group, GroupState, How, WorkerEnd
from osrdyne.state.pool import PoolState
from osrdyne.state.values import QueueTotals
from osrdyne_amqp import Channel, Connection, Properties, QueueInfo
from osrdyne_amqp.errors import BrokerError, BrokerTimeout, ChannelClosed, NotFound
from osrdyne_pool.broker.quorum import Member
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.names import PoolNames
from osrdyne_runtime.outages import OutageLog

NAMES = PoolNames("core")
#: Reply queues of two callers.
A_CALLER, ANOTHER_CALLER = f"reply-core-client-{1:032x}", f"reply-core-client-{2:032x}"
#: Seconds that every call takes, so that there is a moment for something else to happen.
LATENCY_SECONDS = 0.001


def state_of(*, unbind_delay: float = 100.0, stop_delay: float = 50.0) -> PoolState:
    settings = PoolSettings("core", unbind_delay=unbind_delay, stop_delay=stop_delay)
    return PoolState.of(settings, asyncio.get_running_loop().time)


def follower(changes: Changes) -> ChangeReader:
    """Return a reader that follows changes until the test ends."""
    reader = ChangeReader()
    changes.readers.append(reader)
    return reader


@asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run loops while the context is open; one that ends by itself fails the test."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        yield tasks
        assert not [task for task in tasks if task.done()], [task.exception() for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(found: Callable[[], object], within: float = 1000.0) -> None:
    """Wait in virtual time for a condition."""
    pause = LATENCY_SECONDS
    async with asyncio.timeout(within):
        while not found():
            await asyncio.sleep(pause)
            pause = min(1.1 * pause, 0.05)


def retrieve(outcome: asyncio.Future[Any]) -> None:
    """Take an error that a test does not ask for: asyncio logs one that was never retrieved."""
    if not outcome.cancelled():
        outcome.exception()


@dataclass
class BrokerQueue:
    ready: int = 0
    unacknowledged: int = 0
    consumers: int = 0
    bound: bool = False
    #: Deliveries so far.
    delivered: int = 0
    #: The broker has lost it.
    lost: bool = False


@dataclass
class StandInBroker:
    """Request queues, and the calls that were made on them: (what, key)."""

    queues: dict[str, BrokerQueue] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    #: Run before a call is answered; may raise.
    on: Callable[[str, str], None] = lambda what, key: None
    #: (what, key) that are never answered.
    hanging: set[tuple[str, str]] = field(default_factory=set)

    async def called(self, what: str, name: str) -> str:
        key = name.removeprefix(NAMES.request_queue_prefix)
        self.calls.append((what, key))
        await asyncio.sleep(LATENCY_SECONDS)
        self.on(what, key)
        if (what, key) in self.hanging:
            await asyncio.get_running_loop().create_future()
        return key

    def steps(self, key: str) -> list[str]:
        return [what for what, of in self.calls if of == key]


class StandInChannel(Channel):
    """A channel: one call at a time, as pika queues them, and closed by its first failure."""

    is_open = True

    def __init__(self, broker: StandInBroker, timeout: float) -> None:
        self._broker, self._timeout = broker, timeout
        self._turn = asyncio.Lock()

    async def _call(self, what: str, name: str) -> str:
        if not self.is_open:
            raise ChannelClosed
        asked = asyncio.ensure_future(self._in_turn(what, name))
        done, _ = await asyncio.wait((asked,), timeout=self._timeout)
        if not done:
            raise BrokerTimeout(f"no answer to {what}")
        try:
            return asked.result()
        except ChannelClosed:
            self.is_open = False
            raise

    async def _in_turn(self, what: str, name: str) -> str:
        async with self._turn:
            return await self._broker.called(what, name)

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
        key = await self._call("look" if passive else "declare", name)
        queues = self._broker.queues
        if passive and key not in queues:
            self.is_open = False
            raise NotFound
        queue = queues.setdefault(key, BrokerQueue())
        return QueueInfo(name, queue.ready, queue.consumers)

    async def bind_queue(self, queue: str, exchange: str, routing_key: str) -> None:
        self._broker.queues[await self._call("bind", queue)].bound = True

    async def unbind_queue(self, queue: str, exchange: str, routing_key: str) -> None:
        key = await self._call("unbind", queue)
        if key in self._broker.queues:
            self._broker.queues[key].bound = False

    async def delete_queue(self, queue: str) -> int:
        return self._broker.queues.pop(await self._call("delete", queue)).ready

    async def close(self) -> None:
        self.is_open = False


@dataclass
class StandInConnection(Connection):
    """Opens channels on the stand-in broker."""

    broker: StandInBroker
    timeout: float = 10.0
    is_open: bool = True
    blocked: bool = False

    async def unblocked(self) -> None:
        await until(lambda: not self.blocked)

    async def channel(self, *, confirm: bool = False, prefetch: int | None = None) -> StandInChannel:
        return StandInChannel(self.broker, self.timeout)


@dataclass
class StandInManagement(ManagementApi):
    """What the broker says of its queues: `lag` seconds late of keys given to `watch`, else what is true now."""

    broker: StandInBroker
    lag: float = 0.0
    bindings: int = 0
    ours: bool = True
    dead_lettering: int = 0
    alarmed: str | None = None
    static: dict[str, int] = field(default_factory=dict)
    #: Connections and their users, by queue.
    consumed_by: dict[str, dict[str, str]] = field(default_factory=dict)
    history: dict[str, list[tuple[float, QueueTotals]]] = field(default_factory=dict)
    outage: OutageLog = field(default_factory=lambda: OutageLog(logging.getLogger(__name__), "the management API"))

    def watch(self, key: str, queue: BrokerQueue) -> None:
        """Record what a queue holds now, for `totals` to show later."""
        self.history.setdefault(key, []).append((asyncio.get_running_loop().time(), self._totals_of(queue)))

    async def totals(self, queue: str) -> QueueTotals | None:
        key = await self.broker.called("sample", queue)
        if key not in self.broker.queues:
            return None
        shown_at = asyncio.get_running_loop().time() - self.lag
        past = [totals for when, totals in self.history.get(key, []) if when <= shown_at]
        return past[-1] if past else self._totals_of(self.broker.queues[key])

    def _totals_of(self, queue: BrokerQueue) -> QueueTotals:
        return QueueTotals(
            queue.ready, queue.unacknowledged, queue.consumers, self.bindings, self.ours, self.dead_lettering
        )

    async def alarm(self) -> str | None:
        return self.alarmed

    async def depths(self, names: PoolNames) -> dict[str, int]:
        return self.static

    async def listeners(self, queue: str) -> dict[str, str]:
        return self.consumed_by.get(queue, {})

    async def request_queues(self, names: PoolNames) -> list[RequestQueue]:
        await self.broker.called("list", "")
        return [
            RequestQueue(
                names.request_queue(key),
                key,
                None
                if queue.lost
                else QueueTotals(queue.ready, queue.unacknowledged, queue.consumers, 0, delivered=queue.delivered),
            )
            for key, queue in self.broker.queues.items()
        ]

    async def members(self, queue: str) -> tuple[Member, ...] | None:
        key = await self.broker.called("members", queue)
        if key not in self.broker.queues:
            return None
        lost = self.broker.queues[key].lost
        return (Member("rabbit@one", "follower", 0, 0) if lost else Member("rabbit@one", "leader", 1, 7),)


class StandInLifecycle(LifecycleEvents):
    """Keeps what was recorded: (event, key), what the ends of workers say, and why requests were not served."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.ends: list[dict[str, Any]] = []
        self.reasons: list[str] = []

    def record(
        self,
        event: str,
        key: str,
        *,
        request_id: str | bytes | None = None,
        outcome: str | None = None,
        reason: str | None = None,
        more: Mapping[str, str | int] | None = None,
    ) -> None:
        self.events.append((event, key))
        if reason is not None:
            self.reasons.append(reason)
        if more:
            self.ends.append({"event": event, "outcome": outcome, **more})


class StandInDriver:
    """An engine in memory: groups run until the test stops or crashes them."""

    owns_workers = True

    def __init__(self, template: str = "current") -> None:
        self.template = template
        self.groups: dict[str, Group] = {}
        self.calls: list[tuple[str, str]] = []
        self.news: asyncio.Queue[Change] = asyncio.Queue()
        #: Run within a call; may raise, or wait.
        self.on: Callable[[str, str], Any] = lambda what, key: None
        self.listings = 0

    async def _called(self, what: str, key: str) -> None:
        self.calls.append((what, key))
        await asyncio.sleep(LATENCY_SECONDS)
        outcome = self.on(what, key)
        if outcome is not None:
            await outcome

    def starts(self, key: str) -> int:
        return self.calls.count(("start", key))

    async def start(self, key: str) -> None:
        await self._called("start", key)
        self.groups.setdefault(key, Group(key, GroupState.RUNNING, 1, self.template))

    async def stop(self, key: str) -> None:
        await self._called("stop", key)
        if key in self.groups:
            self.groups[key] = replace(self.groups[key], state=GroupState.STOPPING)
            asyncio.get_running_loop().call_later(1.0, self.crash, key, None, WorkerEnd(How.STOPPED))

    def crash(self, key: str, error: str | None = "exit 1", end: WorkerEnd | None = None) -> None:
        if self.groups.pop(key, None) is not None:
            self.news.put_nowait(Change(key, error, end))

    async def list(self) -> list[Group]:
        self.listings += 1
        found = list(self.groups.values())
        await self._called("list", "")
        return found

    async def changes(self) -> AsyncIterator[Change]:
        while True:
            yield await self.news.get()

    async def close(self) -> None:
        return


def refuse(*pairs: tuple[str, str], error: BrokerError | Exception) -> Callable[[str, str], None]:
    """Return an `on` that refuses these calls."""

    def on(what: str, key: str) -> None:
        if (what, key) in pairs:
            raise error

    return on


class SettledDeliveries(MemoryLimit):
    """Deliveries of which the tags that were acknowledged are kept."""

    def __init__(self) -> None:
        self.tags: list[int] = []

    def ack(self, tag: int) -> None:
        assert tag not in self.tags, "settled twice"
        self.tags.append(tag)

    def holds(self, tag: int) -> bool:
        return tag not in self.tags


@dataclass
class SentMessage:
    """One publish that reached the stand-in broker."""

    exchange: str
    routing_key: str | bytes
    body: bytes
    properties: Any


class StandInPublisher(Publisher):
    """A publisher that confirms, unless the test says otherwise."""

    def __init__(self) -> None:
        #: Every try, in order.
        self.sent: list[SentMessage] = []
        self.confirmed: list[SentMessage] = []
        #: Seconds until a message leaves, and from then until its confirm.
        self.wait = 0.0
        self.delay = LATENCY_SECONDS
        #: Outcomes of the next publishes: an error to raise, None for a confirm.
        self.answers: list[Exception | None] = []
        #: (exchange, routing key) -> the error of every publish to it.
        self.refusing: dict[tuple[str, str], Exception] = {}
        #: Reply addresses whose caller is gone.
        self.gone: set[str] = set()

    def sent_to(self, exchange: str, routing_key: str) -> list[SentMessage]:
        return [message for message in self.sent if (message.exchange, message.routing_key) == (exchange, routing_key)]

    async def publish(
        self, exchange: str, routing_key: str | bytes, body: bytes, properties: Properties | Callable[[], Properties]
    ) -> None:
        await asyncio.sleep(self.wait)
        sent = SentMessage(exchange, routing_key, body, properties() if callable(properties) else properties)
        self.sent.append(sent)
        await asyncio.sleep(self.delay)
        error = self.answers.pop(0) if self.answers else self.refusing.get((exchange, str(routing_key)))
        if error is not None:
            raise error
        self.confirmed.append(sent)

    async def reply(self, reply_to: str | bytes, body: bytes, properties: Properties) -> bool:
        await self.publish("", reply_to, body, properties)
        return reply_to not in self.gone
