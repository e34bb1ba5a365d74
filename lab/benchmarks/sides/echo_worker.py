"""A worker of many keys in one process, on our AMQP layer: it answers with what it got, and sends no events."""

from __future__ import annotations

import asyncio

from benchmarks.sides import turns
from osrdyne_amqp import Connection, Message, Properties
from osrdyne_protocol.headers import X_STATUS


async def main() -> None:
    options = turns.options()
    connection = await Connection.open(turns.uri(), name="echo")
    requests, replies = await connection.channel(prefetch=64), await connection.channel()

    def answer(message: Message) -> None:
        given = message.properties
        properties = Properties(correlation_id=given.correlation_id, headers={X_STATUS: "ok"}, delivery_mode=2)
        replies.send("", str(given.reply_to), message.body, properties)
        requests.ack(message.delivery_tag)

    for queue in options["queues"]:
        await requests.consume(queue, answer, on_cancel=lambda: None)
    print("ready", flush=True)
    await connection.wait_closed()


if __name__ == "__main__":
    asyncio.run(main())
