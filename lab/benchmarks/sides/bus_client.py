"""A client of the bus."""

from __future__ import annotations

import asyncio

from benchmarks.sides import turns
from osrdyne_bus import Target
from osrdyne_bus.aio import AsyncBus, AsyncBusClient


async def main() -> None:
    async with AsyncBus(turns.uri()) as bus:
        client = AsyncBusClient(bus)

        async def call() -> bytes:
            return (await client.call(Target("bench"), "echo", turns.BODY)).body

        await turns.serve(lambda seconds, outstanding: turns.in_coroutines(call, seconds, outstanding))


if __name__ == "__main__":
    asyncio.run(main())
