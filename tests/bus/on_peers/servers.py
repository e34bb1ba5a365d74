"""The servers of these tests: server `n` of the topic `maps`, with an endpoint that has the method `echo`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from osrdyne_bus import Target
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.messages.wire import BusRequest

MAPS = Target("maps")
N = Target("maps", server="n")


def endpoint(**handlers: Callable[[BusRequest], Any]) -> list[Endpoint]:
    made = Endpoint()
    made.add("echo", lambda request: request.body)
    for name, handler in handlers.items():
        made.add(name, handler)
    return [made]
