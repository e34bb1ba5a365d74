"""Which channel a message is published on, so that a queue that does not answer delays no other.

A broker handles the publishes of a channel one after the other. The first publish of a channel to a quorum queue
waits until the queue has answered. When the queue is lost or has no leader, that takes a minute, and everything behind
it on that channel waits (docs/reference/rabbitmq-lost-queues.md#what-a-lost-queue-does-to-its-users). So each
destination is unproven on a new connection: until the first publish to it is confirmed, it has a channel of its own, a
lane. After that it shares one channel with all other proven destinations.

The number of lanes at work is bounded, and so is the number of lanes that wait for a late answer. Each holds few
messages, because a broker stops reading a connection when one channel is some hundred messages behind. Further
destinations wait for a lane. Messages of one destination leave in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from functools import partial
from typing import Any

from osrdyne_amqp import Channel, awake
from osrdyne_amqp.errors import BrokerError, BrokerTimeout, ChannelClosed, Nacked, Returned

#: Seconds after which an answer is late, and a lane no longer counts among those at work.
LATE_SECONDS = 1.0
#: Seconds after which the wait for an answer ends. The message's fate is then unknown; the broker still works on it for
#: up to 65 s, and its channel is unusable until then.
GIVE_UP_SECONDS = 10.0
#: Lanes at work at once, and lanes that may wait for a late answer beside them.
AT_WORK, MOST_LATE = 16, 64
#: Messages that a lane holds before the first of them is answered. RabbitMQ allows a channel to be 400 behind.
WINDOW = 32
#: Most destinations that are remembered because one of their messages closed a lane.
MOST_BREAKING = 256
#: Most proven destinations that are remembered, in two halves: a full younger half replaces the older one.
REMEMBERED = 16_384

#: Publishes on the channel and returns the confirm, or None when there is nothing to be published any more.
Send = Callable[[Channel], "asyncio.Future[Any] | None"]


class Lanes:
    """The channels of one connection for publishing. Use it only in the event loop that created it."""

    def __init__(
        self,
        main: Channel,
        open_lane: Callable[[], Awaitable[Channel]],
        *,
        blocked: Callable[[], bool],
        broken: Callable[[BrokerError], None] | None = None,
    ) -> None:
        """`open_lane` opens a channel with confirms, `blocked` says that the broker takes no publishes for now (an
        alarm), and `broken` is called when the broker has closed a lane.
        """
        #: The channel that proven destinations share.
        self.main = main
        self._open_lane = open_lane
        self._blocked = blocked
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._proven: dict[Hashable, None] = {}
        self._proven_before: dict[Hashable, None] = {}
        self._proving: dict[Hashable, _UnprovenDestination] = {}
        #: Destinations that wait for a lane.
        self._waiting: deque[_UnprovenDestination] = deque()
        self._free: list[Channel] = []
        #: Destinations with a message that closed a lane: their messages leave one by one, to protect the others.
        self._breaking: dict[Hashable, None] = {}
        #: Lanes whose answer is not late, and those whose answer is.
        self._at_work = self._late = 0
        #: Channels that are being opened.
        self._opening = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._reopening = asyncio.Lock()

    async def reopen(self) -> None:
        """Open the shared channel again where the broker has closed it. Raises BrokerError."""
        async with self._reopening:
            if not self.main.is_open:
                self.main = await self._open_lane()

    def shared(self, destination: Hashable) -> Channel | None:
        """Return the shared channel for a proven destination, None for any other: use `prove` for that one."""
        if destination in self._proven:
            return self.main
        if destination in self._proven_before:
            self._remember(destination)
            return self.main
        return None

    def prove(self, destination: Hashable, send: Send) -> asyncio.Future[Any]:
        """Publish to an unproven destination when its turn comes; the future gets the result.

        Raises what `send` raises when its turn is now; later errors go to the future. A message whose future is
        cancelled before its turn is not sent. Without an answer for `GIVE_UP_SECONDS` it fails with `BrokerTimeout`.
        """
        proving = self._proving.get(destination)
        if proving is None:
            proving = self._proving[destination] = _UnprovenDestination(destination)
            if destination in self._breaking:
                proving.window = 1
            self._waiting.append(proving)
            self._give_lanes()
        outcome: asyncio.Future[Any] = self._loop.create_future()
        if proving.lane is None or proving.backlog or not proving.has_room:
            proving.put(send, outcome)
            return outcome
        try:
            self._publish(proving, proving.lane, send, outcome)
        except BaseException:
            self._go_on(proving)
            raise
        return outcome

    def publish(self, destination: Hashable, send: Send) -> asyncio.Future[Any]:
        """Publish on the shared channel or in the destination's lane. Raises as `prove`."""
        channel = self.shared(destination)
        confirm = self.prove(destination, send) if channel is None else send(channel)
        if confirm is None:
            confirm = self._loop.create_future()
            confirm.set_result(None)
        return confirm

    # --- lanes ---

    def _give_lanes(self) -> None:
        """Give lanes to waiting destinations, up to the limit of lanes at work."""
        if self._late >= MOST_LATE:
            return
        while self._waiting and self._at_work < AT_WORK and (lane := self._take_free()) is not None:
            self._begin(self._waiting.popleft(), lane)
        while self._opening < min(len(self._waiting), AT_WORK - self._at_work):
            self._opening += 1
            self._run(self._open())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="osrdyne: channels to publish on")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take_free(self) -> Channel | None:
        while self._free:
            lane = self._free.pop()
            if lane.is_open:
                return lane
        return None

    async def _open(self) -> None:
        try:
            self._free.append(await self._open_lane())
        except BrokerTimeout:
            pass  # for example in an alarm: the waiting publishes have time limits of their own
        except BrokerError as error:
            self._fail_waiting(error)
        finally:
            self._opening -= 1
        self._give_lanes()

    def _fail_waiting(self, reason: BrokerError) -> None:
        while self._waiting:
            proving = self._waiting.popleft()
            del self._proving[proving.destination]
            for _, outcome in proving.backlog:
                if not outcome.done():
                    outcome.set_exception(reason.again())

    # --- one destination in its lane ---

    def _begin(self, proving: _UnprovenDestination, lane: Channel) -> None:
        self._at_work += 1
        proving.lane = lane
        proving.timer = self._loop.call_later(LATE_SECONDS, self._note_late, proving)
        # When `prove` calls this, the first message is added right after it.
        self._loop.call_soon(self._go_on, proving)

    def _note_late(self, proving: _UnprovenDestination) -> None:
        if proving.is_late or not proving.in_flight:
            return
        proving.is_late = True
        self._at_work -= 1
        self._late += 1
        proving.timer = awake.Timer(GIVE_UP_SECONDS - LATE_SECONDS, partial(self._give_up, proving, proving.in_flight))
        self._give_lanes()

    def _give_up(self, proving: _UnprovenDestination, in_flight: int) -> None:
        """Wait no longer for an answer, so that the messages behind it can go on in another lane."""
        if proving.lane is None or not proving.in_flight:
            return
        if self._blocked() or proving.in_flight < in_flight:  # it is slow, but it answers
            proving.timer = awake.Timer(GIVE_UP_SECONDS, partial(self._give_up, proving, proving.in_flight))
            return
        proving.given_up = True
        self._run(proving.lane.close())

    def _go_on(self, proving: _UnprovenDestination) -> None:
        """Send waiting messages while there is room; leave the lane when none is left."""
        lane = proving.lane
        if lane is None:
            return
        while proving.backlog and proving.has_room and lane.is_open:
            send, outcome = proving.backlog.popleft()
            if outcome.done():
                continue
            try:
                self._publish(proving, lane, send, outcome)
            except Exception as error:  # noqa: BLE001 - its caller gets the error
                outcome.set_exception(error)
        if proving.in_flight == 0:
            self._leave(proving, lane)

    def _publish(self, proving: _UnprovenDestination, lane: Channel, send: Send, outcome: asyncio.Future[Any]) -> None:
        confirm = send(lane)
        if confirm is None:
            outcome.set_result(None)
            return
        proving.in_flight += 1
        confirm.add_done_callback(partial(self._on_confirm, proving, outcome, self._loop.time()))

    def _on_confirm(
        self, proving: _UnprovenDestination, outcome: asyncio.Future[Any], sent: float, confirm: asyncio.Future[Any]
    ) -> None:
        proving.in_flight -= 1
        error = confirm.exception()
        if proving.given_up and isinstance(error, ChannelClosed):
            if not outcome.done():
                outcome.set_exception(
                    BrokerTimeout(f"no answer from the broker for this message within {GIVE_UP_SECONDS:g} s")
                )
        else:
            _copy(outcome, confirm)
        in_time = self._loop.time() - sent < LATE_SECONDS
        if error is None or isinstance(error, Returned) or (isinstance(error, Nacked) and in_time):
            proving.answered = True
        elif proving.lane is not None and not proving.lane.is_open and not proving.given_up:
            assert isinstance(error, BrokerError)
            self._note_broken(proving, error)
        if proving.in_flight == 0:
            self._go_on(proving)

    def _note_broken(self, proving: _UnprovenDestination, reason: BrokerError) -> None:
        proving.window = 1
        if len(self._breaking) >= MOST_BREAKING:
            self._breaking.clear()
        self._breaking[proving.destination] = None
        if self._broken is not None:
            self._broken(reason)

    def _leave(self, proving: _UnprovenDestination, lane: Channel) -> None:
        """Free the lane of a destination with nothing in flight; a proven one then uses the shared channel."""
        if proving.timer is not None:
            proving.timer.cancel()
        if proving.is_late:
            self._late -= 1
        else:
            self._at_work -= 1
        proving.lane, proving.timer, proving.is_late, proving.given_up = None, None, False, False
        if lane.is_open:
            self._free.append(lane)
        if proving.answered:
            del self._proving[proving.destination]
            self._breaking.pop(proving.destination, None)
            self._remember(proving.destination)
            self._flush(proving)
        elif proving.backlog:
            self._waiting.append(proving)
        else:
            del self._proving[proving.destination]
        self._give_lanes()

    def _flush(self, proving: _UnprovenDestination) -> None:
        for send, outcome in proving.backlog:
            if outcome.done():
                continue
            try:
                confirm = send(self.main)
            except Exception as error:  # noqa: BLE001 - its caller gets the error
                outcome.set_exception(error)
                continue
            if confirm is None:
                outcome.set_result(None)
            else:
                confirm.add_done_callback(partial(_copy, outcome))

    def _remember(self, destination: Hashable) -> None:
        if len(self._proven) >= REMEMBERED // 2:
            self._proven_before, self._proven = self._proven, {}
        self._proven[destination] = None


