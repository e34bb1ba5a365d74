"""One request on the serving node, and the requests that wait at an endpoint.

`Collected` renews its heartbeat in Redis, and finds out when the work is no longer wanted. `Inbox` decides which id is
tried next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from osrdyne_relay.errors import (
    CallerGone,
    Cancelled,
    DataLost,
    NotCollected,
    RedisAway,
    RelayError,
    Stage,
    TooLarge,
)
from osrdyne_relay.messages import RESPONSE_PULSE, Answer, pulse
from osrdyne_relay.node import Node, Wakeup
from osrdyne_relay.redis import names, records
from osrdyne_relay.redis.records import RequestHeader, ResponseHeader, Status
from osrdyne_relay.redis.transactions import ServerView
from osrdyne_relay.streams.base import StoredStream
from osrdyne_relay.time_rules import LookSchedule, PeerWatch, polled_for
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)

#: Most ids that an inbox remembers; the next look finds the others.
MOST_HINTS = 256
#: Most ids that one look reads.
MOST_IDS_PER_LOOK = 16
#: Most characters of the reason in a response.
_MOST_REASON = 2000


class Collected:
    """A request that this node has. It is answered, given back, or abandoned."""

    def __init__(self, node: Node, token: str, header: RequestHeader, body: bytes) -> None:
        self.id = header.id
        self.endpoint = header.endpoint
        self.body = body
        self.headers = header.headers
        #: Read them before the request is answered: then they are removed.
        self.streams = {name: StoredStream(node.streams, note.id, note.size) for name, note in header.streams.items()}
        #: Why the work is no longer wanted: Cancelled, CallerGone, DataLost or RedisAway. None while it is wanted.
        self.abandoned: RelayError | None = None
        #: Whether a caller of `dequeue` has it.
        self.dequeued = False
        self._node = node
        self._token = token.encode()
        self._caller = header.node
        self._news = Wakeup()
        self._ended = asyncio.Event()
        self._looks = LookSchedule(node.timings.look_first, node.timings.beat_every, node.now())
        self._collected_at = node.now()
        self._looks.looked(node.now())
        node.held[self.id] = self
        self._task: asyncio.Task[None] | None = None
        #: A response that may not be in Redis, because that did not answer in time. It is written at the next look.
        self._late: bytes | None = None
        #: Whether that was written.
        self._late_written = False
        #: Begins the task. Most requests are answered before that, and need none.
        self._first_look = asyncio.get_running_loop().call_at(self._looks.due, self._begin)

    async def wait_abandoned(self) -> RelayError:
        """Wait until the work is no longer wanted; return why. Does not return after the request was answered."""
        while self.abandoned is None:
            await self._ended.wait()
            if self.abandoned is None:
                await asyncio.get_running_loop().create_future()
        return self.abandoned

    def look(self) -> None:
        """Look at Redis now: a pulse says so, or some may have been lost."""
        self._looks.at_once()
        self._news.set()
        self._begin()

    def _begin(self) -> None:
        self._first_look.cancel()
        if self._task is None:
            self._task = self._node.spawn(self._run(), f"request {self.id}")

    def waits_again(self) -> None:
        """Note that no worker has it: it waits for one."""
        self.dequeued = False
        self._collected_at = self._node.now()

    @property
    def waited_too_long(self) -> bool:
        """Whether it has waited for a worker for so long that it goes back."""
        return not self.dequeued and self._node.now() > self._collected_at + self._node.timings.hold_for

    async def apply(self, answer: Answer) -> None:
        """Answer the request. Raises what `abandoned` says, or RedisAway: the caller may have no response yet.

        After RedisAway the node writes the answer by itself, if Redis is back before the caller gives up.
        """
        if self._late_written:
            return
        if self.abandoned is not None:
            raise self.abandoned
        written: list[str] = []
        try:
            notes = await self._node.store_streams(answer.streams, written)
            header = records.made(ResponseHeader, headers=dict(answer.headers), streams=notes)
            record = records.encode(header, answer.body, self._node.most_bytes)
        except TooLarge as error:
            await self._remove_streams(written)
            await self._send(self._unserved("failed", f"the response is too large: {error}"))
            raise
        except BaseException:
            await self._remove_streams(written)
            raise
        try:
            await self._send(record)
        except (CallerGone, DataLost):  # not after RedisAway: Redis may have the response
            await self._remove_streams(written)
            raise

    async def _remove_streams(self, ids: list[str]) -> None:
        for stream in ids:
            await self._node.streams.remove(stream)

    async def fail(self, reason: str) -> None:
        """End the request without an answer: the caller gets a CallFailed with this reason."""
        await self._send(self._unserved("failed", reason))

    async def give_back(self) -> None:
        """End the request that no worker has seen: the caller gets a NotCollected."""
        await self._send(self._unserved("returned"))

    def _unserved(self, status: Status, reason: str = "") -> bytes:
        """Return the record of a response without an answer."""
        header = ResponseHeader(status=status, reason=reason[:_MOST_REASON])
        return records.encode(header, b"", self._node.most_bytes)

    async def _send(self, record: bytes) -> None:
        """Write the response. Raises CallerGone or DataLost when the caller will not get it, and RedisAway."""
        if self._late_written:
            return
        if self.abandoned is not None:
            raise self.abandoned
        try:
            view = ServerView.of((await self._node.run(self._answer(record))).answers)
        except RedisAway:
            self._late = record
            self.look()
            raise
        self.drop()
        if view.claim != self._token:
            raise DataLost
        if view.over:
            raise CallerGone

    def _answer(self, record: bytes) -> list[tuple[str | bytes | int, ...]]:
        content = pulse(RESPONSE_PULSE, self.id, record if len(record) <= self._node.pulse_bytes else b"")
        return self._node.transactions.answer(self.endpoint, self.id, record, (self._caller, content))

    def drop(self) -> None:
        """Stop its heartbeat and its looks: this node is done with it."""
        self._node.held.pop(self.id, None)
        self._first_look.cancel()
        if self._task is not None:
            self._task.cancel()
        self._ended.set()

    # --- the task -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Renew the heartbeat and look until the request was answered, or is no longer wanted."""
        node = self._node
        watch = PeerWatch(node.timings.caller_gone_after, node.timings.beat_every, node.now())
        beats = 0
        try:
            while True:
                await self._news.wait(self._looks.due)
                if self.waited_too_long:
                    return await self._give_back_waiting()
                if self._late is not None:
                    await node.run(self._answer(self._late))
                    self._late_written = True
                    node.held.pop(self.id, None)
                    return self._ended.set()
                beats += 1
                beat = node.transactions.server_beat(self.endpoint, self.id, beats)
                view = ServerView.of((await node.run(beat)).answers)
                self._looks.looked(node.now())
                if why := self._unwanted(view, silent=watch.note(view.caller_beat, node.now())):
                    return await self._abandon(why)
                for stream in self.streams.values():
                    await node.streams.touch(stream.id)
        except RelayError as error:
            self._note_abandoned(error)

    def _unwanted(self, view: ServerView, *, silent: bool) -> RelayError | None:
        """Return why the work is no longer wanted; None while it is."""
        if view.claim != self._token:
            return DataLost()
        if view.over:
            return CallerGone()
        if view.cancel:
            return Cancelled(Stage.WHILE_RUNNING)
        return CallerGone() if silent else None

    async def _give_back_waiting(self) -> None:
        self._note_abandoned(NotCollected())
        await self._node.run(self._answer(self._unserved("returned")))

    async def _abandon(self, why: RelayError) -> None:
        """Note for the worker why it was abandoned, and write it for a caller that may still listen."""
        self._note_abandoned(why)
        status: Status = "abandoned"
        if isinstance(why, Cancelled):
            # Without a worker it did not run.
            status = "cancelled" if self.dequeued else "returned"
        if not isinstance(why, DataLost):
            with suppress(RelayError):
                await self._node.run(self._answer(self._unserved(status, str(why))))
        if isinstance(why, CallerGone):
            for stream in self.streams.values():
                await stream.remove()

    def _note_abandoned(self, why: RelayError) -> None:
        self._node.held.pop(self.id, None)
        self.abandoned = why
        self._ended.set()


