"""The forwarding of one key: while a worker polls, requests of its queue go over the relay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_relay.driver.translation import answer_of, endpoint_of, failure_of, request_of, waits_for
from osrdyne_relay.errors import CallFailed, RelayError
from osrdyne_relay.relay import Relay
from osrdyne_relay.time_rules import LookSchedule
from osrdyne_runtime import log_lines
from osrdyne_worker import Request, Requeue, serve

log = log_lines.logger(__name__)

#: Seconds that requests on the relay may take when the forwarding stops. Longer ones go back to the queue.
_GRACE_SECONDS = 30.0
#: Seconds before a request that was not answered goes back to its queue.
_RETURN_AFTER_SECONDS = 5.0


class KeyForwarder:
    """Forwards the requests of one key until `stop` is set."""

    def __init__(
        self,
        relay: Relay,
        environment: Callable[[], WorkerEnvironment],
        key: tuple[str, str],
        changed: Callable[[str | None], None],
        *,
        at_once: int,
        longest_wait: float,
        looks: tuple[float, float],
    ) -> None:
        """`key`: the pool and the key. `environment` is called each time a worker begins to poll.

        `changed` is called when `forwards` changes, and with the reason when Redis does not answer.
        `longest_wait`: seconds for which a request may wait on the relay. `looks`: first and longest pause in seconds
        between two looks whether a worker polls.
        """
        self._relay, self._environment = relay, environment
        self._endpoint, self._key = endpoint_of(*key), key[1]
        self._at_once, self._longest_wait = at_once, longest_wait
        self._first, self._most = looks
        self.stop = asyncio.Event()
        #: Whether a worker polls, and requests are taken.
        self.forwards = False
        self._in_hand = 0
        self._news = asyncio.Event()
        #: Whether the last look at Redis failed.
        self._away = False
        self._changed = changed

    async def run(self) -> None:
        """Forward. Raises SettingsError, and what the worker library's `serve` raises."""
        self._relay.watch_polled(self._endpoint, self._news.set)
        looks = LookSchedule(self._first, self._most, self._now())
        try:
            while not self.stop.is_set():
                if await self._polled():
                    await self._while_polled()
                    looks.active()
                looks.looked(self._now())
                await self._pause(looks.due)
        finally:
            self._relay.forget_polled(self._endpoint)

    async def _while_polled(self) -> None:
        """Take requests until no worker polls, or the forwarding stops."""
        end = asyncio.Event()
        serving = asyncio.create_task(
            serve(self._forward, self._environment(), end, prefetch=self._at_once, grace=_GRACE_SECONDS),
            name=f"forwarding of {self._key}",
        )
        self.forwards = True
        self._changed(None)
        try:
            while not self.stop.is_set() and not serving.done() and await self._wanted():
                await self._pause(self._now() + self._most, serving)
            end.set()
            await serving
        finally:
            self.forwards = False
            self._changed(None)
            serving.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await serving

    async def _forward(self, request: Request) -> bytes:
        self._in_hand += 1
        try:
            waits = waits_for(request, self._longest_wait, time.time())
            call = self._relay.start(self._endpoint, request_of(request), pickup_timeout=waits)
            async with await call.response() as response:
                return answer_of(response)
        except RelayError as error:
            log.warning("a request was not answered over the relay", extra={"key": self._key, "reason": str(error)})
            failure = failure_of(error)
            if isinstance(failure, Requeue) and not isinstance(error, CallFailed):
                # Each delivery counts, and at once the next one would end as this one.
                self._news.set()
                await asyncio.sleep(_RETURN_AFTER_SECONDS)
            raise failure from error
        finally:
            self._in_hand -= 1

    async def _wanted(self) -> bool:
        """Whether to take further requests. A worker that is busy with ours does not poll meanwhile."""
        return await self._polled() or (self._in_hand > 0 and not self._away)

    async def _polled(self) -> bool:
        try:
            polled = await self._relay.polled(self._endpoint)
        except RelayError as error:
            if not self._away:
                self._changed(f"cannot see whether a worker polls: {error}")
            self._away = True
            # What is on the relay decides by itself; nothing new begins.
            return False
        self._away = False
        return polled

    async def _pause(self, until: float, *tasks: asyncio.Task[None]) -> None:
        """Wait until then, or for news, the stop, or the end of a task."""
        waits = [asyncio.ensure_future(self._news.wait()), asyncio.ensure_future(self.stop.wait())]
        try:
            await asyncio.wait(
                [*waits, *tasks], timeout=max(0.0, until - self._now()), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in waits:
                task.cancel()
        self._news.clear()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
