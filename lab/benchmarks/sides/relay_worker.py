"""A node of the relay at which workers poll, and echo: so many workers at each endpoint."""

from __future__ import annotations

import asyncio

from benchmarks.sides import turns
from osrdyne_relay import Relay


async def main() -> None:
    options = turns.options()
    async with Relay(turns.relay_settings()) as relay:

        async def work(endpoint: str) -> None:
            while True:
                request = await relay.dequeue(endpoint)
                if request is not None:
                    await relay.apply_response(request.id, request.body)

        await asyncio.gather(
            asyncio.Event().wait(),
            *(work(endpoint) for endpoint in options["endpoints"] for _ in range(options["workers"])),
        )


if __name__ == "__main__":
    asyncio.run(main())
