"""A server of the bus that echoes, in threads."""

from __future__ import annotations

import sys

from benchmarks.sides import turns
from osrdyne_bus import Target
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.messages.wire import BusRequest
from osrdyne_bus.threads import Bus, BusServer


def main() -> None:
    endpoint = Endpoint()

    @endpoint.method
    def echo(request: BusRequest) -> bytes:
        return request.body

    with Bus(turns.uri()) as bus, BusServer(bus, Target("bench", server="one"), [endpoint]):
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
