"""The minimal worker speaks the wire protocol, outlives its broker, and is small enough for a thousand of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import psutil
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from osrdyne_protocol.names import PoolNames
from osrdyne_protocol.worker_environment import WorkerEnvironment
from testbed.broker import Broker
from testbed.waiting import PATIENCE_SECONDS
from tests.conftest import Vhost

WORKER = (sys.executable, "-I", "-S", "-E", str(Path(__file__).parents[2] / "lab/testbed/minimal_worker.py"))
POOL = PoolNames("echo")
#: `take` puts back what it did not ask for, which a quorum queue would count as failed deliveries.
CLASSIC = {"x-queue-type": "classic"}

Start = Callable[[str, str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a worker for a key on a broker; kills what is left at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start_worker(uri: str, key: str) -> subprocess.Popen[bytes]:
        queue = POOL.request_queue(key)
        environment = WorkerEnvironment(f"id-{len(started)}", key, POOL.pool, queue, POOL.activity_exchange, uri)
        process = subprocess.Popen(WORKER, env=environment.to_environ(), stderr=subprocess.DEVNULL)
        started.append(process)
        return process

    yield start_worker
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def channel(vhost: Vhost) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(vhost.amqp_uri())) as connection:
        yield declared(connection.channel())


def declared(channel: BlockingChannel, key: str = "a/b") -> BlockingChannel:
    """Declares what a pool has of itself, and the request queue of one key."""
    channel.exchange_declare(POOL.activity_exchange, "fanout", durable=True)
    channel.queue_declare("events", durable=True, arguments=CLASSIC)
    channel.queue_bind("events", POOL.activity_exchange)
    channel.queue_declare(POOL.request_queue(key), durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_declare("replies", durable=True, arguments=CLASSIC)
    return channel


def ask(channel: BlockingChannel, body: bytes, correlation_id: str, key: str = "a/b") -> None:
    properties = pika.BasicProperties(reply_to="replies", correlation_id=correlation_id, headers={"n": 1})
    properties.content_type, properties.expiration, properties.priority = "text/plain", "600000", 3
    channel.basic_publish("", POOL.request_queue(key), body, properties)


def take(channel: BlockingChannel, queue: str) -> tuple[pika.BasicProperties, bytes]:
    """Returns the next message of a queue, waiting for it."""
    for delivery, properties, body in channel.consume(queue, inactivity_timeout=60):
        assert delivery is not None, f"nothing came to {queue}"
        channel.basic_ack(delivery.delivery_tag)
        channel.cancel()
        return properties, body
    raise AssertionError


def test_it_answers_with_its_key_and_the_body_and_sends_both_events(
    vhost: Vhost, channel: BlockingChannel, start: Start
) -> None:
    start(vhost.amqp_uri(), "a/b")
    ask(channel, b"hello", "one")
    properties, body = take(channel, "replies")
    assert body == b"a/b|hello"
    assert properties.correlation_id == "one"
    assert properties.headers == {"x-status": "ok", "x-worker-id": "id-0"}
    events = [take(channel, "events")[0].headers["x-event"] for _ in range(2)]
    assert events == ["started", "request-received"]


def test_a_body_of_many_frames_and_an_empty_one_come_back_whole(
    vhost: Vhost, channel: BlockingChannel, start: Start
) -> None:
    start(vhost.amqp_uri(), "a/b")
    large = os.urandom(1_000_000)
    ask(channel, large, "large")
    ask(channel, b"", "empty")
    assert take(channel, "replies")[1] == b"a/b|" + large
    assert take(channel, "replies")[1] == b"a/b|"


def test_its_answer_outlives_a_restart_of_the_broker(vhost: Vhost, channel: BlockingChannel, start: Start) -> None:
    start(vhost.amqp_uri(), "a/b")
    ask(channel, b"body", "1")
    assert take(channel, "replies")[0].delivery_mode == pika.DeliveryMode.Persistent.value


def test_a_request_without_reply_to_is_acknowledged(vhost: Vhost, channel: BlockingChannel, start: Start) -> None:
    start(vhost.amqp_uri(), "a/b")
    channel.basic_publish("", POOL.request_queue("a/b"), b"no reply")
    ask(channel, b"next", "two")
    assert take(channel, "replies")[1] == b"a/b|next"


def test_sigterm_ends_it_with_status_0_and_leaves_its_queue_to_others(
    vhost: Vhost, channel: BlockingChannel, start: Start
) -> None:
    worker = start(vhost.amqp_uri(), "a/b")
    ask(channel, b"hello", "one")
    take(channel, "replies")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=PATIENCE_SECONDS) == 0
    again = channel.queue_declare(POOL.request_queue("a/b"), passive=True).method
    assert (again.consumer_count, again.message_count) == (0, 0)


def test_it_outlives_a_restart_of_its_broker(private_broker: Broker, start: Start) -> None:
    uri = private_broker.amqp_uri()
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = declared(connection.channel())
        worker = start(uri, "a/b")
        ask(channel, b"before", "one")
        take(channel, "replies")
    private_broker.restart()
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        ask(channel, b"after", "two")
        assert take(channel, "replies")[1] == b"a/b|after"
    assert worker.poll() is None


def test_it_ends_on_sigterm_while_no_broker_is_there(start: Start) -> None:
    worker = start("amqp://guest:guest@127.0.0.1:1", "a/b")
    # SIGTERM before the handler is set would end it too: wait until it is (bit 14 of the mask in proc(5)).
    status = Path(f"/proc/{worker.pid}/status")
    while not int(status.read_text().partition("SigCgt:\t")[2][:16], 16) & 1 << (signal.SIGTERM - 1):
        assert worker.poll() is None
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=PATIENCE_SECONDS) == 0


def test_a_thousand_of_it_fit_into_the_memory_of_a_small_machine(
    vhost: Vhost, channel: BlockingChannel, start: Start
) -> None:
    worker = start(vhost.amqp_uri(), "a/b")
    ask(channel, b"hello", "one")
    take(channel, "replies")
    process = psutil.Process(worker.pid)
    memory, cpu = process.memory_full_info(), process.cpu_times()
    print(f"RSS {memory.rss >> 10} KiB, unique {memory.uss >> 10} KiB, CPU {cpu.user + cpu.system:.3f} s")
    assert memory.uss < 6_000_000
