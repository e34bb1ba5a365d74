"""A bare script in the daemon's place: for each orphan it declares, binds, publishes, waits for the confirm, acks.

Written by hand on pika with callbacks, so that orphans that arrive together are worked on together. It knows of no key
that misbehaves, starts nothing, stops nothing and keeps nothing. The one thing that it does for the measurement is to
report each forward, on the exchange on which the daemon reports its own.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import pika

from benchmarks.sides import turns
from benchmarks.sides.bare_pika import Opening
from osrdyne_pool.topology import request_queue_arguments
from osrdyne_protocol import events
from osrdyne_protocol.names import PoolNames

#: As many as the daemon takes by default.
PREFETCH = 256


class BareForwarder:
    """Brings orphans of one pool to queues that it makes."""

    def __init__(self, pool: str) -> None:
        self._names = PoolNames(pool)
        self._orphans: Any = None
        self._calls: Any = None
        self._forwards: Any = None
        self._events: Any = None
        self._published = 0
        self._settled = 0
        #: Number of the forward on its channel -> delivery tag and key of its orphan.
        self._unconfirmed: dict[int, tuple[int, str]] = {}

    async def serve(self, uri: str) -> None:
        opening = await Opening.connect(uri)
        self._orphans = await opening.channel(prefetch=PREFETCH)
        self._calls = await opening.channel()
        self._forwards = await opening.channel(on_confirm=self._on_confirm)
        self._events = await opening.channel()
        await opening.call(self._orphans.basic_consume, self._names.orphan_queue, self._on_orphan)
        print("ready", flush=True)
        await asyncio.Event().wait()

    def _on_orphan(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        key, queue = method.routing_key, self._names.request_queue(method.routing_key)
        forward = partial(self._forward, method.delivery_tag, key, properties, body)
        # pika sends the second call when the first is answered.
        self._calls.queue_declare(queue, durable=True, arguments=request_queue_arguments(key), callback=lambda _: None)
        self._calls.queue_bind(queue, self._names.request_exchange, key, callback=lambda _: forward())

    def _forward(self, tag: int, key: str, properties: Any, body: bytes) -> None:
        self._published += 1
        self._unconfirmed[self._published] = (tag, key)
        self._forwards.basic_publish(self._names.request_exchange, key, body, properties, mandatory=True)

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if not isinstance(method, pika.spec.Basic.Ack):
            raise TypeError("a forward was not accepted")
        first = self._settled + 1 if method.multiple else method.delivery_tag
        for number in range(first, method.delivery_tag + 1):
            if number in self._unconfirmed:
                self._finish(*self._unconfirmed.pop(number))
        if method.multiple:
            self._settled = method.delivery_tag

    def _finish(self, tag: int, key: str) -> None:
        self._orphans.basic_ack(tag)
        headers = events.headers(events.FORWARDED, now_ms=int(time.time() * 1000))
        self._events.basic_publish(self._names.activity_exchange, key, b"", pika.BasicProperties(headers=headers))


if __name__ == "__main__":
    asyncio.run(BareForwarder(turns.options()["pool"]).serve(turns.uri()))
