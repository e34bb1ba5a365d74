"""A stream: counts what comes, and has no consumers here."""

from __future__ import annotations

from simulation.model import history
from simulation.model.message import Message
from simulation.model.queue import Queue


class Stream(Queue):
    """Takes everything and delivers nothing: the daemon does not read it."""

    taken = 0

    def enqueue(self, message: Message) -> bool:
        self.taken += 1
        self._broker.record(history.ROUTED, place=self.name, message=message)
        return True
