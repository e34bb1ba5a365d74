"""Our asyncio client."""

from __future__ import annotations

import asyncio

from benchmarks.sides import turns
from osrdyne_client import AsyncClient


async def main() -> None:
    options = turns.options()
    async with AsyncClient(turns.uri(), options["pool"]) as client:

        async def call() -> bytes:
            return (await client.call(options["key"], turns.BODY)).body

        await turns.serve(lambda seconds, outstanding: turns.in_coroutines(call, seconds, outstanding))


if __name__ == "__main__":
    asyncio.run(main())
