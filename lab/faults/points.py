"""Named points of a conversation: after A comes B on the same channel, and something is done before B is passed on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from faults.frames import CONFIRMED, CONSUME, PUBLISH, Method
from faults.proxy import Direction


@dataclass(frozen=True, slots=True)
class Step:
    """A method that goes by: its direction and number, and how its exchange or queue begins where that matters."""

    direction: Direction
    number: tuple[int, int]
    name: str | None = None
    exact: bool = True

    def is_seen_in(self, direction: Direction, method: Method) -> bool:
        if (direction, method.number) != (self.direction, self.number):
            return False
        return self.name is None or (method.name == self.name if self.exact else method.name.startswith(self.name))


class Point:
    """A watch of the proxy that acts once. `act` gets the port of the connection, and says whether it did anything."""

    def __init__(self, steps: list[Step], act: Callable[[int], bool]) -> None:
        self._steps = steps
        self._act = act
        self._reached: dict[tuple[int, int], int] = {}
        #: Set once it has acted.
        self.done = threading.Event()

    def __call__(self, port: int, direction: Direction, method: Method) -> None:
        if self.done.is_set():
            return
        place = (port, method.channel)
        step = self._reached.get(place, 0)
        if not self._steps[step].is_seen_in(direction, method):
            return
        if step + 1 < len(self._steps):
            self._reached[place] = step + 1
        elif self._act(port):
            self.done.set()


def confirmed_publish(exchange: str) -> list[Step]:
    """Just before a publisher learns that the broker has what it published to this exchange."""
    return [Step("up", PUBLISH, exchange), Step("down", CONFIRMED)]


def begun_to_consume(queue_prefix: str) -> list[Step]:
    """Just before the broker learns that a client wants to consume such a queue."""
    return [Step("up", CONSUME, queue_prefix, exact=False)]
