"""A way from one side to the other: what is sent first arrives first, each after a time of its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from typing import Any

from simulation.model.timing import Timing

#: Seconds between two arrivals that would be at the same time: a heap of timers does not keep the order of equals.
_APART_SECONDS = 1e-7


class Lane:
    """One direction of one channel. `gate` is called with what arrives, and decides whether it still counts; what is
    called runs in `context`, that of the side it arrives at.
    """

    __slots__ = ("_context", "_gate", "_held", "_loop", "_random", "_timing", "last")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rng: random.Random,
        timing: Timing,
        gate: Callable[[Callable[..., None], tuple[Any, ...]], None],
        context: Context,
    ) -> None:
        self._loop = loop
        self._random = rng.random
        self._timing = timing
        self._gate = gate
        self._context = context
        #: when the last thing sent arrives
        self.last = 0.0
        #: what was to be sent since `hold`; None while all is sent at once
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None

    def hold(self) -> None:
        """Keep what is to be sent until `release`."""
        self._held = []

    def release(self, *, send: bool = True) -> None:
        """Send what was kept, in its order, or forget it."""
        held, self._held = self._held, None
        for arrived, arguments in held or ():
            if send:
                self.send(arrived, *arguments)

    def send(self, arrived: Callable[..., None], *arguments: Any, work: float = 0.0) -> None:
        """Call `arrived` on the other side, `work` seconds later than the way takes."""
        if self._held is not None:
            self._held.append((arrived, arguments))
            return
        least, most = self._timing.latency
        at = self._loop.time() + least + (most - least) * self._random() + work
        if at <= self.last:
            at = self.last + _APART_SECONDS
        self.last = at
        self._loop.call_at(at, self._gate, arrived, arguments, context=self._context)
