"""A node of the relay: calls endpoints, and serves those that workers poll here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from osrdyne_calls.closing import CLOSE_SECONDS
from osrdyne_protocol.errors import SettingsError
from osrdyne_relay.call import Call
from osrdyne_relay.checking import checked_request, checked_timeouts, checked_wait
from osrdyne_relay.errors import RelayClosed, RelayError, UnknownRequest, UnreadableRecord
from osrdyne_relay.messages import RESPONSE_PULSE, Answer, Request, Response, read_pulse
from osrdyne_relay.node import Node
from osrdyne_relay.redis import names, records
from osrdyne_relay.redis.port import RedisPort
from osrdyne_relay.redis.pulse_receiver import PulseReceiver
from osrdyne_relay.redis.records import RequestHeader
from osrdyne_relay.redis.transactions import ClaimView
from osrdyne_relay.serving import Collected, Inbox
from osrdyne_relay.settings import RelaySettings
from osrdyne_relay.streams.base import DataStreams, NoStreams
from osrdyne_relay.streams.directory import SharedDirectory
from osrdyne_runtime import log_lines
from osrdyne_runtime.forks import OwnerProcess, keep

log = log_lines.logger(__name__)


class Relay:
    """One node. `async with Relay(settings) as relay:` in each process that calls or serves.

    All methods belong to the event loop in which it was entered.
    """

    def __init__(
        self, settings: RelaySettings, *, redis: RedisPort | None = None, streams: DataStreams | None = None
    ) -> None:
        """`redis` and `streams` replace what the settings describe. Raises SettingsError."""
        if redis is None:
            # Where the simulation brings a model, the library is not needed.
            from osrdyne_relay.redis.client import RedisClient

            redis = RedisClient(settings.redis)
        self._redis = redis
        self._node = Node(redis, streams or _store(settings), settings)
        self._pulse_receiver = PulseReceiver(redis)
        self._inboxes: dict[str, Inbox] = {}
        self._sweep_every = settings.timings.sweep_every
        self._pickup_timeout = settings.timings.pickup_timeout
        self._closing = False
        self._home: OwnerProcess | None = None

    def _check_here(self) -> None:
        if self._home is not None:
            self._home.check("this Relay")

    async def __aenter__(self) -> Self:
        self._check_here()
        self._home = OwnerProcess()
        self._pulse_receiver.listen(self._node.names.node(self._node.id), self._pulsed)
        self._node.spawn(self._pulse_receiver.run(), "pulses")
        self._node.spawn(self._sweep(), "sweep")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def redis_away(self) -> bool:
        """Whether the last operation of this node failed."""
        return self._node.retrying.outage.is_away

    @property
    def streams(self) -> DataStreams:
        """The store of data streams."""
        return self._node.streams

    # --- for callers ----------------------------------------------------------------------------------------------

    async def queue_and_wait(
        self,
        endpoint: str,
        request: Request | bytes,
        *,
        pickup_timeout: float | None = None,
        timeout: float | None = None,
    ) -> Response:
        """Have a request run once by a worker that polls as `endpoint` at any node; return its response.

        `pickup_timeout`: seconds for which it may wait for a node; without it, the setting's. `timeout`: seconds for
        all of it, after which it is cancelled; None or `math.inf` for no end. Raises a RelayError:
        docs/reference/relay-errors.md has a table; and OtherProcess in a fork of the process that entered this node.
        Cancelling this task cancels the call.
        """
        return await self.start(endpoint, request, pickup_timeout=pickup_timeout, timeout=timeout).response()

    def start(
        self,
        endpoint: str,
        request: Request | bytes,
        *,
        pickup_timeout: float | None = None,
        timeout: float | None = None,
    ) -> Call:
        """Begin the same, and return a call that can be cancelled."""
        self._check_here()
        if self._closing:
            raise RelayClosed
        names.check_endpoint(endpoint)
        whole, pickup = checked_timeouts(timeout, pickup_timeout)
        sent = checked_request(request, self._node.most_bytes)
        return Call(self._node, endpoint, sent, self._pickup_timeout if pickup is None else pickup, whole)

    async def polled(self, endpoint: str) -> bool:
        """Return whether a worker polls as `endpoint` at any node, or did so before the last three looks.

        A worker that is busy does not poll. Raises RedisAway or RedisRefused.
        """
        self._check_here()
        polled = self._node.transactions.polled(names.check_endpoint(endpoint))
        return (await self._node.run(polled)).answers[0] is not None

    def watch_polled(self, endpoint: str, heard: Callable[[], None]) -> None:
        """Have `heard` called when a worker begins to poll as `endpoint`, until `forget_polled`. It may be missed."""
        self._pulse_receiver.listen(self._node.names.polled(names.check_endpoint(endpoint)), lambda _: heard())

    def forget_polled(self, endpoint: str) -> None:
        """Watch an endpoint no more."""
        self._pulse_receiver.forget(self._node.names.polled(endpoint))

    # --- for workers ----------------------------------------------------------------------------------------------

    async def dequeue(
        self, endpoint: str, *, wait: float = 30.0, ended: Callable[[], bool] = lambda: False
    ) -> Collected | None:
        """Collect the next request of an endpoint; None when there was none for `wait` seconds.

        `ended`: whether to wait no longer; call `wake` when that changes. A request that is just collected is returned.

        The node listens to the endpoint from the first call on, until `forget`. Raises RedisAway or RedisRefused; call
        again then. A worker that is gone meanwhile may be cancelled: what was collected for it goes to the next one.
        """
        self._check_here()
        deadline = self._node.now() + checked_wait(wait)
        inbox = self._inbox(names.check_endpoint(endpoint))
        while not self._closing:
            if ended():
                return None
            found = await inbox.next(deadline)
            if isinstance(found, str):
                found = await self._claim(inbox, found)
            if found is not None:
                found.dequeued = True
                return found
            if self._node.now() >= deadline:
                return None
        raise RelayClosed

    def wake(self, endpoint: str) -> None:
        """Have each `dequeue` of an endpoint that waits look whether its wait has ended."""
        if inbox := self._inboxes.get(endpoint):
            inbox.wake_all()

    async def apply_response(self, request: str, response: Answer | bytes) -> None:
        """Answer a request that this node has collected, by its id.

        Raises UnknownRequest, or why the answer does not count: CallerGone, Cancelled, DataLost, RedisAway, TooLarge.
        """
        self._check_here()
        held = self._node.held.get(request)
        if not isinstance(held, Collected):
            raise UnknownRequest
        await held.apply(Answer(response) if isinstance(response, bytes) else response)

    def put_back(self, collected: Collected) -> None:
        """Give a request that no worker has seen to the next one that polls here, for `hold_for` at most."""
        inbox = self._inboxes.get(collected.endpoint)
        if inbox is None or self._closing:
            self._node.later(_given_back(collected), f"return of {collected.id}")
        elif collected.abandoned is None:
            collected.waits_again()
            inbox.hand_over(collected)

    def forget(self, endpoint: str) -> None:
        """Listen to an endpoint no more: no worker polls here as it. Requests wait for another node."""
        inbox = self._inboxes.pop(endpoint, None)
        if inbox is not None:
            self._pulse_receiver.forget(self._node.names.pulse(endpoint))
            for collected in inbox.ready:
                self._node.later(_given_back(collected), f"return of {collected.id}")

    def _inbox(self, endpoint: str) -> Inbox:
        inbox = self._inboxes.get(endpoint)
        if inbox is None:
            inbox = self._inboxes[endpoint] = Inbox(self._node, endpoint)
            self._pulse_receiver.listen(self._node.names.pulse(endpoint), inbox.pulsed)
        return inbox

    async def _claim(self, inbox: Inbox, call: str) -> Collected | None:
        """Collect a request, if no other node has. When the worker goes away meanwhile, the next one gets it."""
        token = names.new_token(self._node.id)
        try:
            return await self._claim_by(token, inbox, call)
        except asyncio.CancelledError:
            # Redis may have executed it. To repeat it does no harm.
            self._node.spawn(self._hand_over(token, inbox, call), f"claim of {call}")
            raise

    async def _hand_over(self, token: str, inbox: Inbox, call: str) -> None:
        if (collected := await self._claim_by(token, inbox, call)) is not None:
            inbox.hand_over(collected)

    async def _claim_by(self, token: str, inbox: Inbox, call: str) -> Collected | None:
        done = await self._node.run(self._node.transactions.claim(inbox.endpoint, call, token))
        claimed = ClaimView.of(done.answers)
        if claimed.token != token.encode() or claimed.request is None:
            return None
        try:
            header, body = records.decode(RequestHeader, claimed.request, self._node.most_bytes)
        except UnreadableRecord as error:
            log.warning("a request cannot be read", extra={"endpoint": inbox.endpoint, "reason": str(error)})
            return None
        if (header.id, header.endpoint) != (call, inbox.endpoint) or claimed.life != header.life.encode():
            # Of another life: its caller knows of the loss, or finds out. Of another name: it is not ours.
            return None
        inbox.active()
        return Collected(self._node, token, header, body)

    # --- the node -------------------------------------------------------------------------------------------------

    async def ask_redis(self) -> None:
        """Have Redis answer now, at the first attempt. Raises RedisAway or RedisRefused."""
        self._check_here()
        await self._node.retrying.ask()

    def _pulsed(self, content: bytes | None) -> None:
        """Take a pulse of this node's channel; None when its subscription has begun."""
        if content is None:
            for work in (*self._node.calls.values(), *self._node.held.values()):
                work.look()
            return
        if (found := read_pulse(content)) is None:
            return
        kind, call, rest = found
        mine = self._node.calls.get(call)
        if mine is not None and kind == RESPONSE_PULSE and rest:
            mine.receive(rest)
        elif mine is not None:
            mine.look()
        elif held := self._node.held.get(call):
            held.look()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_every)
            try:
                await self._node.streams.sweep()
            except (OSError, RelayError) as error:
                log.warning("expired data streams cannot be removed", extra={"reason": str(error)})

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """End the node: calls end with RelayClosed, and requests that were not answered with CallFailed.

        They have `timeout` seconds to say so to Redis. What they cannot say, their peers find out. Does nothing in a
        fork: the connections are the other process's.
        """
        if self._home is not None and not self._home.is_here:
            keep(self._node)
            return
        if self._closing:
            return
        self._closing = True
        calls = [call for call in self._node.calls.values() if isinstance(call, Call)]
        for call in calls:
            call.close()
        for held in list(self._node.held.values()):
            if isinstance(held, Collected):
                self._node.later(_stopped(held), f"end of {held.id}")
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(call.ended() for call in calls))
                await asyncio.gather(*self._node.chores, return_exceptions=True)
        left = [*self._node.tasks, *self._node.chores]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for held in list(self._node.held.values()):
            if isinstance(held, Collected):
                held.drop()
        await self._redis.close()


async def _given_back(collected: Collected) -> None:
    with suppress(RelayError):
        await collected.give_back()


async def _stopped(collected: Collected) -> None:
    with suppress(RelayError):
        if collected.dequeued:
            await collected.fail("the serving node stops; the request may have run")
        else:
            await collected.give_back()


def _store(settings: RelaySettings) -> DataStreams:
    streams = settings.streams
    if streams.s3 is not None:
        try:
            # Only a node that has a bucket needs its library.
            from osrdyne_relay.streams.s3 import S3Streams
        except ModuleNotFoundError as error:
            raise SettingsError("streams.s3", "needs the package obstore: install osrdyne-relay[s3]") from error
        return S3Streams(streams.s3, keep=streams.keep)
    if streams.directory is not None:
        return SharedDirectory(streams.directory, keep=streams.keep)
    return NoStreams()
