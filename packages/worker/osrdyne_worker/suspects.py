"""Suspects: redelivered requests with which a worker has ended before. One of them may be what ends workers.

A worker runs a suspect behind the other requests, and with no other request in hand. So a request that ends each worker
ends it alone, and it alone comes closer to the delivery limit. docs/decisions/0076-a-suspect-runs-alone.md has the rule
and its reasons.

`failures`, `latest`, `order` and `plan` are pure. `Suspects` holds those of one worker. Times are seconds on one clock.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from osrdyne_amqp import Message
from osrdyne_protocol.headers import X_DELIVERY_COUNT, integer
from osrdyne_worker.session import Delivery, WorkerSession

#: No other request waits when none was in hand for this many seconds: the broker delivers the next one within less.
#: Under load it may take longer. Then others wait behind suspects, which costs them a start more and no failure.
QUIET_SECONDS = 0.1
#: Longest time for which others go before a suspect, in seconds.
LONGEST_WAIT_SECONDS = 10.0
#: Share of the time to its deadline for which others go before a suspect at most.
WAIT_SHARE = 0.5
#: A suspect that was held for this share of the consumer timeout goes back: the rest is for the worker that runs it.
HELD_SHARE = 0.5


class Step(Enum):
    """What a worker does next about its suspects."""

    NOTHING = "nothing"
    #: Consume again: suspects have taken all places for requests.
    RENEW = "renew"
    #: Take no more requests.
    STOP = "stop"
    #: Run the next suspect.
    RUN = "run"
    #: Take requests again: the last suspect is done.
    RESUME = "resume"
    #: Take several requests at a time again: no suspect is left in the queue.
    WIDEN = "widen"
    #: Return the suspects to the broker, which would take them back soon.
    GIVE_BACK = "give back"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkInHand:
    """What a worker has in hand, and how it came to that."""

    #: It takes requests; False while its suspects are run.
    takes: bool
    #: It takes one request at a time, and whether one came that is not a suspect.
    one_by_one: bool
    passed: bool
    #: Requests that were begun.
    running: int
    #: Suspects that were not begun, and whether they fill the places that the broker gave to this worker.
    suspects: int
    full: bool
    #: When a request last came or was done.
    moved_at: float
    #: When the suspects are run at the latest, and when they go back at the latest.
    due: float
    back_at: float


def failures(message: Message) -> int:
    """Return how often a request has failed, as the broker counted; one that has failed is a suspect."""
    return (integer(message.properties.headers or {}, X_DELIVERY_COUNT) or 0) if message.redelivered else 0


def latest(now: float, seconds_left: float | None) -> float:
    """Return when a suspect that came `now` is run at the latest; `seconds_left` until its deadline, if it has one."""
    return now + min(LONGEST_WAIT_SECONDS, math.inf if seconds_left is None else WAIT_SHARE * max(0.0, seconds_left))


def plan(hand: WorkInHand, now: float) -> Step:
    """Return what to do next."""
    if hand.suspects and now >= hand.back_at:
        return Step.GIVE_BACK
    if not hand.takes:
        if hand.running:
            return Step.NOTHING
        return Step.RUN if hand.suspects else Step.RESUME
    if hand.one_by_one:
        if hand.suspects:
            return Step.NOTHING if hand.running else Step.RUN
        return Step.WIDEN if hand.passed else Step.NOTHING
    if not hand.suspects:
        return Step.NOTHING
    if now >= hand.due or (not hand.running and now >= hand.moved_at + QUIET_SECONDS and not hand.full):
        return Step.STOP
    return Step.RENEW if hand.full else Step.NOTHING


def order(counts: Sequence[int]) -> list[int]:
    """Return in which order suspects are run, by their counts of failures: the places in `counts`.

    The broker redelivers requests in the order in which they came back. What ended a worker alone came back last, after
    what that worker had returned, so the first one comes first. Where all failed once, the last one comes first: a
    worker with one thread had begun the first one. Which of them failed more says nothing: RabbitMQ 4.0 counts what a
    worker returns.
    """
    places = list(range(len(counts)))
    return places if any(count > 1 for count in counts) else places[::-1]


class Suspects:
    """The suspects of one worker that were not begun. `at_once`: how many requests the broker hands over."""

    def __init__(self, at_once: int, consumer_timeout_ms: int | None) -> None:
        self._at_once = at_once
        self._patience = None if consumer_timeout_ms is None else HELD_SHARE * consumer_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        #: Each with the time at which it was delivered.
        self._held: list[tuple[Delivery, float]] = []
        #: Those that the present consumer was given.
        self._of_consumer = 0
        self._takes, self._passed = True, False
        #: It takes one request at a time: what it returned comes back, and was not held too long.
        self.one_by_one = False
        self._moved_at = self._due = self._back_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        #: Set when there may be something to do: then `act` is due.
        self.news = asyncio.Event()

    def hold(self, delivery: Delivery, seconds_left: float | None) -> None:
        """Keep a suspect for later; `seconds_left` until its deadline, if it has one."""
        now = self._loop.time()
        back_at = math.inf if self._patience is None else now + self._patience
        if not self._held:
            self._due = self._back_at = math.inf
        self._due, self._back_at = min(self._due, latest(now, seconds_left)), min(self._back_at, back_at)
        self._held.append((delivery, now))
        self._of_consumer += 1
        self.moved()

    def moved(self) -> None:
        """Note that a request came or is done. Without suspects this costs nothing."""
        if self._held or self.one_by_one or not self._takes:
            self._moved_at = self._loop.time()
            self.news.set()

    def passed(self) -> None:
        """Note that a request came that is not a suspect."""
        self._passed = True
        self.moved()

    def consumes(self, *, one_by_one: bool = False) -> None:
        """Note that this worker begins to consume."""
        self._takes, self.one_by_one, self._passed, self._of_consumer = True, one_by_one, False, 0

    def forget(self) -> None:
        """Forget the suspects of a session that is lost: the broker has them."""
        self._held.clear()

    def give_back(self, session: WorkerSession) -> None:
        """Return all to the broker."""
        for delivery, _ in self._held:
            session.give_back(delivery.message.delivery_tag)
        self._held.clear()

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    async def act(
        self,
        session: WorkerSession,
        running: Callable[[], int],
        begin: Callable[[Delivery, float], None],
        on_delivery: Callable[[Delivery], None],
    ) -> None:
        """Do what is due. `running` counts the requests that were begun. Raises what `WorkerSession.consume` raises."""
        # The broker has the suspects of a session that is lost: to run one here would run it twice.
        while session.is_open and (step := plan(self._hand(running()), self._loop.time())) is not Step.NOTHING:
            if step is Step.RUN:
                begin(*self._held.pop(0))
            elif step is Step.GIVE_BACK:
                self.give_back(session)
            else:
                await session.stop_consuming()
                if step is Step.STOP:
                    self._part(session)
                    continue
                self.consumes(one_by_one=step is Step.RESUME and self.one_by_one)
                await session.consume(on_delivery, one_by_one=self.one_by_one)
                # What waits comes from now on.
                self._moved_at = self._loop.time()
        self._wake()

    def _part(self, session: WorkerSession) -> None:
        """Keep the suspect that is run first, and return the others, which come back one by one."""
        counts = [failures(delivery.message) for delivery, _ in self._held]
        first, *others = [self._held[place] for place in order(counts)]
        self._takes, self.one_by_one = False, bool(others)
        self._held = others
        self.give_back(session)
        self._held = [first]

    def _hand(self, running: int) -> WorkInHand:
        return WorkInHand(
            takes=self._takes,
            one_by_one=self.one_by_one,
            passed=self._passed,
            running=running,
            suspects=len(self._held),
            full=self._of_consumer >= self._at_once,
            moved_at=self._moved_at,
            due=self._due,
            back_at=self._back_at,
        )

    def _wake(self) -> None:
        """Look again when time alone makes something due."""
        self.close()
        if not self._held:
            return
        at, quiet_at = self._back_at, self._moved_at + QUIET_SECONDS
        if self._takes and not self.one_by_one:
            at = min(at, self._due)
            if quiet_at > self._loop.time():
                at = min(at, quiet_at)
        if at < math.inf:
            self._timer = self._loop.call_at(at, self.news.set)
