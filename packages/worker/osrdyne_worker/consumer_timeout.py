"""What a worker does with a request that it holds for longer than the broker allows (the consumer timeout).

A worker that knows the timeout rejects such a request a little earlier, which counts as a failed delivery on every
version. Otherwise the broker takes it back: RabbitMQ 4.0 closes the channel, and all messages of the channel go back;
4.3 takes back the request alone and cancels the consumer
(docs/reference/rabbitmq-facts.md#a-consumer-that-holds-a-message-for-too-long). Neither version says which request it
was. So the worker assumes the oldest that still runs, and those about as old, and ends their handlers where that is
possible. Reads the work in hand; settles nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from osrdyne_amqp.errors import BrokerError, PreconditionFailed
from osrdyne_calls.runners import Runner
from osrdyne_protocol.headers import X_ACQUIRED_COUNT, X_DELIVERY_COUNT, integer
from osrdyne_worker.in_flight import InFlight
from osrdyne_worker.session import WorkerSession

#: A worker gives a request back at most this long before the timeout.
_LONGEST_LEAD_SECONDS = 5.0
#: Requests held for at least this share of the longest time also count as held too long.
_HELD_TOO_LONG_SHARE = 0.9


def is_timeout(error: BrokerError) -> bool:
    """Return whether a channel ended because a delivery was not acknowledged in time. No other 406 has this text."""
    return isinstance(error, PreconditionFailed) and "acknowledgement" in str(error) and "timed out" in str(error)


def held_too_long(in_hand: Iterable[InFlight], session: WorkerSession, now: float) -> list[InFlight]:
    """Return a session's work that the broker has taken back, oldest first; `now` on the loop's clock. Pure."""
    running = sorted(
        (work for work in in_hand if work.outcome is None and work.delivery.session is session),
        key=lambda work: work.delivered_at,
    )
    return [
        work for work in running if now - work.delivered_at >= _HELD_TOO_LONG_SHARE * (now - running[0].delivered_at)
    ]


def patience(consumer_timeout_ms: int | None) -> float | None:
    """Return the seconds after which a worker gives a request back by itself; None when it knows no timeout."""
    if consumer_timeout_ms is None:
        return None
    seconds = consumer_timeout_ms / 1000
    return seconds - min(_LONGEST_LEAD_SECONDS, seconds * (1 - _HELD_TOO_LONG_SHARE))


def hang_was_not_counted(message_headers: Mapping[str, Any]) -> bool:
    """Return whether a redelivered request must be rejected once more, so that the broker counts a failure.

    RabbitMQ 4.3 does not count it as a failed delivery when a worker holds a request until the consumer timeout
    (docs/reference/rabbitmq-facts.md#a-consumer-that-holds-a-message-for-too-long). A request that hangs workers which
    do not know that timeout would circle for ever. But 4.3 says how often a request was delivered, and how many of
    these deliveries it counted as failures. For each that it did not count, the next worker returns the request by a
    basic.reject, which counts on every version and is a delivery of its own: hence the factor two. One uncounted
    delivery is allowed, because a worker that stops gives back requests that it has not begun, which is not a failure.
    4.0 counts each return and has no count of deliveries.
    """
    handed_out, counted = integer(message_headers, X_ACQUIRED_COUNT), integer(message_headers, X_DELIVERY_COUNT) or 0
    return handed_out is not None and handed_out > 2 * counted + 1


async def end(works: Iterable[InFlight], runner: Runner) -> list[InFlight]:
    """End the handlers of begun work that is given up; return the work whose handlers cannot be ended."""
    given_up = list(works)
    for work in given_up:
        # Mark all before any wait: one that finished meanwhile would be answered, and then given back.
        work.given_up = True
    ended = await asyncio.gather(*(runner.end(work.request) for work in given_up))
    return [work for work, has_ended in zip(given_up, ended, strict=True) if not has_ended]


class HangAlarm:
    """Reports when the oldest work has run for as long as a worker allows; one timer serves all."""

    def __init__(self, consumer_timeout_ms: int | None) -> None:
        self._patience = patience(consumer_timeout_ms)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        #: Set when some work has run too long. The code that handles it clears it.
        self.ringing = asyncio.Event()

    def watch(self, in_hand: Collection[InFlight], *, again: bool = False) -> None:
        """Watch the work in hand. Call it when a request is begun; while the timer runs this returns at once.

        `again`: the request was delivered a while ago, perhaps before those that the timer knows.
        """
        if again:
            self.close()
        if (self._timer is None or again) and self._patience is not None:
            self._look(in_hand)

    def late(self, in_hand: Iterable[InFlight], session: WorkerSession) -> list[InFlight]:
        """Return the work of a session that has run too long, oldest first."""
        now = self._loop.time()
        works = held_too_long(in_hand, session, now)
        return [
            work for work in works if self._patience is not None and now - work.delivered_at >= self._patience - 0.001
        ]

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, in_hand: Collection[InFlight]) -> None:
        self._timer = None
        running = [work.delivered_at for work in in_hand if work.outcome is None]
        if not running or self._patience is None:
            return
        due = min(running) + self._patience
        if due - 0.001 <= self._loop.time():
            self.ringing.set()
            due = self._loop.time() + self._patience
        self._timer = self._loop.call_at(due, self._look, in_hand)
