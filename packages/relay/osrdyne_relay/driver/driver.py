"""The driver `relay`: groups are forwardings within the daemon, one for each key that was started."""

from __future__ import annotations

import asyncio
import builtins
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from osrdyne.drivers.base import Change, Group, GroupState
from osrdyne.drivers.unread import UnreadChanges
from osrdyne.errors import DriverError
from osrdyne_pool.settings import PoolSettings
from osrdyne_pool.topology import milliseconds
from osrdyne_protocol.errors import OsrdyneError
from osrdyne_protocol.names import PoolNames
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_relay.checking import MOST_PICKUP_SECONDS
from osrdyne_relay.driver.forwarding import KeyForwarder
from osrdyne_relay.driver.translation import endpoint_of
from osrdyne_relay.errors import InvalidCall
from osrdyne_relay.redis.names import check_endpoint
from osrdyne_relay.relay import Relay
from osrdyne_relay.settings import RelaySettings
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)


class RelayDriver:
    """Forwards requests to workers that poll. Use it from one event loop."""

    owns_workers = True
    #: Nothing of a group outlives the driver, so none is ever out of date.
    template = ""

    def __init__(
        self,
        pool: PoolSettings,
        settings: RelaySettings,
        worker_amqp_uri: Callable[[], str],
        *,
        at_once: int,
        worker_amqp_uri_file: Path | None = None,
    ) -> None:
        """`at_once`: most requests of a key on the relay. Raises SettingsError."""
        self._pool, self._names = pool, PoolNames(pool.name)
        self._uri = worker_amqp_uri
        self._uri_file = None if worker_amqp_uri_file is None else str(worker_amqp_uri_file)
        self._at_once = at_once
        self._looks = (settings.timings.look_first, settings.timings.look_every)
        self._relay = Relay(settings)
        self._opening: asyncio.Task[Relay] | None = None
        self._forwardings: dict[str, tuple[KeyForwarder, asyncio.Task[None]]] = {}
        #: Keys that were started while their forwarding was stopping.
        self._start_again: set[str] = set()
        self._unread = UnreadChanges()

    async def start(self, key: str) -> None:
        """Begin to forward, unless it does. While the former forwarding stops, the next one waits for it."""
        try:
            check_endpoint(endpoint_of(self._pool.name, key))
        except InvalidCall as error:
            raise DriverError(f"no worker can poll for key {key!r}: {error}") from error
        await self._open()
        found = self._forwardings.get(key)
        if found is None:
            self._begin(key)
        elif found[0].stop.is_set():
            self._start_again.add(key)

    async def stop(self, key: str) -> None:
        """Take no more requests of a key, and finish those on the relay."""
        self._start_again.discard(key)
        if found := self._forwardings.get(key):
            found[0].stop.set()

    async def list(self) -> builtins.list[Group]:
        """Return the keys that are forwarded. One is running while a worker polls, and starting before."""
        return [
            Group(key, _state(forwarding), int(forwarding.forwards), self.template)
            for key, (forwarding, _) in self._forwardings.items()
        ]

    def changes(self) -> AsyncIterator[Change]:
        """Yield changes until the driver is closed."""
        return self._unread.until_end()

    async def close(self) -> None:
        """End all forwarding. Requests that are still on the relay then go back to their queues."""
        self._unread.end()
        self._start_again.clear()
        tasks = [task for _, task in self._forwardings.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._relay.close()

    async def _open(self) -> None:
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._relay.__aenter__())
        await asyncio.shield(self._opening)

    def _begin(self, key: str) -> None:
        forwarding = KeyForwarder(
            self._relay,
            lambda: self._environment(key),
            (self._pool.name, key),
            lambda error: self._unread.tell(Change(key, error)),
            at_once=self._at_once,
            longest_wait=min(self._pool.message_ttl, MOST_PICKUP_SECONDS),
            looks=self._looks,
        )
        task = asyncio.get_running_loop().create_task(forwarding.run(), name=f"relay: {key}")
        self._forwardings[key] = (forwarding, task)
        task.add_done_callback(lambda done: self._ended(key, forwarding, done))

    def _ended(self, key: str, forwarding: KeyForwarder, task: asyncio.Task[None]) -> None:
        del self._forwardings[key]
        if self._unread.has_ended() or task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, OsrdyneError):
            log.error("forwarding failed", extra={"key": key}, exc_info=error)
        reason = None if error is None or forwarding.stop.is_set() else str(error) or type(error).__name__
        self._unread.tell(Change(key, reason))
        if key in self._start_again:
            self._start_again.discard(key)
            self._begin(key)

    def _environment(self, key: str) -> WorkerEnvironment:
        return WorkerEnvironment(
            id=f"relay-{secrets.token_hex(8)}",
            key=key,
            pool=self._pool.name,
            requests_queue=self._names.request_queue(key),
            activity_exchange=self._names.activity_exchange,
            amqp_uri=self._uri(),
            amqp_uri_file=self._uri_file,
            consumer_timeout_ms=milliseconds(self._pool.consumer_timeout),
        )


def _state(forwarding: KeyForwarder) -> GroupState:
    if forwarding.stop.is_set():
        return GroupState.STOPPING
    return GroupState.RUNNING if forwarding.forwards else GroupState.STARTING
