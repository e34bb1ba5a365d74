"""The activity events of one worker: what it tells, and when it tells that long work goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from osrdyne_client.work import Work
from osrdyne_client.worker_session import Session
from osrdyne_protocol import events


class Activity:
    """Sends events over whichever session an event belongs to; unconfirmed, and never a reason to fail."""

    def __init__(self, worker_id: str, alive_interval: float) -> None:
        self._worker_id = worker_id
        self._interval = alive_interval
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def tell(
        self,
        session: Session,
        event: str,
        *,
        request_id: str | None = None,
        outcome: str | None = None,
        duration_ms: int | None = None,
    ) -> None:
        """Send one event."""
        session.event(
            events.headers(
                event,
                now_ms=int(time.time() * 1000),
                worker_id=self._worker_id,
                request_id=request_id,
                outcome=outcome,
                duration_ms=duration_ms,
            )
        )

    def finished(self, work: Work) -> None:
        """Tell what became of a request, and how long its handler took."""
        assert work.outcome is not None
        self.tell(
            work.delivery.session,
            events.FINISHED,
            request_id=work.request.correlation_id,
            outcome=work.outcome.status,
            duration_ms=round((work.finished - work.started) * 1000),
        )

    def watch(self, in_hand: Iterable[Work]) -> None:
        """Tell of each request in hand that it is worked on, every interval; one timer serves them all.

        Call it when a request is begun. Short requests cost nothing: while the timer runs this returns at once.
        """
        if self._timer is None:
            self._timer = self._loop.call_later(self._interval, self._tell_alive, in_hand)

    def close(self) -> None:
        """Tell nothing more by itself."""
        if self._timer is not None:
            self._timer.cancel()

    def _tell_alive(self, in_hand: Iterable[Work]) -> None:
        self._timer = None
        now = self._loop.time()
        running = [work for work in in_hand if work.outcome is None]
        for work in running:
            if now - work.last_told >= self._interval:
                work.last_told = now
                self.tell(work.delivery.session, events.ALIVE, request_id=work.request.correlation_id)
        if running:
            next_time = min(work.last_told for work in running) + self._interval
            self._timer = self._loop.call_at(next_time, self._tell_alive, in_hand)