class Inbox:
    """The requests that wait at one endpoint, as far as this node knows."""

    def __init__(self, node: Node, endpoint: str) -> None:
        self._node = node
        self.endpoint = endpoint
        #: Requests that were collected for a worker that went away meanwhile.
        self.ready: deque[Collected] = deque()
        self._hints: dict[str, None] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: Whether one of those that wait looks at Redis now, for all of them.
        self._looking = False
        #: Whether other nodes have heard that workers poll here.
        self._announced = False
        self._looks = LookSchedule(node.timings.look_first, node.timings.look_every, node.now())

    def pulsed(self, content: bytes | None) -> None:
        """Take a pulse of the endpoint's channel; None when the subscription has begun."""
        if content is None:
            self._looks.at_once()
        elif (call := names.id_from(content)) is not None:
            self._hint(call)
        else:
            return
        self._wake()

    def hand_over(self, collected: Collected) -> None:
        """Keep a request for the next worker."""
        self.ready.append(collected)
        self._wake()

    async def next(self, deadline: float) -> Collected | str | None:
        """Return a collected request, or an id to try. None at the deadline, or when woken for nothing."""
        while self.ready:
            collected = self.ready.popleft()
            if collected.abandoned is not None:
                continue
            if not collected.waited_too_long:
                return collected
            collected.look()  # it goes back now
        if self._hints:
            found = next(iter(self._hints))
            del self._hints[found]
            return found
        now = self._node.now()
        if now >= self._looks.due and not self._looking:
            await self._look()
        elif now < deadline:
            # The task that looks wakes the others.
            await self._sleep(deadline if self._looking else min(deadline, self._looks.due))
        return None

    async def _look(self) -> None:
        self._looking = True
        try:
            lasts = polled_for(self._node.timings.look_every)
            await self._node.run(self._node.transactions.poll(self.endpoint, lasts, first=not self._announced))
            self._announced = True
            found = await self._node.run(self._node.transactions.look(self.endpoint, MOST_IDS_PER_LOOK))
        finally:
            self._looking = False
            self._looks.looked(self._node.now())
            self.wake_all()
        (waiting,) = found.answers
        ids = {raw: names.id_from(raw) for raw in waiting}
        if not_ids := [raw for raw, call in ids.items() if call is None]:
            await self._node.run(self._node.transactions.drop(self.endpoint, not_ids))
        for call in filter(None, ids.values()):
            self._hint(call)
        if waiting:
            self.active()
        if len(waiting) == MOST_IDS_PER_LOOK:
            self._looks.at_once()

    def active(self) -> None:
        """Note that there is work here."""
        self._looks.active()

    def _hint(self, call: str) -> None:
        if len(self._hints) < MOST_HINTS:
            self._hints[call] = None
        else:
            self._looks.at_once()

    def wake_all(self) -> None:
        """Wake all that wait, even if there is nothing for them."""
        for _ in range(len(self._waiting)):
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            woken = self._waiting.popleft()
            if not woken.done():
                woken.set_result(None)
                return

    async def _sleep(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        self._waiting.append(woken)
        timer = loop.call_at(until, _resolve, woken)
        try:
            await woken
        except asyncio.CancelledError:
            # Pass its wake on to the next one that waits.
            if woken.done() and not woken.cancelled():
                self._wake()
            raise
        finally:
            timer.cancel()
            with suppress(ValueError):
                self._waiting.remove(woken)


def _resolve(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
