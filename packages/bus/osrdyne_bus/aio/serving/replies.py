"""Replies of a server on their way: a caller that takes none does not delay others, and takes bounded memory."""

from __future__ import annotations

import asyncio
from collections import Counter

from osrdyne_bus.aio.bus import AsyncBus
from osrdyne_bus.counts import DROPPED
from osrdyne_bus.errors import MessageTooLarge
from osrdyne_bus.messages.wire import BusRequest, reply_envelope
from osrdyne_calls.handling import Outcome
from osrdyne_protocol import statuses
from osrdyne_runtime import log_lines

log = log_lines.logger(__name__)

#: Bytes of replies to one address that may wait. Where more do, the caller has gone.
MOST_WAITING_BYTES = 64 * 2**20
#: Bytes that a reply costs beside its body.
_OVERHEAD_BYTES = 2048


class Replies:
    """The replies of one server."""

    def __init__(self, bus: AsyncBus) -> None:
        self._bus = bus
        self._sending: set[asyncio.Task[None]] = set()
        #: Bytes that wait, by address.
        self._waiting: Counter[str] = Counter()
        #: Replies that could not be sent.
        self.lost = 0

    @property
    def under_way(self) -> int:
        """Replies that are not sent yet."""
        return len(self._sending)

    def send(self, to: str, request: BusRequest, answer: Outcome) -> None:
        """Send a reply when its caller takes it, for as long as the setting `reply_timeout`. What fails is logged."""
        # In a task of its own: a caller without credit must not hold up the others.
        size = len(answer.body) + _OVERHEAD_BYTES
        if self._waiting[to] and self._waiting[to] + size > MOST_WAITING_BYTES:
            self.lost += 1
            self._bus.counts.sent["reply", DROPPED] += 1
            waiting = {"address": to, "bytes": self._waiting[to]}
            log.error("a reply is dropped: too much waits for its caller", extra=waiting)
            return
        self._waiting[to] += size
        task = asyncio.create_task(self._send(to, request, answer, size))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def drained(self) -> None:
        """Return when all have been sent or are lost."""
        while self._sending:
            await asyncio.wait(set(self._sending))

    async def _send(self, to: str, request: BusRequest, answer: Outcome, size: int) -> None:
        timeout = self._bus.settings.reply_timeout
        try:
            try:
                await self._bus.reply(reply_envelope(request, answer), timeout)
            except MessageTooLarge as error:
                short = Outcome(statuses.ERROR, reason=f"the answer cannot be sent: {error}")
                await self._bus.reply(reply_envelope(request, short), timeout)
        except Exception as error:  # noqa: BLE001 - the caller has its time-out, and others must not suffer
            self.lost += 1
            log.error("the reply to a call is lost", extra={"method": request.method, "reason": str(error)})
        finally:
            self._waiting[to] -= size
            if not self._waiting[to]:
                del self._waiting[to]
