"""The activity events of one worker: what it reports, and when it reports that long work goes on.

Every request has a `request-received` and a `finished` event. As messages of their own, they cost the broker as much as
the request. So these events are gathered for a moment and leave as one message; all others leave at once, with those
that wait. Each carries the time at which it happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from osrdyne_amqp import Message
from osrdyne_amqp.event_line import EventLine
from osrdyne_protocol import events
from osrdyne_protocol.headers import X_HOPS, X_PUBLISH_TIME, integer
from osrdyne_worker.in_flight import InFlight

#: Longest name of a class of errors that an event has, in characters.
LONGEST_ERROR = 200
#: Events that may wait for others.
GATHERED = frozenset({events.REQUEST_RECEIVED, events.FINISHED})
#: Seconds for which they may wait. Measured at prefetch 1, by the broker's writes and processor time for a call: 20 ms
#: save two thirds of what 50 ms save, and 100 ms save no more than 50.
GATHER_TIME_SECONDS = 0.05
#: This many events leave without waiting longer: they are some 50 kB, and fit into one message.
MOST_WAITING = 300
#: Clocks that keep time by the network differ by less, in milliseconds.
CLOCKS_DIFFER_MS = 1_000


def queued_ms(message: Message, *, serves_for: float, now_ms: int) -> int | None:
    """Return how long a request waited in its queue for a worker that was there; None where that is not known.

    A long wait shows that there are too few workers. So what waited for the start of a worker does not count, neither
    with the daemon nor in the queue; nor does a request that was delivered before, or that has no caller who waits.
    `serves_for`: seconds since this worker began to consume. `now_ms`: milliseconds since the Unix epoch. Pure.
    """
    headers = message.properties.headers or {}
    published = integer(headers, X_PUBLISH_TIME)
    if published is None or message.redelivered or X_HOPS in headers or not message.properties.reply_to:
        return None
    waited = now_ms - published
    # Of another clock, only as much is believed as may be true.
    return max(0, waited) if -CLOCKS_DIFFER_MS <= waited <= 1000 * serves_for else None


class ActivityEvents:
    """Sends the events of one worker of one key, without raising. `alive_interval` in seconds."""

    def __init__(self, line: EventLine, key: str, worker_id: str, alive_interval: float) -> None:
        self._line = line
        self._key = key
        self._worker_id = worker_id
        self._interval = alive_interval
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[dict[str, str | int]] = []
        #: Runs while events are gathered.
        self._gathering: asyncio.TimerHandle | None = None

    def tell(
        self,
        event: str,
        *,
        request_id: str | None = None,
        outcome: str | None = None,
        duration_ms: int | None = None,
        queued_ms: int | None = None,
        error: str | None = None,
        user: str | None = None,
        at_once: bool = False,
    ) -> None:
        """Send one event; of two gathered events the later may wait for `GATHER_TIME_SECONDS`, unless `at_once`.

        Events leave in the order of the calls. One after a quiet time leaves at once, so that a rare request is
        seen when it comes.
        """
        headers = events.headers(
            event,
            now_ms=events.wall_ms(),
            worker_id=self._worker_id,
            request_id=request_id,
            outcome=outcome,
            duration_ms=duration_ms,
            queued_ms=queued_ms,
            error=error,
            user=user,
        )
        self._waiting.append(headers)
        if at_once or event not in GATHERED or len(self._waiting) >= MOST_WAITING:
            self.flush()
        elif self._gathering is None:
            self._flush_and_gather()

    def flush(self) -> None:
        """Send all waiting events in one message. Call it before the line is closed."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._line.send(self._key, waiting)

    def _flush_and_gather(self) -> None:
        quiet = not self._waiting
        self._gathering = None if quiet else self._loop.call_later(GATHER_TIME_SECONDS, self._flush_and_gather)
        self.flush()

    def finished(self, work: InFlight) -> None:
        """Report the outcome of a request, and how long its handler took."""
        assert work.outcome is not None
        self.tell(
            events.FINISHED,
            request_id=work.request.correlation_id,
            outcome=work.outcome.status,
            duration_ms=round((work.finished_at - work.started_at) * 1000),
            error=None if work.outcome.error is None else work.outcome.error.removeprefix("builtins.")[:LONGEST_ERROR],
        )

    def watch(self, in_hand: Iterable[InFlight]) -> None:
        """Report every interval that each request in hand is worked on; one timer serves them all.

        Call it when a request is begun. Short requests cost nothing: while the timer runs this returns at once.
        """
        if self._timer is None:
            self._timer = self._loop.call_later(self._interval, self._tell_alive, in_hand)

    def close(self) -> None:
        """Send what waits, and stop the timers."""
        self.flush()
        for timer in (self._timer, self._gathering):
            if timer is not None:
                timer.cancel()

    def _tell_alive(self, in_hand: Iterable[InFlight]) -> None:
        self._timer = None
        now = self._loop.time()
        running = [work for work in in_hand if work.outcome is None]
        for work in running:
            if now - work.last_reported_at >= self._interval:
                work.last_reported_at = now
                self.tell(events.ALIVE, request_id=work.request.correlation_id)
        if running:
            next_time = min(work.last_reported_at for work in running) + self._interval
            self._timer = self._loop.call_at(next_time, self._tell_alive, in_hand)
