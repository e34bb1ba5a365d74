"""A client on aio-pika's RPC pattern."""

from __future__ import annotations

import asyncio

import aio_pika
from aio_pika.patterns import RPC

from benchmarks.sides import turns


async def main() -> None:
    options = turns.options()
    connection = await aio_pika.connect(turns.uri())
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        rpc = await RPC.create(channel, exclusive=True)

        async def call() -> bytes:
            answer: bytes = await rpc.call(options["key"], {"body": turns.BODY})
            return answer

        await turns.serve(lambda seconds, outstanding: turns.in_coroutines(call, seconds, outstanding))


if __name__ == "__main__":
    asyncio.run(main())
