"""What a worker does about a request that it holds for longer than the broker lets it (the consumer timeout).

A worker that was told the timeout gives such a request back a little before, by a reject, which counts as a failed
delivery on every version. Else the broker takes it back: RabbitMQ 4.0 closes the channel then, and all that it holds
goes back; 4.3 takes back the request alone and cancels the consumer
(docs/rabbitmq-facts.md#a-consumer-that-holds-a-message-for-too-long). Neither says which request it was, so it is the
oldest that still runs, and what is about as old. Its handler is ended where that can be done. Reads the work in hand;
settles nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from osrdyne_amqp.errors import BrokerError, PreconditionFailed
from osrdyne_worker.in_flight import InFlight
from osrdyne_worker.runners import Runner
from osrdyne_worker.session import WorkerSession

#: Longest time before the timeout at which a worker gives a request back, in seconds.
_LONGEST_LEAD = 5.0
#: Requests that were held for this share of the longest time count as held too long themselves.
_SHARE = 0.9


def is_timeout(error: BrokerError) -> bool:
    """Say whether a channel ended because a delivery was not acknowledged in time. No other 406 says so."""
    return isinstance(error, PreconditionFailed) and "acknowledgement" in str(error) and "timed out" in str(error)


def held_too_long(in_hand: Iterable[InFlight], session: WorkerSession, now: float) -> list[InFlight]:
    """Return the work of a session that its broker has taken back, oldest first; `now` on the loop's clock. Pure."""
    running = sorted(
        (work for work in in_hand if work.outcome is None and work.delivery.session is session),
        key=lambda work: work.started,
    )
    return [work for work in running if now - work.started >= _SHARE * (now - running[0].started)]


def patience(consumer_timeout_ms: int | None) -> float | None:
    """Return the seconds after which a worker gives a request back by itself; None when it was told no timeout."""
    if consumer_timeout_ms is None:
        return None
    seconds = consumer_timeout_ms / 1000
    return seconds - min(_LONGEST_LEAD, seconds * (1 - _SHARE))


async def end(works: Iterable[InFlight], runner: Runner) -> list[InFlight]:
    """End the handlers of begun work that is given up; returns the work whose handlers cannot be ended."""
    given_up = list(works)
    for work in given_up:
        # All before any wait: one that finished meanwhile would be answered, and then given back.
        work.given_up = True
    ended = await asyncio.gather(*(runner.end(work.request) for work in given_up))
    return [work for work, has_ended in zip(given_up, ended, strict=True) if not has_ended]


class HangAlarm:
    """Tells when the oldest work has run for as long as a worker lets it; one timer serves all."""

    def __init__(self, consumer_timeout_ms: int | None) -> None:
        self._patience = patience(consumer_timeout_ms)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        #: Something has run too long. Cleared by who deals with it.
        self.ringing = asyncio.Event()

    def watch(self, in_hand: Collection[InFlight]) -> None:
        """Watch the work in hand. Call it when a request is begun; while the timer runs this returns at once."""
        if self._timer is None and self._patience is not None:
            self._timer = self._loop.call_later(self._patience, self._look, in_hand)

    def late(self, in_hand: Iterable[InFlight], session: WorkerSession) -> list[InFlight]:
        """Return the work of a session that has run too long, oldest first."""
        now = self._loop.time()
        works = held_too_long(in_hand, session, now)
        return [work for work in works if self._patience is not None and now - work.started >= self._patience - 0.001]

    def close(self) -> None:
        """Tell nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, in_hand: Collection[InFlight]) -> None:
        self._timer = None
        running = [work.started for work in in_hand if work.outcome is None]
        if not running or self._patience is None:
            return
        due = min(running) + self._patience
        if due - 0.001 <= self._loop.time():
            self.ringing.set()
            due = self._loop.time() + self._patience
        self._timer = self._loop.call_at(due, self._look, in_hand)
