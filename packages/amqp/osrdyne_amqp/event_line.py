"""A connection that carries only activity events, so that an event that the broker refuses disturbs no request.

A broker closes the whole connection of an event's publisher (506) while the pool's stream is unreachable, for example
for seconds after a kill (docs/reference/rabbitmq-facts.md#messages-that-vanish). If deliveries used the same
connection, each of them would be redelivered, and counted as failed.

Connects when there is something to send, and again, with back-off, when the connection or its channel has ended. The
first event of a new connection is then `interrupted`; the others follow once the broker has confirmed that one. Events
leave in order. What the broker had not confirmed is sent again, so a reader may see an event twice, with the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from osrdyne_amqp import Channel, Connection, Properties
from osrdyne_amqp.errors import BrokerError, Nacked, Unencodable
from osrdyne_calls.closing import CLOSE_SECONDS, in_time
from osrdyne_protocol import event_batches, events
from osrdyne_protocol.errors import OtherProcess
from osrdyne_protocol.event_batches import Event, EventMessage
from osrdyne_runtime import log_lines
from osrdyne_runtime.outages import OutageLog
from osrdyne_runtime.retry import Retry

log = log_lines.logger(__name__)

#: First and longest pause before connecting again, in seconds; each is cut by up to half at random. An unreachable
#: stream is back within seconds, and a daemon can wait minutes for an event.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 5.0
#: A connection that lasted this many seconds resets the count of failures.
STABLE_SECONDS = 15.0
#: Most events that wait for a connection, two megabytes in batches. Beyond this the oldest are dropped.
MOST_WAITING = 10_000
#: Most events that are kept until the broker confirms them, so that they can be sent again. More than these are sent
#: all the same: where a lost queue never confirms, the others still get their events.
MOST_UNCONFIRMED = 10_000
#: A message that was the oldest without a confirm when so many connections ended is dropped: perhaps it ends them.
MOST_ATTEMPTS = 5
#: Longest time in seconds for which `settled` waits for an attempt to connect, and a new connection for the confirm of
#: its first event.
PATIENCE_SECONDS = 2.0
#: Seconds between two checks of a connection that the broker has blocked (memory or disk alarm).
BLOCKED_PAUSE_SECONDS = 1.0


class _OutgoingMessage(NamedTuple):
    """A message with events of one key, that waits to be sent or to be confirmed."""

    key: str | bytes
    message: EventMessage
    #: Connections that ended while it was the oldest without a confirm.
    attempts: int = 0


class EventLine:
    """Sends events of one worker or daemon to one exchange. Use it from one event loop; `close` ends it."""

    def __init__(
        self, exchange: str, connect: Callable[[], Awaitable[Connection]], *, sender: str, key: str = ""
    ) -> None:
        """`connect` opens a connection for the events alone, and raises `BrokerError`.

        `sender` and `key` are those of the line's own event `interrupted`. A daemon has no key.
        """
        self._exchange = exchange
        self._connect = connect
        self._sender = sender
        self._key = key
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._waiting: deque[_OutgoingMessage] = deque()
        #: Sent and not confirmed, oldest first; by confirm.
        self._unconfirmed: dict[asyncio.Future[None], _OutgoingMessage] = {}
        #: Events in `_waiting`, and in `_unconfirmed`.
        self._waiting_events = self._unconfirmed_events = 0
        self._task: asyncio.Task[None] | None = None
        #: When the present connection began to carry events, on the loop's clock.
        self._open_since = math.inf
        #: Events wait to be sent, or `open` was called.
        self._wanted = asyncio.Event()
        #: `open` was called: connect without a pause.
        self._hurry = asyncio.Event()
        #: No attempt to connect is under way.
        self._settled = asyncio.Event()
        #: Runs while events wait for a broker that has blocked the connection.
        self._blocked: asyncio.TimerHandle | None = None
        self._closed = False
        #: The previous connection or its channel has ended, perhaps because of an event.
        self._interrupted = False
        # The first failure may be the loss of the broker, which the code with another connection logs.
        self._outage = OutageLog(log, "the exchange of activity events", tolerated=1)
        #: Events that are known to be lost.
        self.lost = 0
        self._reported_lost = 0

    def send(self, key: str | bytes, new: Sequence[Event]) -> None:
        """Send events of one key, at least one, now or when there is a connection. Never raises."""
        if self._closed:
            self.lost += len(new)
            return
        for message in event_batches.pack(new):
            self._waiting.append(_OutgoingMessage(key, message))
            self._waiting_events += message.events
        self._drop_oldest()
        self._flush()
        if self._waiting:
            self._want()

    def open(self) -> None:
        """Connect at once if there is no connection: the caller knows that the broker may be there again."""
        if not self._closed and not self._is_open:
            self._settled.clear()
            self._hurry.set()
            self._want()

    async def settled(self, within: float = PATIENCE_SECONDS) -> None:
        """Wait until no attempt to connect is under way, for so many seconds at most."""
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._settled.wait()

    async def close(self) -> None:
        """Send waiting events if possible, and disconnect. Takes `CLOSE_SECONDS` at most, and never raises."""
        if not self._closed:
            await in_time(self._close(), CLOSE_SECONDS)

    async def _close(self) -> None:
        self._flush()
        if self._waiting:
            self.open()
            await self.settled(CLOSE_SECONDS / 2)
        self._closed = True
        if self._blocked is not None:
            self._blocked.cancel()
        self.lost += self._waiting_events
        self._waiting.clear()
        self._log_lost(self.lost)  # now: the rest of the end may be cut short
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def _is_open(self) -> bool:
        return self._channel is not None and self._channel.is_open

    def _want(self) -> None:
        if self._is_open:  # but blocked
            if self._blocked is None:
                self._blocked = asyncio.get_running_loop().call_later(BLOCKED_PAUSE_SECONDS, self._look_again)
            return
        self._wanted.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="osrdyne: activity events")

    def _look_again(self) -> None:
        self._blocked = None
        self._flush()
        if self._waiting:
            self._want()

    def _drop_oldest(self) -> None:
        while self._waiting_events > MOST_WAITING:
            dropped = self._waiting.popleft().message.events
            self._waiting_events -= dropped
            self.lost += dropped

    def _flush(self) -> None:
        while self._waiting and self._channel is not None and self._channel.is_open:
            if self._connection is not None and self._connection.blocked:
                return
            if self.lost > self._reported_lost:
                self._send(self._channel, self._interruption(self.lost))
                self._log_lost(self.lost)
            sent = self._waiting.popleft()
            self._waiting_events -= sent.message.events
            if not self._send(self._channel, sent, keep=self._unconfirmed_events < MOST_UNCONFIRMED):
                self.lost += sent.message.events

    def _send(self, channel: Channel, sent: _OutgoingMessage, *, keep: bool = False) -> bool:
        """Send a message; return False where that is impossible. `keep` it until the broker has confirmed it."""
        key, (headers, body, count) = sent.key, sent.message
        properties = Properties(headers=dict(headers), content_type="application/json" if body else None)
        try:
            if keep:
                confirmed = channel.publish(self._exchange, key, body, properties)
                self._unconfirmed[confirmed] = sent
                self._unconfirmed_events += count
                confirmed.add_done_callback(self._confirmed)
            else:
                channel.send(self._exchange, key, body, properties)
        except (BrokerError, Unencodable, OtherProcess):  # a foreign message's key or id, perhaps
            return False
        return True

    def _interruption(self, lost: int) -> _OutgoingMessage:
        """Return the event `interrupted`, which no reader counts as activity."""
        fields = events.headers(
            events.INTERRUPTED,
            now_ms=events.wall_ms(),
            worker_id=self._sender,
            lost_events=lost - self._reported_lost,
        )
        return _OutgoingMessage(self._key, EventMessage(fields, b"", 1))

    def _confirmed(self, confirmed: asyncio.Future[None]) -> None:
        """Forget a message that the broker settled. What the end of the channel settled is sent again."""
        error = None if confirmed.cancelled() else confirmed.exception()
        if error is not None and not isinstance(error, Nacked):
            return
        sent = self._unconfirmed.pop(confirmed, None)
        if sent is not None:
            self._unconfirmed_events -= sent.message.events
            if error is None:
                self._outage.over(asyncio.get_running_loop().time())
            else:
                self.lost += sent.message.events

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        retry = Retry(first=FIRST_PAUSE_SECONDS, limit=LONGEST_PAUSE_SECONDS, stable_after=STABLE_SECONDS)
        while True:
            await self._wanted.wait()
            self._settled.clear()
            self._open_since = math.inf
            try:
                reason: Exception = await self._carry()
            except Exception as error:  # noqa: BLE001 - a failing event must not end the program
                reason = error
            self._settled.set()
            if self._waiting:  # the connection ended before the broker confirmed all of them
                self._wanted.set()
            self._outage.failed(str(reason), loop.time())
            pause = retry.failed(loop.time() - self._open_since)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._hurry.wait()

    async def _carry(self) -> BrokerError:
        """Connect, send waiting and new events, and return why that ended."""
        self._hurry.clear()
        self._connection = await self._connect()
        try:
            channel = await self._connection.channel(confirm=True)
            if self._interrupted:
                await self._report_interruption(channel)
            self._channel, self._open_since = channel, asyncio.get_running_loop().time()
            self._wanted.clear()
            self._flush()
            self._settled.set()
            if self._waiting:  # the broker has blocked the connection already
                self._want()
            return await channel.wait_closed()
        finally:
            self._interrupted = True
            connection, self._connection, self._channel = self._connection, None, None
            await connection.close()
            self._take_back()

    async def _report_interruption(self, channel: Channel) -> None:
        """Send the event `interrupted` and wait for its confirm. Raises why the channel ended, if it did.

        A broker that refuses events ends the channel because of this one, and gets no others in vain.
        """
        lost = self.lost
        key, (headers, body, _) = self._interruption(lost)[:2]
        with contextlib.suppress(TimeoutError, Nacked, Unencodable):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await channel.publish(self._exchange, key, body, Properties(headers=dict(headers)))
        self._log_lost(lost)

    def _take_back(self) -> None:
        """Let what the broker has not confirmed wait again, before newer events."""
        unconfirmed = list(self._unconfirmed.values())
        self._unconfirmed.clear()
        self._unconfirmed_events = 0
        if self._closed:
            return
        if unconfirmed:
            oldest = unconfirmed[0]._replace(attempts=unconfirmed[0].attempts + 1)
            if oldest.attempts < MOST_ATTEMPTS:
                unconfirmed[0] = oldest
            else:
                self.lost += unconfirmed.pop(0).message.events
        self._waiting.extendleft(reversed(unconfirmed))
        self._waiting_events += sum(publish.message.events for publish in unconfirmed)
        self._drop_oldest()

    def _log_lost(self, lost: int) -> None:
        """Note that so many events in all are reported as lost, and log those that were not before."""
        if lost > self._reported_lost:
            log.warning("activity events were lost", extra={"events": lost - self._reported_lost})
            self._reported_lost = lost
