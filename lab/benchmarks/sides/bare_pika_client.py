"""A pipelined client written by hand on pika: callbacks, confirms, a reply queue of its own, one call a message.

It does what a careful author needs and no more: every request persistent, mandatory and confirmed, every reply matched
by correlation id. It has no timeouts, no reconnect, no typed errors, no limits.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pika

from benchmarks.sides import turns
from benchmarks.sides.bare_pika import Opening
from osrdyne_protocol.names import PoolNames


class BareClient:
    """Calls one key; `turn` keeps so many calls under way.

    Replies need no acknowledgement, so one that is on its way when the connection breaks is lost; unless
    `acknowledges`, which costs the broker more.
    """

    def __init__(self, pool: str, key: str, *, acknowledges: bool) -> None:
        self._exchange = PoolNames(pool).request_exchange
        self._key = key
        self._acknowledges = acknowledges
        self._queue = f"reply-bare-{secrets.token_hex(16)}"
        self._channel: Any = None
        self._waiting: set[str] = set()
        self._unconfirmed: dict[int, str] = {}
        self._published = 0
        self._settled = 0
        self._answered = 0
        self._until = 0.0
        self._done: asyncio.Future[None]

    async def open(self, uri: str) -> None:
        opening = await Opening.connect(uri)
        self._channel = await opening.channel(on_confirm=self._on_confirm)
        self._channel.add_on_return_callback(self._on_return)
        consumer = await opening.channel()
        arguments = {"x-queue-type": "classic", "x-expires": 600_000}
        await opening.call(consumer.queue_declare, self._queue, durable=True, arguments=arguments)
        await opening.call(consumer.basic_consume, self._queue, self._on_reply, auto_ack=not self._acknowledges)

    async def turn(self, seconds: float, outstanding: int) -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._done, self._until, self._answered = loop.create_future(), began + seconds, 0
        self._clock = loop.time
        for _ in range(outstanding):
            self._call()
        await self._done
        return self._answered, loop.time() - began

    def _call(self) -> None:
        self._published = number = self._published + 1
        correlation_id = f"{number:x}"
        self._waiting.add(correlation_id)
        self._unconfirmed[number] = correlation_id
        properties = pika.BasicProperties(correlation_id=correlation_id, reply_to=self._queue, delivery_mode=2)
        self._channel.basic_publish(self._exchange, self._key, turns.BODY, properties, mandatory=True)

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if not isinstance(method, pika.spec.Basic.Ack):
            self._done.set_exception(RuntimeError("a request was not accepted"))
        if method.multiple:
            for number in range(self._settled + 1, method.delivery_tag + 1):
                self._unconfirmed.pop(number, None)
            self._settled = method.delivery_tag
        else:
            self._unconfirmed.pop(method.delivery_tag, None)

    def _on_return(self, *_: Any) -> None:
        self._done.set_exception(RuntimeError("a request was returned"))

    def _on_reply(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if self._acknowledges:
            channel.basic_ack(method.delivery_tag)
        if properties.correlation_id not in self._waiting:
            return
        self._waiting.remove(properties.correlation_id)
        if body != turns.BODY or properties.headers["x-status"] != "ok":
            self._done.set_exception(AssertionError("an answer is not what was sent"))
        self._answered += 1
        if self._clock() < self._until:
            self._call()
        elif not self._waiting:
            self._done.set_result(None)


async def main() -> None:
    options = turns.options()
    client = BareClient(options["pool"], options["key"], acknowledges=options["acknowledges"])
    await client.open(turns.uri())
    await turns.serve(client.turn)


if __name__ == "__main__":
    asyncio.run(main())
