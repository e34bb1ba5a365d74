"""The service that a node's handlers share: it collects and settles requests, and ends those of silent workers.

A request is in the hand of the client that got it, not of a connection: a worker whose connection breaks may answer
over another one. The worker counts as gone when nothing is heard of it for `worker_gone_after`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from osrdyne_relay import Relay
from osrdyne_relay.errors import InvalidCall, NodeStopping, RedisAway, RelayError, TooLarge, TooMany, UnknownRequest
from osrdyne_relay.http.access import Access, KnownClient
from osrdyne_relay.http.metrics import NodeMetrics
from osrdyne_relay.http.node_state import HeldRequest, NodeState
from osrdyne_relay.messages import Answer
from osrdyne_relay.redis.names import new_id
from osrdyne_relay.serving import Collected
from osrdyne_relay.settings import ServeSettings
from osrdyne_relay.time_rules import AwakeClock
from osrdyne_relay.wire import dump_headers, notes_of
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)

_GONE = "its worker fell silent, or its connection ended; the request may have run"
#: Seconds between two checks whether Redis answers.
_REDIS_CHECK_SECONDS = 5.0
#: Most connections at a time that are about one request in hand: each may bring a body.
_MOST_CONNECTIONS = 4


@dataclass(slots=True)
class _Poll:
    client: KnownClient
    endpoint: str
    ended: bool = False


class NodeService:
    """One node. Its `background_work` ends requests without worker or caller; `stop` ends the node in good order."""

    def __init__(self, relay: Relay, access: Access, settings: ServeSettings) -> None:
        self.relay = relay
        self.access = access
        self.settings = settings
        self.state = NodeState()
        self.metrics = NodeMetrics()
        #: Set when this node begins to stop, and when its `grace` has passed.
        self.stopping = asyncio.Event()
        self.grace_over = asyncio.Event()
        #: Whether Redis answered last time; None before that.
        self.redis_answers: bool | None = None
        #: Calls under way, and WebSockets of workers.
        self.calls = self.sockets = 0
        #: Polls that wait, by client and the poll's name. One without a name has a name of ours.
        self._polls: dict[tuple[str, str], _Poll] = {}
        self._changed: set[asyncio.Event] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._now = asyncio.get_running_loop().time
        self._awake_clock = AwakeClock()

    def _clock(self) -> float:
        return self._awake_clock.at(self._now())

    # --- for handlers ---------------------------------------------------------------------------------------------

    @contextmanager
    def opened(self, client: KnownClient) -> Iterator[None]:
        """Count what a client does within the block. Raises TooMany, or NodeStopping."""
        if self.stopping.is_set():
            raise NodeStopping
        self.state.open(client.name, self.limit_of(client))
        try:
            yield
        finally:
            self.state.close(client.name)

    def limit_of(self, client: KnownClient) -> int:
        """Return how much a client may have open."""
        return client.grant.most or self.settings.most

    async def collect(
        self, client: KnownClient, endpoint: str, wait: float, poll: str | None = None
    ) -> HeldRequest | None:
        """Collect a request for a worker; None when there was none for `wait` seconds, or `end_poll` was called.

        `poll`: a name for `end_poll`. Where this is cancelled, the request stays. Raises NodeStopping, TooMany, and
        what `Relay.dequeue` raises.
        """
        if self.stopping.is_set():
            raise NodeStopping
        self.state.open(client.name, self.limit_of(client))
        held = None
        try:
            with self.state.polled(client.name, endpoint, self.limit_of(client), self._clock):
                held = await self._collect(client, endpoint, self._clock() + wait, poll or new_id())
        finally:
            if held is None:
                self.state.close(client.name)
        return held

    async def _collect(self, client: KnownClient, endpoint: str, until: float, poll: str) -> HeldRequest | None:
        name = client.name, poll
        if name in self._polls:
            raise InvalidCall("a poll of this name waits already: give each poll its own name")
        own = self._polls[name] = _Poll(client, endpoint)
        try:
            while True:
                left = max(0.0, until - self._clock())
                found = await self.relay.dequeue(endpoint, wait=left, ended=lambda: own.ended)
                if found is None:
                    break
                if not self.access.still_grants(client):
                    self.relay.put_back(found)
                    break
                if (why := _unfit(found)) is None:
                    return self.state.take(found, client.name, self._clock())
                self.metrics.requests.labels("unfit").inc()
                self.later(_quietly(found.fail(why)), f"end of {found.id}")
        finally:
            del self._polls[name]
        if self.stopping.is_set():
            raise NodeStopping
        return None

    def end_poll(self, client: KnownClient, poll: str) -> None:
        """Have a poll end now: with the request that it is just getting, or without one."""
        if found := self._polls.get((client.name, poll)):
            self._end_now(found)

    def _end_now(self, poll: _Poll) -> None:
        poll.ended = True
        self.relay.wake(poll.endpoint)

    def put_back(self, held: HeldRequest) -> None:
        """Let the next worker have a request that was not sent to this one."""
        if self._end(held, "put_back"):
            self.relay.put_back(held.collected)

    @contextmanager
    def worker_connected(self, held: HeldRequest) -> Iterator[None]:
        """Note that the worker of a request is there within the block. Raises TooMany."""
        if held.connections >= _MOST_CONNECTIONS:
            raise TooMany(f"a request in hand has {_MOST_CONNECTIONS} connections at most: end some of them")
        held.connections += 1
        try:
            yield
        finally:
            held.connections -= 1
            held.last_seen = self._clock()

    async def answer(self, held: HeldRequest, answer: Answer) -> None:
        """Answer a request. Raises what `Relay.apply_response` raises."""
        await self._settle(held, held.collected.apply(answer), "answered")

    async def fail(self, held: HeldRequest, reason: str) -> None:
        """End a request without an answer."""
        await self._settle(held, held.collected.fail(reason), "failed")

    async def _settle(self, held: HeldRequest, work: Coroutine[Any, Any, None], outcome: str) -> None:
        """Write the outcome, also when the worker disconnects meanwhile."""
        if held.settling:
            work.close()
            raise UnknownRequest
        held.settling = True
        await asyncio.shield(self.later(self._settled(held, work, outcome), f"answer to {held.collected.id}"))

    async def _settled(self, held: HeldRequest, work: Awaitable[None], outcome: str) -> None:
        try:
            await work
        except (RedisAway, InvalidCall):
            # It is still in hand: the worker may try once more.
            held.settling, held.last_seen = False, self._clock()
            raise
        except RelayError as error:
            self._end(held, "refused", error)
            raise
        except BaseException:
            self._end(held, "refused")
            raise
        self._end(held, outcome)

    def _end(self, held: HeldRequest, outcome: str, why: RelayError | None = None) -> bool:
        if not self.state.end(held, why):
            return False
        self.metrics.requests.labels(outcome).inc()
        if outcome == "abandoned":
            # A WebSocket keeps it until its worker has ended it, too.
            held.collected.body = b""
        elif held.settled is not None:
            held.settled()
        return True

    async def news(self, held: HeldRequest, wait: float) -> RelayError | None:
        """Wait until a request is no longer wanted; return why, or None after `wait` seconds."""
        with self.worker_connected(held), suppress(TimeoutError):
            async with asyncio.timeout(wait):
                return await held.collected.wait_abandoned()
        return None

    @contextmanager
    def access_changes(self) -> Iterator[asyncio.Event]:
        """Give an event that is set when the access file has changed, within the block."""
        event = asyncio.Event()
        self._changed.add(event)
        try:
            yield event
        finally:
            self._changed.discard(event)

    # --- in the background ----------------------------------------------------------------------------------------

    def background_work(self) -> list[Coroutine[Any, Any, None]]:
        """Return what runs for as long as the node does."""
        return [self._sweep_always(), self._check_redis_always()]

    async def _sweep_always(self) -> None:
        shortest = min(self.settings.worker_gone_after, self.settings.forget_after)
        pause = min(1.0, shortest / 4)
        while True:
            began = self._now()
            await asyncio.sleep(pause)
            self._awake_clock.slept(pause, self._now() - began)
            self.sweep(self._clock())

    def sweep(self, now: float) -> None:
        """Forget endpoints that are not polled, and end what has no worker or no caller any more."""
        for endpoint in self.state.unpolled(now - self.settings.forget_after):
            self.relay.forget(endpoint)
        for held in self.state.abandoned():
            self._end(held, "abandoned", held.collected.abandoned)
        for held in self.state.silent(now - self.settings.worker_gone_after):
            log.warning("a worker fell silent", extra={"client": held.client, "endpoint": held.collected.endpoint})
            held.settling = True
            work = self._settled(held, held.collected.fail(_GONE), "worker_gone")
            self.later(_quietly(work), f"end of {held.collected.id}")

    async def _check_redis_always(self) -> None:
        while True:
            try:
                await self.relay.ask_redis()
            except RelayError:
                if self.redis_answers is not False:
                    self.metrics.redis_outages.inc()
                self.redis_answers = False
            else:
                if not self.redis_answers:
                    log.info("this node is ready")
                self.redis_answers = True
            await asyncio.sleep(_REDIS_CHECK_SECONDS)

    @property
    def ready(self) -> bool:
        """Whether polls and calls can be answered now."""
        return bool(self.redis_answers) and not self.relay.redis_away and not self.stopping.is_set()

    def update_metrics(self) -> None:
        """Bring the figures up to date."""
        metrics = self.metrics
        endpoints, polls = self.state.endpoints()
        metrics.endpoints.set(endpoints)
        metrics.polls.set(polls)
        metrics.calls_open.set(self.calls)
        metrics.in_hand.set(len(self.state.in_hand))
        metrics.streams.set(self.state.streams())
        metrics.sockets.set(self.sockets)
        metrics.redis_up.set(bool(self.redis_answers) and not self.relay.redis_away)

    def use_access(self, access: Access) -> None:
        """Apply a changed access file: end what a client may no longer do."""
        self.access = access
        for poll in self._polls.values():
            if not access.still_grants(poll.client):
                self._end_now(poll)
        for event in self._changed:
            event.set()

    def later(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a task of this node, which goes on when a client goes away."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, RelayError):
            log.error("a task of the node failed", extra={"task": task.get_name()}, exc_info=error)

    async def stop(self) -> None:
        """Begin nothing more, and wait until what is under way has ended, for `grace` at most."""
        self.stopping.set()
        for poll in self._polls.values():
            self._end_now(poll)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.grace):
                while self.state.in_hand or self.calls or self.state.streams():  # noqa: ASYNC110 - a look that costs nothing, once in a life
                    await asyncio.sleep(0.05)


def _unfit(request: Collected) -> str | None:
    """Return why a request cannot be passed on over HTTP."""
    try:
        dump_headers(request.headers)
        notes_of(request.streams)
    except TooLarge as error:
        return str(error)
    return None


async def _quietly(work: Awaitable[None]) -> None:
    with suppress(RelayError):
        await work
