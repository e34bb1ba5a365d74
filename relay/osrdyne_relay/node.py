"""What the calls and requests of one node share: Redis, the store of streams, the clock, its tasks and their tables.

It decides nothing, and knows neither callers nor workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from osrdyne_relay import names
from osrdyne_relay.errors import RedisRefused, RelayError, StreamLost
from osrdyne_relay.port import Command, RedisPort
from osrdyne_relay.records import StreamNote
from osrdyne_relay.retrying import Done, Retrying
from osrdyne_relay.settings import RelaySettings
from osrdyne_relay.streams.base import DataStreams, Source, chunks_of
from osrdyne_relay.transactions import Lifetimes, Transactions

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Seconds between two prolongations of the life of an endpoint that is called. It stays for a day.
_PROLONG = 3600.0
#: Endpoints whose life is remembered.
_MOST_LIVES = 100_000


class Looking(Protocol):
    """A call or a request that can look at Redis."""

    endpoint: str

    def look(self) -> None: ...


class Answerable(Looking, Protocol):
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
        self.held: dict[str, Looking] = {}
        self.retrying = Retrying(redis, settings.timings.retry_for)
        self._lives: dict[str, tuple[str, float]] = {}
        #: Tasks that run until something ends, and work that only tidies up.
        self.tasks: set[asyncio.Task[Any]] = set()
        self.chores: set[asyncio.Task[Any]] = set()

    def now(self) -> float:
        """Return this process's monotonic clock."""
        return asyncio.get_running_loop().time()

    async def run(self, commands: Sequence[Command]) -> Done:
        """Execute a transaction. Raises RedisAway or RedisRefused."""
        return await self.retrying.run(commands)

    async def life(self, endpoint: str) -> str:
        """Return the life of an endpoint, as far as is known here. Asks Redis now and then."""
        life, prolonged = self._lives.get(endpoint, ("", float("-inf")))
        if life and self.now() < prolonged + _PROLONG:
            return life
        if len(self._lives) >= _MOST_LIVES:
            self._lives.clear()
        raw = (await self.run(self.transactions.begin_life(endpoint, names.new_id()))).answers[-1]
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
        concerned = [one for one in (*self.calls.values(), *self.held.values()) if one.endpoint == endpoint]
        log.warning("Redis has lost its data", extra={"endpoint": endpoint, "in_flight": len(concerned)})
        for one in concerned:
            one.look()

    async def store_streams(self, sources: Mapping[str, Source], written: list[str]) -> dict[str, StreamNote]:
        """Store streams, and note their ids in `written` before that. Raises StreamLost, or what the store raises."""
        notes = {}
        for name, source in sources.items():
            stream = names.new_id()
            written.append(stream)
            try:
                size = await self.streams.store(stream, chunks_of(source))
            except OSError as error:
                raise StreamLost(f"data stream {name!r} cannot be stored: {error.strerror or error}") from error
            notes[name] = StreamNote(id=stream, size=size)
        return notes

    @staticmethod
    async def wait(news: asyncio.Event, until: float) -> None:
        """Wait for news or a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await news.wait()
        news.clear()

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run a task of this node."""
        return _kept(self.tasks, work, name)

    def later(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run what only tidies up."""
        _kept(self.chores, work, name)


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
