"""What the calls and requests of one node share: Redis, the store of streams, the clock, its tasks and their tables.

It decides nothing, and knows neither callers nor workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from osrdyne_relay.errors import RedisAway, RedisRefused, RelayError
from osrdyne_relay.redis import names
from osrdyne_relay.redis.port import RedisPort
from osrdyne_relay.redis.records import StreamNote
from osrdyne_relay.redis.retrying import Commands, RetryingRedis, TransactionResult
from osrdyne_relay.redis.transactions import Lifetimes, Transactions
from osrdyne_relay.settings import RelaySettings
from osrdyne_relay.streams.base import DataStreams, Source, stored
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)
T = TypeVar("T")

#: Seconds between two prolongations of the life of an endpoint that is called. It stays for a day.
_PROLONG_SECONDS = 3600.0
#: Seconds for which calls that have ended are gathered, and how many of them one transaction empties.
_GATHER_SECONDS, _AT_ONCE = 0.05, 32
#: Endpoints whose life is remembered.
_MOST_LIVES = 100_000


class ReadsRedis(Protocol):
    """A call or a request that can look at Redis."""

    endpoint: str

    def look(self) -> None: ...


class Answerable(ReadsRedis, Protocol):
    """A call whose response may come by a pulse."""

    def receive(self, response: bytes) -> None: ...


class Node:
    """One node, as its calls and requests see it."""

    def __init__(self, redis: RedisPort, streams: DataStreams, settings: RelaySettings) -> None:
        self.id = names.new_id()
        self.names = names.Names(settings.prefix)
        self.timings = settings.timings
        self.most_bytes = settings.most_bytes
        self.pulse_bytes = settings.pulse_bytes
        self.transactions = Transactions(self.names, Lifetimes(response=settings.timings.response_stays))
        self.streams = streams
        #: Calls that this node makes, and requests that it serves, by id.
        self.calls: dict[str, Answerable] = {}
        self.held: dict[str, ReadsRedis] = {}
        self.retrying = RetryingRedis(redis, settings.timings.retry_for)
        self._lives: dict[str, tuple[str, float]] = {}
        #: Calls that have ended and are to be emptied, by endpoint.
        self._ended: dict[str, list[str]] = {}
        #: Tasks that run until something ends, and work that only tidies up.
        self.tasks: set[asyncio.Task[Any]] = set()
        self.chores: set[asyncio.Task[Any]] = set()

    def now(self) -> float:
        """Return this process's monotonic clock."""
        return asyncio.get_running_loop().time()

    async def run(self, commands: Commands) -> TransactionResult:
        """Execute a transaction. Raises RedisAway or RedisRefused."""
        return await self.retrying.run(commands)

    async def life(self, endpoint: str) -> str:
        """Return the life of an endpoint, as far as is known here. Asks Redis now and then."""
        life, prolonged = self._lives.get(endpoint, ("", float("-inf")))
        if life and self.now() < prolonged + _PROLONG_SECONDS:
            return life
        if len(self._lives) >= _MOST_LIVES:
            self._lives.clear()
        # Each attempt has a value of its own: one that arrives late, after a loss, must not bring an old life back.
        begun = await self.run(lambda: self.transactions.begin_life(endpoint, names.new_id()))
        raw = begun.answers[-1]
        if raw is None or (found := names.id_from(raw)) is None:
            raise RedisRefused(f"{self.names.life(endpoint)} is not ours: another program writes it; delete this key")
        if life and found != life:
            self.lost(endpoint, life)
        self._lives[endpoint] = (found, self.now())
        return found

    def lost(self, endpoint: str, life: str) -> None:
        """Note that Redis has lost a life: what is in flight at this endpoint finds out now."""
        if self._lives.get(endpoint, ("", 0.0))[0] == life:
            del self._lives[endpoint]
        concerned = [work for work in (*self.calls.values(), *self.held.values()) if work.endpoint == endpoint]
        log.warning("Redis has lost its data", extra={"endpoint": endpoint, "in_flight": len(concerned)})
        for work in concerned:
            work.look()

    def ended(self, endpoint: str, call: str) -> None:
        """Have the hash of a call emptied soon. It is done for several calls at once: no call waits for it."""
        if not self._ended:
            self.later(self._bury(), "end of calls")
        self._ended.setdefault(endpoint, []).append(call)

    async def _bury(self) -> None:
        await asyncio.sleep(_GATHER_SECONDS)
        ended, self._ended = self._ended, {}
        for endpoint, calls in ended.items():
            for first in range(0, len(calls), _AT_ONCE):
                try:
                    await self.run(self.transactions.bury(endpoint, calls[first : first + _AT_ONCE]))
                except RedisAway:
                    return  # Redis forgets them in time
                except RelayError:
                    continue  # another program has written to one of them

    async def store_streams(self, sources: Mapping[str, Source], written: list[str]) -> dict[str, StreamNote]:
        """Store streams, and note their ids in `written` before that. Raises StreamLost, or what the store raises."""
        found = await stored(self.streams, sources, written)
        return {name: StreamNote(id=stream.id, size=stream.size) for name, stream in found.items()}

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run a task of this node."""
        return _kept(self.tasks, work, name)

    def later(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run what only tidies up."""
        _kept(self.chores, work, name)


class Wakeup:
    """Lets one task wait until something happens or is due."""

    def __init__(self) -> None:
        self._happened = False
        self._waiting: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Note that something happened."""
        self._happened = True
        self._wake()

    async def wait(self, until: float) -> None:
        """Wait for that since the last `wait`, or for a time."""
        if not self._happened:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            timer = loop.call_at(until, self._wake)
            try:
                await self._waiting
            finally:
                timer.cancel()
                self._waiting = None
        self._happened = False

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


def _kept(tasks: set[asyncio.Task[Any]], work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    tasks.add(task)

    def ended(done: asyncio.Task[T]) -> None:
        tasks.discard(done)
        error = None if done.cancelled() else done.exception()
        if error is not None and not isinstance(error, RelayError):
            log.error("a task of the relay failed", extra={"task": name}, exc_info=error)

    task.add_done_callback(ended)
    return task
