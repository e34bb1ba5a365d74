"""A server of the bus that echoes, on its loop."""

from __future__ import annotations

import asyncio
import sys

from benchmarks.sides import turns
from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus, AsyncBusServer
from osrdyne_bus.endpoints import Endpoint
from osrdyne_bus.messages.wire import BusRequest


async def main() -> None:
    endpoint = Endpoint()

    @endpoint.method
    async def echo(request: BusRequest) -> bytes:
        return request.body

    async with AsyncBus(turns.uri()) as bus, AsyncBusServer(bus, Target("bench", server="one"), [endpoint]):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
