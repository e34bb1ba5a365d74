"""A node of the relay that calls."""

from __future__ import annotations

import asyncio

from benchmarks.sides import turns
from osrdyne_relay import Relay


async def main() -> None:
    options = turns.options()
    async with Relay(turns.relay_settings()) as relay:

        async def call() -> bytes:
            return (await relay.queue_and_wait(options["endpoints"][0], turns.BODY)).body

        await turns.serve(lambda seconds, outstanding: turns.in_coroutines(call, seconds, outstanding))


if __name__ == "__main__":
    asyncio.run(main())
