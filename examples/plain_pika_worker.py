"""A worker without our library: plain pika and the protocol. It answers with its key and the request's body.

For each request: `request-received`, work, reply with confirm, then ack, so that none is lost. SIGTERM lets
the work in hand finish. When the connection breaks or the queue is gone the process ends with an error, and
its driver starts it again where it is still wanted.
"""

import os
import signal
import threading
import time

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError

from osrdyne_protocol.names import is_reply_address

KEY = os.environ["WORKER_KEY"]  # the empty string is a key like any other
stopping = threading.Event()


def report(events: BlockingChannel, event: str) -> None:
    properties = pika.BasicProperties(headers={"x-event": event}, timestamp=int(time.time()))
    events.basic_publish(os.environ["WORKER_ACTIVITY_EXCHANGE"], KEY, b"", properties)


def serve(channel: BlockingChannel, tag: int, request: pika.BasicProperties, body: bytes) -> None:
    if request.reply_to and not is_reply_address(request.reply_to):
        channel.basic_reject(tag, requeue=False)  # a worker may write into any queue, and its client may not
        return
    try:
        status, answer = "ok", KEY.encode() + b": " + body
    except Exception as error:  # noqa: BLE001 - a bad request is answered, it stops no worker
        status, answer = "error", str(error).encode()
    if request.reply_to:
        sent = {"x-status": status}
        properties = pika.BasicProperties(correlation_id=request.correlation_id, headers=sent, delivery_mode=2)
        try:
            channel.basic_publish("", request.reply_to, answer, properties)  # returns once it is confirmed
        except NackError:
            channel.basic_reject(tag, requeue=True)
            return
    channel.basic_ack(tag)


signal.signal(signal.SIGTERM, lambda *_: stopping.set())
with pika.BlockingConnection(pika.URLParameters(os.environ["WORKER_AMQP_URI"])) as connection:
    events, channel = connection.channel(), connection.channel()
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=1)
    report(events, "started")
    while not stopping.is_set():  # a broker may cancel its consumer, which ends the inner loop: consume again
        for method, request, body in channel.consume(os.environ["WORKER_REQUESTS_QUEUE"], inactivity_timeout=0.2):
            if method:
                report(events, "request-received")
                serve(channel, method.delivery_tag, request, body)
            if stopping.is_set():
                break
