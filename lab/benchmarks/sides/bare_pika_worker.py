"""A worker written by hand on pika: callbacks, the reply confirmed, then the request acknowledged, two events.

It does what the protocol asks of a worker, on the loop: no threads, no graceful stop, no reconnect, no deadline. Each
event is sent when it happens. Two options change that, to measure what they are worth.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pika

from benchmarks.sides import turns
from benchmarks.sides.bare_pika import Opening
from osrdyne_protocol import events
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_worker.events import GATHER_TIME_SECONDS


class BareWorker:
    """Echoes what comes.

    `events`: "single", each when it happens; "gathered", sent together as our library does; or "none".
    `confirmed`: a request is acknowledged when its reply was confirmed. Without, at once, as no worker should: it loses
    a reply that the broker does not take.
    """

    def __init__(self, environment: WorkerEnvironment, *, prefetch: int, events: str, confirmed: bool) -> None:
        self._environment = environment
        self._prefetch = prefetch
        self._how = events
        self._confirmed = confirmed
        self._waiting: list[pika.BasicProperties] = []
        self._requests: Any = None
        self._replies: Any = None
        self._events: Any = None
        self._published = 0
        self._settled = 0
        #: Number of the reply on its channel -> delivery tag, correlation id and arrival of its request.
        self._unconfirmed: dict[int, tuple[int, str, float]] = {}

    async def serve(self) -> None:
        opening = await Opening.connect(self._environment.amqp_uri)
        self._requests = await opening.channel(prefetch=self._prefetch)
        self._replies = await opening.channel(on_confirm=self._on_confirm)
        self._events = await opening.channel()
        self._tell(events.STARTED)
        await opening.call(self._requests.basic_consume, self._environment.requests_queue, self._on_request)
        await asyncio.Event().wait()

    def _on_request(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        arrived = time.monotonic()
        correlation_id = properties.correlation_id
        self._tell(events.REQUEST_RECEIVED, request_id=correlation_id)
        self._published += 1
        self._unconfirmed[self._published] = (method.delivery_tag, correlation_id, arrived)
        reply = pika.BasicProperties(correlation_id=correlation_id, headers={"x-status": "ok"}, delivery_mode=2)
        self._replies.basic_publish("", properties.reply_to, body, reply, mandatory=True)
        if not self._confirmed:
            self._finish(self._published)

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if not isinstance(method, pika.spec.Basic.Ack):
            raise TypeError("a reply was not accepted")
        if not self._confirmed:
            return
        if not method.multiple:
            self._finish(method.delivery_tag)
            return
        for number in range(self._settled + 1, method.delivery_tag + 1):
            if number in self._unconfirmed:
                self._finish(number)
        self._settled = method.delivery_tag

    def _finish(self, number: int) -> None:
        tag, correlation_id, arrived = self._unconfirmed.pop(number)
        self._requests.basic_ack(tag)
        duration_ms = round((time.monotonic() - arrived) * 1000)
        self._tell(events.FINISHED, request_id=correlation_id, outcome="ok", duration_ms=duration_ms)

    def _tell(self, event: str, **fields: Any) -> None:
        if self._how == "none":
            return
        headers = events.headers(event, now_ms=int(time.time() * 1000), worker_id=self._environment.id, **fields)
        properties = pika.BasicProperties(headers=headers)
        if self._how == "single":
            self._send(properties)
            return
        if not self._waiting:
            asyncio.get_running_loop().call_later(GATHER_TIME_SECONDS, self._send_all)
        self._waiting.append(properties)

    def _send_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for properties in waiting:
            self._send(properties)

    def _send(self, properties: pika.BasicProperties) -> None:
        self._events.basic_publish(self._environment.activity_exchange, self._environment.key, b"", properties)


if __name__ == "__main__":
    options = turns.options()
    worker = BareWorker(WorkerEnvironment.from_environ(os.environ), **options)
    asyncio.run(worker.serve())