class _UnprovenDestination:
    """An unproven destination, and the messages that are published to it."""

    __slots__ = ("answered", "backlog", "destination", "given_up", "in_flight", "is_late", "lane", "timer", "window")

    def __init__(self, destination: Hashable) -> None:
        self.destination = destination
        self.lane: Channel | None = None
        self.timer: asyncio.TimerHandle | awake.Timer | None = None
        self.in_flight = 0
        #: How many may be in flight in its lane.
        self.window = WINDOW
        self.is_late = False
        #: Its lane was closed by this program, and not because of a message.
        self.given_up = False
        #: It is proven, and leaves its lane when nothing is in flight there, so that no message overtakes another.
        self.answered = False
        #: Messages that wait for their turn, in order.
        self.backlog: deque[tuple[Send, asyncio.Future[Any]]] = deque()

    @property
    def has_room(self) -> bool:
        return self.in_flight < self.window and not self.is_late and not self.answered

    def put(self, send: Send, outcome: asyncio.Future[Any]) -> None:
        # Drop entries at the head whose callers gave up.
        while self.backlog and self.backlog[0][1].done():
            self.backlog.popleft()
        self.backlog.append((send, outcome))


def _copy(outcome: asyncio.Future[Any], confirm: asyncio.Future[Any]) -> None:
    """Copy the result of a publish to its future, if a caller still waits for it."""
    error = confirm.exception()
    if outcome.done():
        return
    if error is None:
        outcome.set_result(confirm.result())
    else:
        outcome.set_exception(error)
