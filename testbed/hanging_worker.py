"""A worker that hangs, crashes or echoes as a request's body says: with our library in a thread, a process or as a
coroutine (variable RUNNER), or in plain pika (`foreign`), where it hangs without heartbeats.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import time
from typing import Any

import pika

from osrdyne_worker import Request, run


def obey(body: bytes) -> bytes:
    if body == b"crash":
        os._exit(3)
    if body == b"hang":
        time.sleep(1000)
    return b"echo " + body


def plain(request: Request) -> bytes:
    return obey(request.body)


async def coroutine(request: Request) -> bytes:
    if request.body == b"hang":
        await asyncio.sleep(1000)
    return obey(request.body)


def foreign() -> None:
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["WORKER_AMQP_URI"]))
    channel = connection.channel()

    def tell(event: str) -> None:
        channel.basic_publish(
            os.environ["WORKER_ACTIVITY_EXCHANGE"],
            os.environ["WORKER_KEY"],
            b"",
            pika.BasicProperties(headers={"x-event": event}),
        )

    def on_request(_: Any, method: Any, properties: Any, body: bytes) -> None:
        tell("request-received")
        answer = obey(body)
        reply = pika.BasicProperties(correlation_id=properties.correlation_id, headers={"x-status": "ok"})
        channel.basic_publish("", properties.reply_to, answer, reply)
        channel.basic_ack(method.delivery_tag)

    channel.basic_qos(prefetch_count=1)
    tell("started")
    channel.basic_consume(os.environ["WORKER_REQUESTS_QUEUE"], on_request)
    channel.start_consuming()


if __name__ == "__main__":
    runner = os.environ["RUNNER"]
    if runner == "foreign":
        foreign()
    elif runner == "process":
        run(plain, executor=concurrent.futures.ProcessPoolExecutor(2), prefetch=2, grace=1.0)
    elif runner == "coroutine":
        run(coroutine, prefetch=4, grace=1.0)
    else:
        threads = int(os.environ.get("THREADS", "1"))
        run(plain, threads=threads, prefetch=int(os.environ.get("PREFETCH", threads)), grace=1.0)
