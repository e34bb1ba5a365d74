"""A client of the bus for threads, one for each call at a time."""

from __future__ import annotations

import asyncio

from benchmarks.sides import turns
from osrdyne_bus import Target
from osrdyne_bus.threads import Bus, BusClient


def main() -> None:
    with Bus(turns.uri()) as bus:
        client = BusClient(bus)

        def call() -> bytes:
            return client.call(Target("bench"), "echo", turns.BODY).body

        asyncio.run(turns.serve(lambda seconds, outstanding: turns.in_threads(call, seconds, outstanding)))


if __name__ == "__main__":
    main()
