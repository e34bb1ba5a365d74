"""A worker on aio-pika's RPC pattern: a durable quorum queue, confirms, and the events that our workers send."""

from __future__ import annotations

import asyncio
import time

import aio_pika
from aio_pika.patterns import RPC

from benchmarks.sides import turns
from osrdyne_protocol import events


async def main() -> None:
    options = turns.options()
    connection = await aio_pika.connect(turns.uri())
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.set_qos(prefetch_count=options["prefetch"])
        unconfirmed = await connection.channel(publisher_confirms=False)
        exchange = await unconfirmed.get_exchange(options["exchange"], ensure=False)

        async def tell(event: str) -> None:
            if options["events"]:
                headers = events.headers(event, now_ms=int(time.time() * 1000), worker_id="aio-pika")
                await exchange.publish(aio_pika.Message(b"", headers=dict(headers)), routing_key=options["key"])

        async def echo(body: bytes) -> bytes:
            await tell(events.REQUEST_RECEIVED)
            await tell(events.FINISHED)
            return body

        rpc = await RPC.create(channel, exclusive=True)
        await rpc.register(options["key"], echo, durable=True, arguments={"x-queue-type": "quorum"})
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
