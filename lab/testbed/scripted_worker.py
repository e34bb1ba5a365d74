"""A worker in plain pika that does what a request's body says: `sleep:SECONDS`, `hang`, `crash`, `requeue`, or an echo.
`linger` starts a thread that the first SIGTERM does not end; the second one ends the process.

A foreign peer on purpose: it sends only `started` and `request-received`, and its `x-status` is a byte array.
The answer is `key|pid|body`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import pika
from pika.exceptions import AMQPError


def obey(word: str) -> None:
    if word == "linger":
        threading.Thread(target=time.sleep, args=(1000,)).start()
    if word == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(1000)  # without heartbeats


def main() -> None:
    key, queue = os.environ["WORKER_KEY"], os.environ["WORKER_REQUESTS_QUEUE"]
    if os.environ.get("REFUSE_KEY") == key:
        sys.exit(f"no worker for {key} today")
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["WORKER_AMQP_URI"]))
    channel = connection.channel()
    channel.confirm_delivery()
    stopping: list[int] = []

    def stop(number: int, _: object) -> None:
        stopping.append(number)
        if threading.active_count() > 1:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        connection.add_callback_threadsafe(channel.stop_consuming)

    signal.signal(signal.SIGTERM, stop)

    def tell(event: str) -> None:
        properties = pika.BasicProperties(headers={"x-event": event})
        channel.basic_publish(os.environ["WORKER_ACTIVITY_EXCHANGE"], key, b"", properties)

    def on_request(_: Any, method: Any, properties: Any, body: bytes) -> None:
        tell("request-received")
        word, _, argument = body.decode(errors="replace").partition(":")
        if word == "crash":
            os._exit(3)
        if word == "requeue":
            channel.basic_reject(method.delivery_tag, requeue=True)
            return
        if word == "sleep":
            connection.sleep(float(argument))
        else:
            obey(word)
        if properties.reply_to:
            channel.basic_publish(
                "",
                properties.reply_to,
                f"{key}|{os.getpid()}|".encode() + body[:1000],
                pika.BasicProperties(
                    correlation_id=properties.correlation_id, headers={"x-status": b"ok"}, delivery_mode=2
                ),
            )
        channel.basic_ack(method.delivery_tag)

    channel.basic_qos(prefetch_count=1)
    tell("started")
    # RabbitMQ 4.3 takes the timeout of a consumer in place of that of its queue.
    timeout = os.environ.get("HOLDS_FOR_MS")
    channel.basic_consume(queue, on_request, arguments={"x-consumer-timeout": int(timeout)} if timeout else None)
    channel.start_consuming()
    connection.close()


if __name__ == "__main__":
    while True:
        try:
            main()
            break
        except AMQPError as error:
            # A broker that restarts must not end the worker: it comes back when the broker does.
            print(f"broker away: {error!r}", flush=True)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.sigtimedwait([], 0.3)
